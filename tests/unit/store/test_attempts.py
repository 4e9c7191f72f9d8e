import json
import os
from pathlib import Path

import pytest
from tests.unit.store.conftest import Made

from fairtrial.errors import HostError, IntegrityError
from fairtrial.store.attempts import (
    AttemptRecord,
    describe_artifacts,
    encode_outcome,
    read_attempt_name,
    read_outcome,
    scan_attempts,
    write_intent,
    write_outcome,
)
from fairtrial.store.chain import MAX_LINE_BYTES
from fairtrial.store.documents import BrokenDocumentError
from fairtrial.store.layout import Results


def scan(made: Made, **recorded: object) -> list[AttemptRecord]:
    return list(scan_attempts(made.results, made.sweep, **recorded))  # type: ignore[arg-type]


def test_an_attempt_begins_once_and_ends_once(made: Made) -> None:
    directory = made.begin(0)
    assert json.loads((directory / "intent.json").read_bytes())["attempt"] == 1
    with pytest.raises(FileExistsError):
        made.begin(0)
    made.end(0)
    with pytest.raises(FileExistsError):
        made.end(0)
    made.begin(0, attempt=2)


def test_an_outcome_is_read_as_it_was_written(made: Made) -> None:
    made.begin(1)
    assert read_outcome(made.results, made.key(1), 1) is None
    made.end(1)
    outcome = read_outcome(made.results, made.key(1), 1)
    assert outcome is not None
    assert (outcome.sweep, outcome.key, outcome.attempt) == (made.sweep.sweep, made.key(1), 1)
    assert list(outcome.rows) == made.rows(1)
    assert outcome.artifacts["transcript.txt"].n_bytes == 3
    assert outcome.document["ended_utc"] == "2026-11-29T13:02:00.000000Z"
    data = (made.results.attempt_dir(made.key(1), 1) / "outcome.json").read_bytes()
    assert encode_outcome(outcome.document) == data


def test_artifacts_are_every_file_of_the_attempt_but_its_two_brackets(made: Made) -> None:
    directory = made.begin(0)
    (directory / "wire").mkdir()
    (directory / "wire" / "outcome.json").write_bytes(b"abc")
    described = describe_artifacts(directory)
    assert list(described) == ["transcript.txt", "wire/outcome.json"]
    assert described["wire/outcome.json"]["bytes"] == 3
    (directory / "wire" / "link").symlink_to("/etc/passwd")
    with pytest.raises(IntegrityError, match=r"wire/link: not a regular file"):
        describe_artifacts(directory)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "outcome/2"},
        {"sweep": None},
        {"key": 1},
        {"attempt": True},
        {"attempt": -1},
        {"attempt": 10**6},
        {"rows": []},
        {"rows": [1]},
        {"rows": [{}]},
        {"rows": [{"schema": "loop-row/1", "seq": 1}]},
        {"rows": [{"schema": "loop-row/1", "x": float("nan")}]},
        {"rows": [{"schema": "loop-row/1", "x": "x" * 17_000_000}]},
        {"artifacts": []},
        {"artifacts": {"a": {}}},
        {"artifacts": {"a": {"sha256": "", "bytes": True}}},
        {"artifacts": {"../a": {"sha256": "", "bytes": 1}}},
        {"artifacts": {"/a": {"sha256": "", "bytes": 1}}},
        {"artifacts": {"": {"sha256": "", "bytes": 1}}},
    ],
)
def test_what_is_no_outcome_is_not_written(made: Made, change: dict[str, object]) -> None:
    made.begin(0)
    with pytest.raises(ValueError, match=r".+"):
        write_outcome(made.results, made.outcome(0) | change)
    assert read_outcome(made.results, made.key(0), 1) is None


def test_an_intent_that_names_nothing_is_not_written(made: Made) -> None:
    with pytest.raises(ValueError, match="no key"):
        write_intent(made.results, {"schema": "intent/1", "sweep": "s", "attempt": 1})
    assert list(made.results.trials.iterdir()) == []


