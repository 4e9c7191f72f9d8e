"""One way of tampering with a results directory a test; `audit` must name it, and name it as what it is."""

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairtrial.errors import IntegrityError
from fairtrial.store.attempts import OUTCOME_SCHEMA, describe_artifacts, write_intent, write_outcome
from fairtrial.store.audit import AuditReport, audit
from fairtrial.store.chain import MAX_LINE_BYTES, EncodedRow, encode_row, render_lines
from fairtrial.store.file_proof import prove_files
from fairtrial.store.journal import Journal
from fairtrial.store.layout import Results, create_results
from fairtrial.store.problems import ProblemKind
from fairtrial.store.proof import Proof, join
from fairtrial.store.row_proof import prove_rows
from fairtrial.store.rows import read_rows
from fairtrial.store.seal import write_seal
from fairtrial.store.sweep_file import read_sweep, write_sweep

N_TRIALS = 5
N_ROWS = 4
SWEEP = "loop-20261129T130100Z-aaaaaa"
NOW = datetime(2026, 11, 29, 13, 1, tzinfo=UTC)


def key_of(trial: int) -> str:
    return f"loop/task_loop/git/file/{trial}"


def is_void(final: Mapping[str, object]) -> bool:
    return final.get("error_kind") == "interrupted"


def record_attempt(results: Results, journal: Journal, trial: int, attempt: int = 1, **extra: object) -> None:
    identity = {"sweep": SWEEP, "key": key_of(trial), "attempt": attempt}
    directory = write_intent(results, {"schema": "intent/1", **identity, "begun_utc": "2026-11-29T13:01:00Z"})
    (directory / "transcript.txt").write_text(f"said in {trial}/{attempt}\n")
    (directory / "wire").mkdir()
    (directory / "wire" / "log.jsonl").write_text("{}\n")
    rows = [
        {
            "schema": "loop-row/1",
            "operation": f"step{number}",
            "elapsed_ms": number + 0.25,
            "note": f"{trial}é",
            **extra,
        }
        for number in range(N_ROWS)
    ]
    ending = {"artifacts": describe_artifacts(directory), "rows": rows, "ended_utc": "2026-11-29T13:02:00Z"}
    write_outcome(results, {"schema": OUTCOME_SCHEMA, **identity, **ending})
    journal.append(rows, key=key_of(trial), attempt=attempt, plan_index=trial)


@pytest.fixture
def unsealed(tmp_path: Path) -> Results:
    results = create_results(tmp_path / "results", lane="loop", now=NOW, base=tmp_path)
    plan = [{"plan_index": trial, "key": key_of(trial)} for trial in range(N_TRIALS)]
    sweep = write_sweep(results, {"schema": "sweep/1", "sweep": SWEEP, "lane": "loop", "plan": plan})
    with Journal.open(results, sweep) as journal:
        for trial in range(N_TRIALS):
            record_attempt(results, journal, trial)
    return results


@pytest.fixture
def sealed(unsealed: Results) -> Results:
    unsealed.report_md.write_text("# Report\n")
    unsealed.set_aside.mkdir()
    (unsealed.set_aside / "results-0.tail").write_bytes(b'{"torn')
    seal(unsealed)
    return unsealed


def seal(results: Results) -> str:
    with Journal.open(results, read_sweep(results)) as journal:
        return write_seal(results, journal)


def lines_of(results: Results) -> list[bytes]:
    return results.results_jsonl.read_bytes().splitlines(keepends=True)


def check(results: Results, expect: str | None = None) -> AuditReport:
    """Audit; what two processes would prove together must be exactly what one process finds nothing wrong with."""
    report = audit(results, is_void=is_void, final_members=("error_kind",), expect=expect)
    if report.n_rows is not None:
        assert (prove(results, expect) is not None) == (report.sealed and not report.counts)
    return report


def prove(results: Results, expect: str | None) -> Proof | None:
    """Prove both halves, one after the other."""
    sweep = read_sweep(results)
    rows = prove_rows(results, sweep, is_void=is_void, final_members=("error_kind",))
    return None if rows is None else join(sweep, rows, prove_files(results, sweep), expect=expect)


