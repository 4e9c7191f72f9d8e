import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.unit.store.conftest import Made

from fairtrial.errors import HostError
from fairtrial.host.files import remove_tree
from fairtrial.store.audit import AuditReport, audit
from fairtrial.store.chain import encode_row, render_lines
from fairtrial.store.journal import Journal
from fairtrial.store.problems import ProblemKind as K
from fairtrial.store.problems import Problems


def is_void(final: Mapping[str, object]) -> bool:
    return final.get("kind") == "interrupted"


def check(made: Made) -> AuditReport:
    return audit(made.results, is_void=is_void, final_members=("kind",))


def kinds(report: AuditReport) -> list[str]:
    return [problem.kind for problem in report.problems]


def test_a_sweep_before_its_first_row_is_intact_and_lacks_everything(made: Made) -> None:
    report = check(made)
    assert (report.is_intact, report.is_complete) == (True, False)
    assert (report.n_rows, report.n_attempts, report.n_planned, report.n_with_rows, report.n_counting) == (
        0,
        0,
        4,
        0,
        0,
    )
    assert report.missing == made.sweep.plan_keys
    assert report.counts == {K.TRIAL_WITHOUT_ROWS: 4}


def test_a_killed_sweep_is_intact_and_says_what_is_unfinished(made: Made) -> None:
    made.record(0)
    made.begin(1)
    made.begin(2)
    made.end(2)
    with made.results.results_jsonl.open("ab") as file:
        file.write(b'{"schema":"loop-row/1","swe')
    report = check(made)
    assert (report.is_intact, report.is_complete, report.n_rows) == (True, False, 3)
    assert sorted(kinds(report)) == [
        "attempt-interrupted",
        "outcome-without-rows",
        "torn-tail",
        "trial-without-rows",
        "trial-without-rows",
        "trial-without-rows",
    ]
    with Journal.open(made.results, made.sweep):
        assert K.TORN_TAIL not in check(made).counts


def test_rows_without_the_last_one_of_their_attempt_are_an_incomplete_attempt(made: Made) -> None:
    made.record(0, 1)
    lines = made.results.results_jsonl.read_bytes().splitlines(keepends=True)
    made.results.results_jsonl.write_bytes(b"".join(lines[:5]))
    report = check(made)
    (problem,) = [each for each in report.problems if each.kind is K.ATTEMPT_INCOMPLETE]
    assert problem.where == "results.jsonl:4-5"
    assert not report.is_intact


def test_void_attempts_have_rows_and_do_not_count(made: Made) -> None:
    made.record(0)
    with Journal.open(made.results, made.sweep) as journal:
        for trial, attempt, kind in (
            (1, 1, "interrupted"),
            (1, 2, "interrupted"),
            (2, 1, "interrupted"),
            (2, 2, "done"),
        ):
            made.begin(trial, attempt)
            rows = made.rows(trial, 1, kind=kind)
            if attempt == 2:
                made.end(trial, attempt, rows)
            journal.append(rows, key=made.key(trial), attempt=attempt, plan_index=trial)
    report = check(made)
    assert (report.n_attempts, report.n_with_rows, report.n_counting) == (5, 3, 2)
    assert (report.missing, report.is_intact, report.is_complete) == ((made.key(3),), True, False)


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_void_attempt_that_was_killed_before_its_intent_is_no_problem(made: Made, is_sealed: bool) -> None:
    rows = made.rows(0, 1, kind="interrupted")
    (made.begin(0) / "intent.json").unlink()
    made.end(0, rows=rows)
    with Journal.open(made.results, made.sweep) as journal:
        journal.append(rows, key=made.key(0), attempt=1, plan_index=0)
    if is_sealed:
        made.seal()
    assert kinds(check(made)) == ["trial-without-rows"] * 3