def test_an_intent_that_cannot_be_written_starts_nothing(made: Made) -> None:
    gone = Results(root=made.results.root / "gone")
    with pytest.raises(HostError, match="No such file"):
        write_intent(gone, {"schema": "intent/1", **made.identity(0)})


@pytest.mark.parametrize(
    "change",
    [
        {"rows": None},
        {"rows": []},
        {"artifacts": {"a": 1}},
        {"rows": [{"schema": "loop-row/1", "seq": 1}]},
        {"artifacts": 1},
        {"attempt": "1"},
    ],
)
def test_an_outcome_of_another_shape_is_damaged(made: Made, change: dict[str, object]) -> None:
    made.begin(0)
    path = made.results.attempt_dir(made.key(0), 1) / "outcome.json"
    path.write_text(json.dumps(made.outcome(0) | change))
    with pytest.raises(BrokenDocumentError, match=r"outcome\.json: is damaged"):
        read_outcome(made.results, made.key(0), 1)


def test_an_outcome_whose_row_no_journal_could_take_is_damaged(made: Made) -> None:
    made.begin(0)
    path = made.results.attempt_dir(made.key(0), 1) / "outcome.json"
    rows = [{"schema": "loop-row/1", "text": "x" * MAX_LINE_BYTES}]
    path.write_text(json.dumps(made.outcome(0, rows=rows)))
    with pytest.raises(BrokenDocumentError, match="keep what is long in an artifact"):
        read_outcome(made.results, made.key(0), 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"rows":[\n{', b'"rows":[1,\n{'),
        (b'{"schema":"loop-row/1"', b'{"schema":1'),
        (b',"rows":[\n', b',"rows":[],"rows":[\n'),
        (b"\n]}\n", b",\n\n]}\n"),
        (b'"n":0', b'"n":NaN'),
        (b'"n":0', b'"n":0,"n":0'),
    ],
)
def test_an_outcome_damaged_within_its_rows_is_damaged(made: Made, old: bytes, new: bytes) -> None:
    made.begin(0)
    path = made.results.attempt_dir(made.key(0), 1) / "outcome.json"
    data = encode_outcome(made.outcome(0))
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    with pytest.raises(BrokenDocumentError, match=r"outcome\.json: is damaged"):
        read_outcome(made.results, made.key(0), 1)


def test_an_outcome_in_any_layout_holds_the_same_rows(made: Made) -> None:
    made.begin(0)
    path = made.results.attempt_dir(made.key(0), 1) / "outcome.json"
    document = made.outcome(0)
    path.write_bytes(encode_outcome(document))
    own = read_outcome(made.results, made.key(0), 1)
    assert own is not None
    assert [json.loads(b"".join(row)) for row in own.encoded] == list(own.rows) == made.rows(0)
    for text in (json.dumps(document, indent=1), json.dumps({**document, "rows": made.rows(0)}, ensure_ascii=False)):
        path.write_text(text)
        other = read_outcome(made.results, made.key(0), 1)
        assert other is not None
        assert (other.rows, other.encoded, other.artifacts) == (own.rows, own.encoded, own.artifacts)


def test_only_plain_numbers_name_attempts() -> None:
    names = ["0", "1", "999999", "01", "-1", "+1", "1000000", "", "a", "\u0661", "1.0", " 1"]
    assert [read_attempt_name(name) for name in names] == [0, 1, 999999, *[None] * 9]


def test_a_scan_finds_what_the_journal_lacks_in_the_order_of_the_plan(made: Made) -> None:
    for trial in (3, 1):
        made.begin(trial)
        made.end(trial)
    made.begin(1, attempt=10)
    made.begin(1, attempt=9)
    (made.results.trial_dir(made.key(1)) / "notes").mkdir()
    (made.results.trials / "0123456789abcdef").mkdir()
    found = scan(made)
    assert [(record.key, record.attempt, record.plan_index) for record in found] == [
        (made.key(1), 1, 1),
        (made.key(1), 9, 1),
        (made.key(1), 10, 1),
        (made.key(3), 1, 3),
    ]
    assert [record.outcome is not None for record in found] == [True, False, False, True]
    assert all(record.intent is not None and record.problem is None for record in found)
    assert [record.attempt for record in scan(made, recorded={(made.key(1), 1), (made.key(3), 1)})] == [9, 10]


@pytest.mark.parametrize("keep", [0, 1, 50, -1])
def test_a_truncated_outcome_is_set_aside_named_and_absent_b40(made: Made, keep: int) -> None:
    made.begin(2)
    made.end(2)
    path = made.results.attempt_dir(made.key(2), 1) / "outcome.json"
    data = path.read_bytes().rstrip(b"\n")[:keep]
    path.write_bytes(data)
    (record,) = scan(made)
    kept = made.results.set_aside / f"{path.parent.parent.name}-1-outcome.json"
    assert record.outcome is None
    assert record.problem is not None
    assert "is damaged" in record.problem
    assert str(kept) in record.problem
    assert kept.read_bytes() == data
    (again,) = scan(made)
    assert (again.outcome, again.problem) == (None, None)
    made.end(2)
    assert scan(made)[0].outcome is not None


@pytest.mark.parametrize(("field", "value"), [("sweep", "other"), ("key", "other"), ("attempt", 2)])
def test_a_foreign_outcome_is_set_aside_and_named_b43(made: Made, field: str, value: object) -> None:
    made.begin(0)
    path = made.results.attempt_dir(made.key(0), 1) / "outcome.json"
    path.write_bytes(encode_outcome(made.outcome(0) | {field: value}))
    (record,) = scan(made)
    assert record.outcome is None
    assert record.problem is not None
    assert "belongs to" in record.problem
    assert not path.exists()


def test_an_outcome_that_is_a_link_is_moved_and_not_followed(made: Made, tmp_path: Path) -> None:
    made.begin(0)
    (tmp_path / "target").write_bytes(encode_outcome(made.outcome(0)))
    path = made.results.attempt_dir(made.key(0), 1) / "outcome.json"
    path.symlink_to(tmp_path / "target")
    (record,) = scan(made)
    assert record.outcome is None
    assert (tmp_path / "target").exists()
    assert not os.path.lexists(path)


def test_an_outcome_of_a_newer_version_is_refused_and_left_alone(made: Made) -> None:
    made.begin(0)
    path = made.results.attempt_dir(made.key(0), 1) / "outcome.json"
    path.write_text('{"schema":"outcome/2"}')
    with pytest.raises(IntegrityError, match="outcome/2") as caught:
        scan(made)
    assert not isinstance(caught.value, BrokenDocumentError)
    assert path.exists()


def test_a_damaged_or_foreign_intent_is_named_and_the_outcome_still_counts(made: Made) -> None:
    for trial in (0, 1):
        made.begin(trial)
        made.end(trial)
    (made.results.attempt_dir(made.key(0), 1) / "intent.json").write_text("{")
    (made.results.attempt_dir(made.key(1), 1) / "intent.json").write_bytes(
        (made.results.attempt_dir(made.key(1), 1) / "intent.json").read_bytes().replace(b'"attempt":1', b'"attempt":2')
    )
    damaged, foreign = scan(made)
    assert damaged.problem is not None
    assert "is damaged" in damaged.problem
    assert foreign.problem is not None
    assert "belongs to another attempt" in foreign.problem
    assert [record.intent for record in (damaged, foreign)] == [None, None]
    assert all(record.outcome is not None for record in (damaged, foreign))


def test_a_kill_between_directory_and_intent_is_an_attempt_without_either(made: Made) -> None:
    made.results.attempt_dir(made.key(0), 1).mkdir(parents=True)
    (record,) = scan(made)
    assert (record.intent, record.outcome, record.problem) == (None, None, None)


def test_an_outcome_that_cannot_be_moved_away_is_explained(made: Made) -> None:
    made.begin(0)
    (made.results.attempt_dir(made.key(0), 1) / "outcome.json").write_text("{")
    made.results.set_aside.write_text("in the way")
    with pytest.raises(HostError, match="File exists"):
        scan(made)