def found(results: Results, expect: str | None = None) -> list[tuple[str, str]]:
    return sorted((problem.kind.value, problem.where) for problem in check(results, expect).problems)


def directory_of(trial: int, attempt: int = 1) -> str:
    name = hashlib.sha256(key_of(trial).encode()).hexdigest()[:16]
    return f"trials/{name}/{attempt}"


def test_an_untouched_directory_is_intact_and_complete_sealed_or_not(unsealed: Results) -> None:
    before = check(unsealed)
    digest = seal(unsealed)
    after = check(unsealed, digest)
    assert (before.is_intact, before.is_complete, before.sealed, before.seal_digest) == (True, True, False, None)
    assert (after.is_intact, after.is_complete, after.sealed, after.seal_digest) == (True, True, True, digest)
    assert (after.n_rows, after.n_attempts, after.n_planned) == (N_TRIALS * N_ROWS, N_TRIALS, N_TRIALS)
    assert (after.n_with_rows, after.n_counting, after.missing, after.problems) == (N_TRIALS, N_TRIALS, (), ())


@pytest.mark.parametrize("line", [0, 1, 3, 4, 9, N_TRIALS * N_ROWS - 1])
@pytest.mark.parametrize(
    "needle", [b"step", b'"prev":"', b'"seq":', b'"attempt":', b'"plan_index":', b'"final":', b'{"']
)
@pytest.mark.parametrize("state", ["sealed", "unsealed"])
def test_one_flipped_byte_in_a_row_names_that_row_alone(
    request: pytest.FixtureRequest, state: str, line: int, needle: bytes
) -> None:
    results: Results = request.getfixturevalue(state)
    lines = lines_of(results)
    at = lines[line].index(needle) + len(needle)
    lines[line] = lines[line][:at] + bytes([lines[line][at] ^ 1]) + lines[line][at + 1 :]
    results.results_jsonl.write_bytes(b"".join(lines))
    report = check(results)
    assert not report.is_intact
    if state == "sealed" or line < N_TRIALS * N_ROWS - 1:
        assert found(results) == [("row-changed", f"results.jsonl:{line + 1}")]


def test_the_last_row_of_an_unsealed_directory_is_still_held_against_its_outcome(unsealed: Results) -> None:
    lines = lines_of(unsealed)
    lines[-1] = lines[-1].replace(b"step3", b"step9")
    unsealed.results_jsonl.write_bytes(b"".join(lines))
    assert found(unsealed) == [("outcome-differs", f"{directory_of(N_TRIALS - 1)}/outcome.json")]


@pytest.mark.parametrize("state", ["sealed", "unsealed"])
@pytest.mark.parametrize("line", [0, 2, 7, 8])
def test_a_dropped_row_is_named_by_the_place_where_it_is_missing(
    request: pytest.FixtureRequest, state: str, line: int
) -> None:
    results: Results = request.getfixturevalue(state)
    lines = lines_of(results)
    del lines[line]
    results.results_jsonl.write_bytes(b"".join(lines))
    report = check(results)
    assert found(results) == [("row-dropped", f"results.jsonl:{line + 1}")]
    assert f"row {line} (seq)" in report.problems[0].what


def test_dropping_the_last_rows_is_seen_against_the_seal(sealed: Results) -> None:
    sealed.results_jsonl.write_bytes(b"".join(lines_of(sealed)[:-2]))
    assert found(sealed) == [("row-dropped", f"results.jsonl:{N_TRIALS * N_ROWS - 1}")]


def test_dropping_a_whole_attempt_leaves_its_outcome_as_a_witness(unsealed: Results) -> None:
    unsealed.results_jsonl.write_bytes(b"".join(lines_of(unsealed)[:-N_ROWS]))
    last = N_TRIALS - 1
    assert found(unsealed) == [
        ("outcome-without-rows", directory_of(last)),
        ("trial-without-rows", "results.jsonl"),
    ]
    assert check(unsealed).missing == (key_of(last),)


def test_dropping_the_whole_journal_is_seen_against_the_seal(sealed: Results) -> None:
    sealed.results_jsonl.unlink()
    assert ("row-dropped", "results.jsonl") in found(sealed)


