"""Negative controls of every subject: its truth check must have failed on each of them, or it proves nothing."""

import sqlite3
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from fairtrial.loop.rows import RowBuilder
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.loop.stage import Stage, open_stage
from fairtrial.loop.tasks import check_truth, summarize
from fairtrial.loop.work import perform, prepare
from fairtrial.model.loop import Motion, Place, Step, Transport
from fairtrial.protocols import Subject

NAMES = ("git", "hg", "fossil", "oak", "jj")
CELLS = [
    pytest.param("git", Transport.NATIVE, marks=pytest.mark.needs("git"), id="git-native"),
    *(
        pytest.param(name, transport, marks=pytest.mark.needs(name), id=f"{name}-{transport}")
        for name in ("hg", "fossil")
        for transport in (Transport.FILE, Transport.HTTP)
    ),
    pytest.param("oak", Transport.HTTP, marks=pytest.mark.needs("oak"), id="oak-http"),
    pytest.param("jj", Transport.FILE, marks=pytest.mark.needs("jj", "git"), id="jj-file"),
]
Tamper = Callable[[Stage, Place], None]


def run(stage: Stage, *argv: str, cwd: Path) -> None:
    done = subprocess.run(argv, env=dict(stage.environment), cwd=cwd, capture_output=True, check=False)
    assert done.returncode == 0, done


def git_elsewhere(stage: Stage, place: Place) -> None:
    run(stage, "git", "update-ref", f"refs/heads/{place.branch}", "refs/heads/main", cwd=place.store)


def git_other(stage: Stage, place: Place) -> None:
    run(stage, "git", "branch", "-m", place.branch, "other", cwd=place.store)


def git_corrupt(_stage: Stage, place: Place) -> None:
    for path in place.store.glob("objects/[0-9a-f][0-9a-f]/*"):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-3])


def hg_elsewhere(stage: Stage, place: Place) -> None:
    run(stage, "hg", "bookmark", "-q", "-f", "-r", "main", place.branch, cwd=place.store)


def hg_other(stage: Stage, place: Place) -> None:
    run(stage, "hg", "bookmark", "-q", "-r", place.branch, "other", cwd=place.store)
    run(stage, "hg", "bookmark", "-q", "-d", place.branch, cwd=place.store)


def hg_corrupt(_stage: Stage, place: Place) -> None:
    path = place.store / ".hg/store/data/task-notes.md.i"
    data = path.read_bytes()
    path.write_bytes(data[:-3] + bytes([data[-3] ^ 0xFF]) + data[-2:])


def fossil_elsewhere(stage: Stage, place: Place) -> None:
    away = place.root / "away"
    run(stage, "fossil", "open", str(place.store), place.branch, "--workdir", str(away), cwd=place.root)
    (away / "more").write_text("more\n")
    run(stage, "fossil", "addremove", cwd=away)
    run(stage, "fossil", "commit", "--no-warnings", "-m", "more", cwd=away)


def fossil_other(stage: Stage, place: Place) -> None:
    run(stage, "fossil", "amend", place.branch, "--branch", "other", "-R", str(place.store), cwd=place.root)


def fossil_corrupt(_stage: Stage, place: Place) -> None:
    with closing(sqlite3.connect(place.store)) as db:
        rid, content = db.execute("SELECT rid, content FROM blob ORDER BY rid DESC").fetchone()
        spoiled = content[:-6] + bytes([content[-6] ^ 0xFF]) + content[-5:]
        db.execute("UPDATE blob SET content = ? WHERE rid = ?", (spoiled, rid))
        db.commit()


def oak_execute(place: Place, *statements: str) -> None:
    with closing(sqlite3.connect(place.store)) as db:
        for statement in statements:
            assert db.execute(statement, {"branch": place.branch}).rowcount > 0, statement
        db.commit()


def oak_elsewhere(_stage: Stage, place: Place) -> None:
    older = "head_hash = (SELECT parent_hash FROM commits WHERE hash = head_hash)"
    oak_execute(place, f"UPDATE branch_heads SET {older} WHERE branch_name = :branch")  # noqa: S608 - no input in it