def test_an_audit_changes_nothing(made: Made) -> None:
    made.record(0, 1)
    made.seal()
    lines = made.results.results_jsonl.read_bytes().splitlines(keepends=True)
    made.results.results_jsonl.write_bytes(b"".join(lines[1:]) + b"{")
    before = {path: path.stat().st_mtime_ns for path in made.results.root.rglob("*")}
    assert not check(made).is_intact
    assert {path: path.stat().st_mtime_ns for path in made.results.root.rglob("*")} == before


def test_a_torn_tail_behind_other_damage_is_still_a_torn_tail(made: Made) -> None:
    made.record(0, 1)
    lines = made.results.results_jsonl.read_bytes().splitlines(keepends=True)
    made.results.results_jsonl.write_bytes(b"".join([*lines[:2], *lines[3:]]) + b"{")
    report = check(made)
    assert report.counts[K.TORN_TAIL] == 1
    assert report.counts[K.ROW_DROPPED] == 1
    assert report.n_rows == 5


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_changed_only_row_of_an_attempt_still_belongs_to_it(made: Made, is_sealed: bool) -> None:
    with Journal.open(made.results, made.sweep) as journal:
        for trial in range(4):
            made.begin(trial)
            made.end(trial, rows=made.rows(trial, 1))
            journal.append(made.rows(trial, 1), key=made.key(trial), attempt=1, plan_index=trial)
    if is_sealed:
        made.seal()
    lines = made.results.results_jsonl.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"n":0', b'"n":7')
    made.results.results_jsonl.write_bytes(b"".join(lines))
    assert kinds(check(made)) == ["row-changed"]
    lines[1] = lines[1].replace(made.key(1).encode(), made.key(1).encode() + b"0")
    made.results.results_jsonl.write_bytes(b"".join(lines))
    assert set(kinds(check(made))) == {"row-changed", "outcome-without-rows", "trial-without-rows"}


def test_a_last_line_that_is_no_json_is_no_row_of_an_open_journal(made: Made) -> None:
    made.record(0)
    lines = made.results.results_jsonl.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"n":2', b'"n":}')
    made.results.results_jsonl.write_bytes(b"".join(lines))
    report = check(made)
    assert [(each.kind.value, each.where) for each in report.problems[:1]] == [("row-added", "results.jsonl:3")]
    assert not report.is_intact


@pytest.fixture
def as_somebody_else(tmp_path: Path) -> Iterator[None]:
    """Be a user who may not read everything, which root may."""
    if os.geteuid() != 0:
        yield
        return
    tmp_path.chmod(0o755)
    os.seteuid(65534)
    yield
    os.seteuid(0)


@pytest.mark.parametrize("name", ["results.jsonl", "transcript.txt", "outcome.json"])
def test_a_file_that_may_not_be_read_is_the_hosts_fault(made: Made, name: str, request: pytest.FixtureRequest) -> None:
    made.record(0)
    directory = made.results.attempt_dir(made.key(0), 1)
    (made.results.results_jsonl if name == "results.jsonl" else directory / name).chmod(0)
    request.getfixturevalue("as_somebody_else")
    with pytest.raises(HostError, match=rf"{name}: cannot be read \(Permission denied\)"):
        check(made)


def test_damage_is_explained_even_when_the_outcome_that_could_vouch_is_damaged_too(made: Made) -> None:
    made.record(0, 1)
    lines = made.results.results_jsonl.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"n":1', b'"n":7')
    lines[2] = lines[2].replace(b'"n":2', b'"n":8')
    made.results.results_jsonl.write_bytes(b"".join(lines))
    (made.results.attempt_dir(made.key(0), 1) / "outcome.json").write_text("{")
    assert kinds(check(made)) == ["row-changed", "outcome-unreadable", *["trial-without-rows"] * 2]