@pytest.mark.parametrize("state", ["sealed", "unsealed"])
@pytest.mark.parametrize(("line", "to"), [(2, 3), (0, 1), (5, 12), (19, 20), (12, 3)])
def test_a_duplicated_row_is_named_as_a_copy(request: pytest.FixtureRequest, state: str, line: int, to: int) -> None:
    results: Results = request.getfixturevalue(state)
    lines = lines_of(results)
    lines.insert(to, lines[line])
    results.results_jsonl.write_bytes(b"".join(lines))
    assert found(results) == [("row-duplicated", f"results.jsonl:{to + 1}")]


@pytest.mark.parametrize("state", ["sealed", "unsealed"])
@pytest.mark.parametrize("line", [0, 2, 3, 10])
def test_two_swapped_rows_are_named_as_moved(request: pytest.FixtureRequest, state: str, line: int) -> None:
    results: Results = request.getfixturevalue(state)
    lines = lines_of(results)
    lines[line], lines[line + 1] = lines[line + 1], lines[line]
    results.results_jsonl.write_bytes(b"".join(lines))
    ((kind, where),) = found(results)
    assert kind == "row-reordered"
    assert where in {f"results.jsonl:{line + 1}", f"results.jsonl:{line + 2}"}


def test_a_row_moved_far_away_is_the_only_one_named(sealed: Results) -> None:
    lines = lines_of(sealed)
    lines.append(lines.pop(1))
    sealed.results_jsonl.write_bytes(b"".join(lines))
    assert found(sealed) == [("row-reordered", f"results.jsonl:{N_TRIALS * N_ROWS}")]


@pytest.mark.parametrize("state", ["sealed", "unsealed"])
@pytest.mark.parametrize("at", [0, 6, N_TRIALS * N_ROWS])
def test_a_row_of_another_sweep_is_named_as_foreign(request: pytest.FixtureRequest, state: str, at: int) -> None:
    results: Results = request.getfixturevalue(state)
    lines = lines_of(results)
    lines.insert(at, lines[6].replace(SWEEP.encode(), b"loop-other"))
    results.results_jsonl.write_bytes(b"".join(lines))
    assert found(results) == [("row-foreign", f"results.jsonl:{at + 1}")]


@pytest.mark.parametrize("line", [b"garbage\n", b"\n", b"{}\n", b"\xff\xfe\n", b'{"a":' + b"[" * 5000 + b"\n"])
@pytest.mark.parametrize("at", [0, 6, N_TRIALS * N_ROWS])
def test_an_added_line_that_is_no_row_is_named_as_added(sealed: Results, line: bytes, at: int) -> None:
    lines = lines_of(sealed)
    lines.insert(at, line)
    sealed.results_jsonl.write_bytes(b"".join(lines))
    assert found(sealed) == [("row-added", f"results.jsonl:{at + 1}")]


def test_a_forged_row_appended_with_a_right_link_is_named_as_added(sealed: Results) -> None:
    head = hashlib.sha256(lines_of(sealed)[-1]).hexdigest()
    forged = [encode_row({"schema": "loop-row/1", "operation": "forged"})]
    more, _ = render_lines(
        forged, sweep=SWEEP, key=key_of(0), attempt=2, plan_index=0, seq=N_TRIALS * N_ROWS, prev=head
    )
    with sealed.results_jsonl.open("ab") as file:
        file.write(more)
    assert found(sealed) == [("row-added", f"results.jsonl:{N_TRIALS * N_ROWS + 1}")]


def test_a_forged_row_in_an_unsealed_directory_has_no_outcome(unsealed: Results) -> None:
    head = hashlib.sha256(lines_of(unsealed)[-1]).hexdigest()
    forged = [encode_row({"schema": "loop-row/1", "operation": "forged"})]
    more, _ = render_lines(
        forged, sweep=SWEEP, key=key_of(0), attempt=2, plan_index=0, seq=N_TRIALS * N_ROWS, prev=head
    )
    with unsealed.results_jsonl.open("ab") as file:
        file.write(more)
    assert found(unsealed) == [
        ("outcome-missing", f"{directory_of(0, 2)}/outcome.json"),
        ("second-counting-attempt", f"results.jsonl:{N_TRIALS * N_ROWS + 1}"),
    ]