def oak_other(_stage: Stage, place: Place) -> None:
    heads = "UPDATE branch_heads SET branch_name = 'other' WHERE branch_name = :branch"
    oak_execute(place, heads, "UPDATE branches SET name = 'other' WHERE name = :branch")


def oak_corrupt(_stage: Stage, place: Place) -> None:
    oak_execute(
        place, "UPDATE chunks SET content = CAST('spoiled' AS BLOB) WHERE instr(content, '- followup of run') > 0"
    )


def nothing(_stage: Stage, _place: Place) -> None:
    """Leave the store as published."""


ELSEWHERE: Mapping[str, Tamper] = {
    "git": git_elsewhere,
    "hg": hg_elsewhere,
    "fossil": fossil_elsewhere,
    "oak": oak_elsewhere,
    "jj": git_elsewhere,
}
OTHER: Mapping[str, Tamper] = {
    "git": git_other,
    "hg": hg_other,
    "fossil": fossil_other,
    "oak": oak_other,
    "jj": git_other,
}
CORRUPT: Mapping[str, Tamper] = {
    "git": git_corrupt,
    "hg": hg_corrupt,
    "fossil": fossil_corrupt,
    "oak": oak_corrupt,
    "jj": git_corrupt,
}
UNTOUCHED: Mapping[str, Tamper] = dict.fromkeys(NAMES, nothing)


def plain(subject: type[Subject]) -> type[Subject]:
    return subject


def publishing_nothing(subject: type[Subject]) -> type[Subject]:
    """Work that was snapshot and never published: it also proves that a snapshot alone publishes nothing."""

    class PublishesNothing(subject):  # type: ignore[misc, valid-type]
        def steps(self, motion, manner, place):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            return () if motion is Motion.PUBLISH else super().steps(motion, manner, place)

    return PublishesNothing


def committing_wrong_bytes(subject: type[Subject]) -> type[Subject]:
    """The right file on the right branch, with bytes that the task did not write."""

    class CommitsWrongBytes(subject):  # type: ignore[misc, valid-type]
        def steps(self, motion, manner, place):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            steps = super().steps(motion, manner, place)
            if motion is not Motion.SNAPSHOT:
                return steps
            wrong = Step(argv=("/bin/sh", "-c", "printf x >> task-notes.md"), cwd=place.workspace, name=".wrong")
            return (wrong, *steps)

    return CommitsWrongBytes


@pytest.mark.parametrize(
    ("spoiled", "tampers", "sentence"),
    [
        (plain, UNTOUCHED, ""),
        (publishing_nothing, UNTOUCHED, ": no branch "),
        (plain, ELSEWHERE, " is at "),
        (plain, OTHER, ": no branch "),
        (committing_wrong_bytes, UNTOUCHED, "differ"),
        (plain, CORRUPT, "integrity check"),
    ],
    ids=[
        "as-published",
        "unpublished-snapshot",
        "branch-elsewhere",
        "other-branch-only",
        "wrong-bytes",
        "corrupt-store",
    ],
)
@pytest.mark.parametrize(("name", "transport"), CELLS)
def test_the_truth_check_holds_only_for_what_was_really_published(
    make_trial: Callable[..., object],
    name: str,
    transport: Transport,
    spoiled: Callable[[type[Subject]], type[Subject]],
    tampers: Mapping[str, Tamper],
    sentence: str,
) -> None:
    spec, subject = make_trial(name, transport, spoiled=spoiled)
    scenario = SCENARIOS["task_loop"]
    rows: list[dict[str, object]] = []
    builder = RowBuilder.of(spec, scenario)
    with open_stage(spec, scenario, subject) as stage:
        prepare(stage, builder, rows)
        expectations = perform(stage, builder, rows)
        tampers[name](stage, stage.places["followup"])
        checks = check_truth(stage, expectations)
        total = summarize(stage, rows, checks, {})
    assert checks["followup"].holds is (not sentence), checks
    assert any(sentence in failure for failure in checks["followup"].failures) is bool(sentence), checks
    assert total["oracle_payload_on_remote_branch"] is (not sentence)
    assert total["returncode"] == (1 if sentence else 0)
