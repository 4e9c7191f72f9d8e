"""The queue of learnings."""

import json
from pathlib import Path

import pytest

from fairtrial.errors import UsageError
from fairtrial.evolve.learnings import MAX_LEARNINGS, parse_learnings, read_learnings

SKILLS = frozenset({"plan"})


def line(**members: object) -> bytes:
    return json.dumps({"skill": "plan", "text": "be brief", **members}).encode()


def test_the_forty_most_recent_are_kept_oldest_first() -> None:
    queue = parse_learnings([line(text=f"n{n}") for n in range(60)], skills=SKILLS, hidden_tasks=())
    assert [each.text for each in queue.learnings] == [f"n{n}" for n in range(20, 60)]
    assert MAX_LEARNINGS == 40


def test_malformed_lines_are_skipped_and_counted() -> None:
    lines = [b"", b"{", b"[1]", line(skill=3), line(text=""), line(task=7), b'{"skill":"plan"}', line()]
    queue = parse_learnings(lines, skills=SKILLS, hidden_tasks=())
    assert (len(queue.learnings), queue.n_malformed) == (1, 6)


def test_learnings_about_other_skills_are_left_out() -> None:
    queue = parse_learnings([line(skill="other"), line()], skills=SKILLS, hidden_tasks=())
    assert (len(queue.learnings), queue.n_left_out) == (1, 1)


def test_nothing_is_learnt_of_a_holdout_task_whether_it_is_named_in_the_field_or_in_the_text() -> None:
    lines = [line(task="held-out"), line(text="in held-out the parser matters"), line(task="open")]
    queue = parse_learnings(lines, skills=SKILLS, hidden_tasks=("held-out",))
    assert [each.task for each in queue.learnings] == ["open"]
    assert queue.n_left_out == 2


def test_a_file_is_read_and_no_file_is_an_empty_queue(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(line() + b"\n")
    assert len(read_learnings(path, skills=SKILLS, hidden_tasks=()).learnings) == 1
    assert read_learnings(None, skills=SKILLS, hidden_tasks=()).learnings == ()


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"l\.jsonl: cannot be read"):
        read_learnings(tmp_path / "l.jsonl", skills=SKILLS, hidden_tasks=())