def forge_attempt(results: Results, **members: object) -> None:
    """Append one row with a right link and whatever identity."""
    identity = {"sweep": SWEEP, "key": key_of(0), "attempt": 2, "plan_index": 0} | members
    lines, _ = render_lines(
        [encode_row({"schema": "loop-row/1", "error_kind": "interrupted"})],
        **identity,  # type: ignore[arg-type]
        seq=N_TRIALS * N_ROWS,
        prev=hashlib.sha256(lines_of(results)[-1]).hexdigest(),
    )
    with results.results_jsonl.open("ab") as file:
        file.write(lines)


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ({"key": "loop/unknown"}, "row-unplanned"),
        ({"plan_index": 3}, "row-unplanned"),
        ({"plan_index": -1}, "row-unplanned"),
        ({"plan_index": 10**30}, "row-unplanned"),
        ({"attempt": -1}, "row-unplanned"),
        ({"attempt": 10**300}, "row-unplanned"),
        ({"attempt": 1}, "attempt-repeated"),
    ],
)
def test_a_row_of_no_planned_trial_or_of_an_attempt_that_had_its_rows_is_named(
    unsealed: Results, members: dict[str, object], kind: str
) -> None:
    forge_attempt(unsealed, **members)
    assert found(unsealed) == [(kind, f"results.jsonl:{N_TRIALS * N_ROWS + 1}")]


def test_a_void_row_without_outcome_is_no_problem(unsealed: Results) -> None:
    forge_attempt(unsealed)
    assert found(unsealed) == []


def test_a_row_of_an_unknown_schema_is_named(unsealed: Results) -> None:
    with Journal.open(unsealed, read_sweep(unsealed)) as journal:
        row = {"schema": "loop-row/99", "error_kind": "interrupted"}
        journal.append([row], key=key_of(1), attempt=2, plan_index=1)
    assert found(unsealed) == [("row-schema-unknown", f"results.jsonl:{N_TRIALS * N_ROWS + 1}")]


def test_the_second_counting_attempt_of_a_trial_is_named(unsealed: Results) -> None:
    with Journal.open(unsealed, read_sweep(unsealed)) as journal:
        record_attempt(unsealed, journal, 2, attempt=2, error_kind="interrupted")
        record_attempt(unsealed, journal, 3, attempt=2)
    assert found(unsealed) == [("second-counting-attempt", f"results.jsonl:{(N_TRIALS + 2) * N_ROWS}")]


def test_an_edited_artifact_is_named_sealed_or_not(sealed: Results) -> None:
    path = f"{directory_of(1)}/wire/log.jsonl"
    (sealed.root / path).write_text("[]\n")
    assert found(sealed) == [("artifact-changed", path)]
    sealed.seal_json.unlink()
    assert found(sealed) == [("artifact-changed", path)]


def test_a_removed_artifact_is_named_sealed_or_not(sealed: Results) -> None:
    path = f"{directory_of(1)}/transcript.txt"
    (sealed.root / path).unlink()
    assert found(sealed) == [("artifact-removed", path)]
    sealed.seal_json.unlink()
    assert found(sealed) == [("artifact-removed", path)]


def test_an_added_artifact_is_named_sealed_or_not(sealed: Results) -> None:
    path = f"{directory_of(1)}/wire/more.jsonl"
    (sealed.root / path).write_text("{}\n")
    assert found(sealed) == [("artifact-added", path)]
    sealed.seal_json.unlink()
    assert found(sealed) == [("artifact-added", path)]


@pytest.mark.parametrize("name", ["report.md", "set-aside/results-0.tail"])
def test_files_beside_the_trials_are_sealed_too(sealed: Results, name: str) -> None:
    (sealed.root / name).write_text("other\n")
    assert found(sealed) == [("artifact-changed", name)]
    (sealed.root / name).unlink()
    assert found(sealed) == [("artifact-removed", name)]