def test_unplanned_rows_beside_a_hole_are_still_named(made: Made) -> None:
    made.record(0)
    made.begin(1)
    made.end(1)
    with Journal.open(made.results, made.sweep) as journal:
        head = journal.head
    lines = made.results.results_jsonl.read_bytes().splitlines(keepends=True)
    for key, index in (("unplanned", 0), (made.key(1), 1)):
        rows = [encode_row(row) for row in made.rows(index)]
        more, head = render_lines(
            rows, sweep=made.sweep.sweep, key=key, attempt=1, plan_index=index, seq=len(lines), prev=head
        )
        lines += more.splitlines(keepends=True)
    del lines[5]
    made.results.results_jsonl.write_bytes(b"".join(lines))
    report = check(made)
    assert [(each.kind.value, each.where) for each in report.problems[:2]] == [
        ("row-dropped", "results.jsonl:6"),
        ("row-unplanned", "results.jsonl:4"),
    ]
    assert kinds(report)[2:] == ["trial-without-rows"] * 2


def test_a_results_directory_without_trials_lacks_its_outcomes(made: Made) -> None:
    made.record(0)
    shutil.rmtree(made.results.trials)
    assert kinds(check(made)) == ["outcome-missing", *["trial-without-rows"] * 3]


def test_a_tree_deeper_than_the_stack_and_the_longest_path_is_named_and_not_entered(made: Made) -> None:
    made.record(0)
    here = Path.cwd()
    os.chdir(made.results.attempt_dir(made.key(0), 1))
    try:
        for _ in range(1500):
            Path("ddd").mkdir()
            os.chdir("ddd")
        Path("file").touch()
    finally:
        os.chdir(here)
    try:
        assert kinds(check(made))[0] == "not-a-file"
    finally:
        remove_tree(made.results.trials)


def test_a_journal_that_is_no_file_cannot_be_audited(made: Made) -> None:
    os.mkfifo(made.results.results_jsonl)
    report = check(made)
    assert kinds(report)[0] == "not-a-file"
    assert report.n_rows is None


def test_problems_are_counted_beyond_those_that_are_kept() -> None:
    first, second = Problems(), Problems()
    for number in range(700):
        first.add(K.ROW_CHANGED, f"results.jsonl:{number}", "x")
        second.add(K.ROW_ADDED, f"results.jsonl:{number}", "x")
    first.extend(second)
    assert (len(first.kept), first.counts) == (1000, {K.ROW_CHANGED: 700, K.ROW_ADDED: 700})
    assert first.kept[0].as_line() == "results.jsonl:0: row-changed: x"


def test_a_last_row_that_is_no_json_in_its_outcome_either_is_still_no_row(made: Made) -> None:
    made.record(0)
    for path in (made.results.results_jsonl, made.results.attempt_dir(made.key(0), 1) / "outcome.json"):
        path.write_bytes(path.read_bytes().replace(b'"n":2', b'"n":}'))
    assert "row-added" in kinds(check(made))


SHARED = """
import sys
from pathlib import Path
import fairtrial.store.audit as module
from fairtrial.store.journal_audit import JournalAudit
from fairtrial.store.layout import Results

module._MIN_PROVEN_TRIALS = 0
alone = []
run = JournalAudit.run
JournalAudit.run = lambda audit: alone.append(1) or run(audit)
found = module.audit(Results(root=Path(sys.argv[1])), is_void=lambda _: False, final_members=())
print(bool(alone), found.is_intact, found.n_rows, found.n_attempts, found.n_with_rows, found.n_counting)
"""


@pytest.mark.parametrize("trial", [0, 1, 2, 3])
def test_what_two_processes_prove_is_counted_once_and_what_either_doubts_is_explained(made: Made, trial: int) -> None:
    made.record(0, 1, 2, 3)
    made.seal()
    argv = [sys.executable, "-c", SHARED, str(made.results.root)]
    is_alone = str(len(os.sched_getaffinity(0)) < 2)
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == f"{is_alone} True 12 4 4 4\n"
    (made.results.attempt_dir(made.key(trial), 1) / "transcript.txt").write_text("another")
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "True False 12 4 4 4\n"