def test_a_file_added_beside_the_trials_is_named_once_it_is_sealed(sealed: Results) -> None:
    (sealed.root / "notes.txt").write_text("hello\n")
    assert found(sealed) == [("artifact-added", "notes.txt")]


def test_an_edited_intent_is_seen_against_the_seal(sealed: Results) -> None:
    path = f"{directory_of(1)}/intent.json"
    (sealed.root / path).write_text("{}\n")
    assert found(sealed) == [("artifact-changed", path)]


def test_a_removed_intent_is_seen_without_a_seal(unsealed: Results) -> None:
    path = f"{directory_of(1)}/intent.json"
    (unsealed.root / path).unlink()
    assert found(unsealed) == [("artifact-removed", path)]


@pytest.mark.parametrize("state", ["sealed", "unsealed"])
def test_an_edited_outcome_is_named_and_its_rows_are_not_believed(request: pytest.FixtureRequest, state: str) -> None:
    results: Results = request.getfixturevalue(state)
    path = f"{directory_of(2)}/outcome.json"
    file = results.root / path
    file.write_bytes(file.read_bytes().replace(b"step1", b"step7"))
    kind = "artifact-changed" if state == "sealed" else "outcome-differs"
    assert found(results) == [(kind, path)]


def test_an_outcome_with_one_row_more_differs(unsealed: Results) -> None:
    path = f"{directory_of(2)}/outcome.json"
    file = unsealed.root / path
    file.write_bytes(file.read_bytes().replace(b"}\n]}\n", b'},\n{"schema":"loop-row/1"}\n]}\n'))
    assert found(unsealed) == [("outcome-differs", path)]


def test_an_outcome_written_in_other_bytes_but_with_the_same_values_is_the_same(unsealed: Results) -> None:
    file = unsealed.root / directory_of(2) / "outcome.json"
    document = json.loads(file.read_bytes())
    file.write_text(json.dumps({"rows": document.pop("rows"), **document}, indent=2))
    assert found(unsealed) == []


@pytest.mark.parametrize("keep", [0, 1, 40, 300])
def test_a_truncated_outcome_is_named_b40(unsealed: Results, keep: int) -> None:
    path = f"{directory_of(2)}/outcome.json"
    file = unsealed.root / path
    file.write_bytes(file.read_bytes()[:keep])
    assert found(unsealed) == [("outcome-unreadable", path)]


def test_the_outcome_of_another_attempt_in_its_place_is_not_believed(unsealed: Results) -> None:
    path = f"{directory_of(2)}/outcome.json"
    shutil.copyfile(unsealed.root / directory_of(3) / "outcome.json", unsealed.root / path)
    assert found(unsealed) == [("outcome-unreadable", path)]


def test_a_removed_outcome_is_named_sealed_or_not(sealed: Results) -> None:
    path = f"{directory_of(2)}/outcome.json"
    (sealed.root / path).unlink()
    assert found(sealed) == [("artifact-removed", path)]
    sealed.seal_json.unlink()
    assert found(sealed) == [("outcome-missing", path)]


def test_a_removed_attempt_is_named_file_by_file(sealed: Results) -> None:
    shutil.rmtree(sealed.root / directory_of(2))
    names = ("intent.json", "outcome.json", "transcript.txt", "wire/log.jsonl")
    assert found(sealed) == [("artifact-removed", f"{directory_of(2)}/{name}") for name in names]
    sealed.seal_json.unlink()
    assert found(sealed) == [("outcome-missing", f"{directory_of(2)}/outcome.json")]


@pytest.mark.parametrize(
    "name",
    [
        "trials/file",
        "trials/0123456789abcdef/1/outcome.json",
        f"{directory_of(0)[:-1]}01/x",
        f"{directory_of(0)}.bak/x",
    ],
)
@pytest.mark.parametrize("state", ["sealed", "unsealed"])
def test_foreign_names_among_the_trials_are_named(request: pytest.FixtureRequest, state: str, name: str) -> None:
    results: Results = request.getfixturevalue(state)
    path = results.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    ((kind, where),) = found(results)
    assert kind == "foreign-file"
    assert name.startswith(where)


def make_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def make_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path ends at 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize("make", [make_link, make_dangling_link, os.mkfifo, make_socket])
@pytest.mark.parametrize("name", ["wire/log.jsonl", "outcome.json", "transcript.txt"])
@pytest.mark.parametrize("state", ["sealed", "unsealed"])
def test_an_artifact_that_is_a_link_or_special_file_is_never_followed(
    request: pytest.FixtureRequest, state: str, name: str, make: Callable[[Path], None]
) -> None:
    results: Results = request.getfixturevalue(state)
    path = results.root / directory_of(1) / name
    path.unlink()
    make(path)
    problems = found(results)
    assert ("not-a-file", f"{directory_of(1)}/{name}") in problems
    assert {where for _, where in problems} == {f"{directory_of(1)}/{name}"}


@pytest.mark.parametrize("name", [directory_of(1), directory_of(1)[:-2], f"{directory_of(1)}/wire"])
@pytest.mark.parametrize("state", ["sealed", "unsealed"])
def test_a_directory_behind_a_symbolic_link_is_never_entered(
    request: pytest.FixtureRequest, state: str, name: str, tmp_path: Path
) -> None:
    results: Results = request.getfixturevalue(state)
    (results.root / name).rename(tmp_path / "elsewhere")
    (results.root / name).symlink_to(tmp_path / "elsewhere")
    problems = found(results)
    assert ("not-a-file", name) in problems
    assert all(where.startswith(name) for _, where in problems)


@pytest.mark.parametrize("name", ["results.jsonl", "sweep.json", "seal.json", "reserve", "report.md", "set-aside"])
def test_a_link_in_the_root_is_never_followed(sealed: Results, name: str, tmp_path: Path) -> None:
    if (sealed.root / name).exists():
        (sealed.root / name).rename(tmp_path / "elsewhere")
    (sealed.root / name).symlink_to(tmp_path / "elsewhere")
    assert {name, "sweep.json"} & {where for _, where in found(sealed)}
    assert not check(sealed).is_intact


@pytest.mark.parametrize("keep", [0, 1, 30, 100])
def test_a_truncated_sweep_file_is_named_and_nothing_derived_from_it(sealed: Results, keep: int) -> None:
    sealed.sweep_json.write_bytes(sealed.sweep_json.read_bytes()[:keep])
    assert found(sealed) == [("sweep-unreadable", "sweep.json")]
    report = check(sealed)
    assert (report.sweep, report.n_rows, report.n_planned, report.is_complete) == (None, None, None, False)


def test_a_missing_sweep_file_is_named(sealed: Results) -> None:
    sealed.sweep_json.unlink()
    assert found(sealed) == [("sweep-unreadable", "sweep.json")]


@pytest.mark.parametrize("state", ["sealed", "unsealed"])
def test_an_edited_sweep_file_is_named(request: pytest.FixtureRequest, state: str) -> None:
    results: Results = request.getfixturevalue(state)
    results.sweep_json.write_bytes(results.sweep_json.read_bytes().replace(b'"lane":"loop"', b'"lane":"pool"'))
    assert found(results) == [("sweep-changed", "sweep.json")]


def test_a_planned_trial_taken_out_of_the_plan_is_named(sealed: Results) -> None:
    document = json.loads(sealed.sweep_json.read_bytes())
    document["plan"].pop()
    sealed.sweep_json.write_text(json.dumps(document))
    kinds = {kind for kind, _ in found(sealed)}
    assert {"sweep-changed", "row-unplanned"} <= kinds


def test_an_edited_sweep_file_is_named_even_without_a_row(tmp_path: Path) -> None:
    results = create_results(tmp_path / "results", lane="loop", now=NOW, base=tmp_path)
    write_sweep(results, {"schema": "sweep/1", "sweep": SWEEP, "lane": "loop", "plan": []})
    seal(results)
    results.sweep_json.write_bytes(results.sweep_json.read_bytes().replace(b'"lane":"loop"', b'"lane":"pool"'))
    assert found(results) == [("sweep-changed", "sweep.json")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"chain_head":"', b'"chain_head":"0'),
        (b'"n_rows":20', b'"n_rows":21'),
        (b'"n_rows":20', b'"n_rows":19'),
        (b'"sweep_json":"', b'"sweep_json":"0'),
        (SWEEP.encode(), b"loop-other"),
    ],
)
def test_an_edited_seal_is_named_as_such_or_fails_what_it_seals(sealed: Results, old: bytes, new: bytes) -> None:
    data = sealed.seal_json.read_bytes()
    assert old in data
    sealed.seal_json.write_bytes(data.replace(old, new, 1))
    assert not check(sealed).is_intact


def test_an_edited_head_or_artifact_in_the_seal_is_told_from_an_edited_file(sealed: Results) -> None:
    data = sealed.seal_json.read_bytes()
    document = json.loads(data)
    document["chain_head"] = "0" * 64
    sealed.seal_json.write_text(json.dumps(document))
    assert found(sealed) == [("seal-changed", "seal.json")]
    document = json.loads(data)
    document["artifacts"][f"{directory_of(1)}/transcript.txt"]["sha256"] = "0" * 64
    sealed.seal_json.write_text(json.dumps(document))
    assert found(sealed) == [("seal-changed", "seal.json")]


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"schema":"seal/2"}', b'{"schema":"seal/1"}', b"\xff"])
def test_a_broken_seal_is_named(sealed: Results, data: bytes) -> None:
    sealed.seal_json.write_bytes(data)
    assert found(sealed) == [("seal-unreadable", "seal.json")]
    assert not check(sealed).sealed


def rewrite_everything(results: Results) -> None:
    """Do what someone does who has read our source: other rows, with new outcomes, a new chain and a new seal."""
    sweep = read_sweep(results)
    results.results_jsonl.unlink()
    results.seal_json.unlink()
    with Journal.open(results, sweep) as journal:
        for trial in range(N_TRIALS):
            file = results.root / directory_of(trial) / "outcome.json"
            file.write_bytes(file.read_bytes().replace(b'"elapsed_ms":1.25', b'"elapsed_ms":0.25'))
            rows = json.loads(file.read_bytes())["rows"]
            journal.append(rows, key=key_of(trial), attempt=1, plan_index=trial)
    seal(results)


def test_only_a_digest_kept_elsewhere_finds_that_the_whole_chain_was_rewritten(sealed: Results) -> None:
    digest = check(sealed).seal_digest
    rewrite_everything(sealed)
    assert found(sealed) == []
    assert found(sealed, digest) == [("seal-changed", "seal.json")]


def test_a_seal_that_is_expected_and_gone_is_named(sealed: Results) -> None:
    digest = check(sealed).seal_digest
    assert found(sealed, digest) == []
    assert found(sealed, digest.upper() if digest else None) == []
    sealed.seal_json.unlink()
    assert found(sealed, digest) == [("seal-missing", "seal.json")]


def test_a_huge_line_is_refused_without_being_read_whole(sealed: Results) -> None:
    with sealed.results_jsonl.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.truncate(file.tell() + 3 * 2**30)  # sparse: three gigabytes of zeros that cost nothing
    with pytest.raises(IntegrityError, match=r"results\.jsonl:21: the line is longer than"):
        list(read_rows(sealed.results_jsonl, sweep_id=SWEEP))


@pytest.mark.parametrize("depth", [201, 5_000, 200_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_an_integrity_error_and_no_crash(tmp_path: Path, depth: int, opening: str) -> None:
    closing = "]" if opening == "[" else "1}"
    path = tmp_path / "rows.jsonl"
    path.write_text('{"x":' + opening * depth + closing + "\n")
    with pytest.raises(IntegrityError, match=r"rows\.jsonl:1: "):
        list(read_rows(path))


def test_many_changed_rows_are_counted_and_only_a_thousand_kept(tmp_path: Path) -> None:
    results = create_results(tmp_path / "results", lane="loop", now=NOW, base=tmp_path)
    plan = [{"plan_index": 0, "key": key_of(0)}]
    sweep = write_sweep(results, {"schema": "sweep/1", "sweep": SWEEP, "lane": "loop", "plan": plan})
    rows = [{"schema": "loop-row/1", "number": number} for number in range(3000)]
    with Journal.open(results, sweep) as journal:
        journal.append(rows, key=key_of(0), attempt=1, plan_index=0)
    lines = lines_of(results)
    for number in range(0, 3000, 2):
        lines[number] = lines[number].replace(b'"number":', b'"lumber":')
    results.results_jsonl.write_bytes(b"".join(lines))
    report = check(results)
    assert report.counts[ProblemKind.ROW_CHANGED] == 1500
    assert len(report.problems) == 1000


def test_names_that_a_terminal_would_act_upon_are_escaped(sealed: Results) -> None:
    (sealed.root / directory_of(1) / "\x1b[2Jé\n").write_text("x")
    (problem,) = check(sealed).problems
    assert problem.as_line().isprintable()
    assert "\\x1b" in problem.where


def test_a_name_that_is_not_utf_8_is_named_and_cannot_be_sealed(sealed: Results) -> None:
    (Path(os.fsdecode(os.fsencode(sealed.root) + b"/\xff"))).write_text("x")
    (problem,) = check(sealed).problems
    assert (problem.kind, problem.as_line().isascii()) == (ProblemKind.ARTIFACT_ADDED, True)
    with pytest.raises(IntegrityError, match="not UTF-8"):
        seal(sealed)


def test_no_flipped_bit_of_a_sealed_journal_goes_unseen(tmp_path: Path) -> None:
    results = create_results(tmp_path / "results", lane="loop", now=NOW, base=tmp_path)
    plan = [{"plan_index": trial, "key": key_of(trial)} for trial in range(2)]
    sweep = write_sweep(results, {"schema": "sweep/1", "sweep": SWEEP, "lane": "loop", "plan": plan})
    with Journal.open(results, sweep) as journal:
        for trial in range(2):
            rows = [{"schema": "loop-row/1", "error_kind": "interrupted", "n": n} for n in range(2)]
            journal.append(rows, key=key_of(trial), attempt=1, plan_index=trial)
        write_seal(results, journal)
    data = results.results_jsonl.read_bytes()
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << (at % 8)
        results.results_jsonl.write_bytes(flipped)
        report = check(results)
        assert not report.is_intact, f"bit {at % 8} of byte {at}"
        line = data.count(b"\n", 0, at) + 1
        assert {problem.where for problem in report.problems} >= {f"results.jsonl:{line}"}, f"byte {at}"


@pytest.mark.parametrize("state", ["sealed", "unsealed"])
def test_trials_behind_a_symbolic_link_are_never_entered(
    request: pytest.FixtureRequest, state: str, tmp_path: Path
) -> None:
    results: Results = request.getfixturevalue(state)
    results.trials.rename(tmp_path / "elsewhere")
    results.trials.symlink_to(tmp_path / "elsewhere")
    problems = found(results)
    assert ("not-a-file", "trials") in problems
    assert {kind for kind, _ in problems} <= {"not-a-file", "outcome-missing"}


def test_a_row_as_long_as_a_line_may_be_is_compared_and_no_crash(unsealed: Results) -> None:
    head = hashlib.sha256(lines_of(unsealed)[-1]).hexdigest()
    row = EncodedRow(b'{"schema":"loop-row/1"', b',"text":"' + b"x" * (MAX_LINE_BYTES - 300) + b'"}')
    more, _ = render_lines([row], sweep=SWEEP, key=key_of(0), attempt=2, plan_index=0, seq=N_TRIALS * N_ROWS, prev=head)
    with unsealed.results_jsonl.open("ab") as file:
        file.write(more)
    directory = unsealed.root / directory_of(0, 2)
    shutil.copytree(unsealed.root / directory_of(0), directory)
    (directory / "outcome.json").write_bytes(
        (directory / "outcome.json").read_bytes().replace(b'"attempt":1', b'"attempt":2')
    )
    kinds = [kind for kind, _ in found(unsealed)]
    assert kinds == ["outcome-differs", "second-counting-attempt"]
