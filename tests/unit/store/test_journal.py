import fcntl
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.store.conftest import NOW, Made

import fairtrial.store.journal
from fairtrial.errors import HostError, IntegrityError
from fairtrial.store.adopt import adopt
from fairtrial.store.attempts import read_outcome, scan_attempts
from fairtrial.store.chain import ChainedRow, encode_row, render_lines
from fairtrial.store.journal import Journal
from fairtrial.store.layout import Results, create_results
from fairtrial.store.rows import read_rows
from fairtrial.store.sweep_file import write_sweep


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A directory where fsync costs nothing, if the machine has one."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="ft-", dir=memory) as name:
        yield Path(name)


def lines_of(made: Made) -> list[bytes]:
    return made.results.results_jsonl.read_bytes().splitlines(keepends=True)


def reopen(made: Made) -> Journal:
    with Journal.open(made.results, made.sweep) as journal:
        return journal


def test_a_new_journal_begins_at_the_sweep_file(made: Made) -> None:
    journal = reopen(made)
    assert (journal.sweep, journal.head, journal.n_rows) == (made.sweep.sweep, made.sweep.digest, 0)
    assert (journal.recorded, journal.repair) == (set(), None)
    assert made.results.results_jsonl.read_bytes() == b""


def test_what_was_appended_is_found_again(made: Made) -> None:
    made.record(2, 0)
    made.record(2, attempt=2)
    journal = reopen(made)
    assert journal.n_rows == 9
    assert journal.recorded == {(made.key(2), 1), (made.key(0), 1), (made.key(2), 2)}
    assert journal.repair is None
    rows = list(read_rows(made.results.results_jsonl, sweep_id=made.sweep.sweep))
    assert [(row["key"], row["attempt"], row["plan_index"], row["n"]) for row in rows[:4]] == [
        (made.key(2), 1, 2, 0),
        (made.key(2), 1, 2, 1),
        (made.key(2), 1, 2, 2),
        (made.key(0), 1, 0, 0),
    ]


def test_truncating_the_journal_at_every_byte_offset_loses_nothing_that_an_outcome_still_holds(
    in_memory: Path,
) -> None:
    results = create_results(in_memory / "results", lane="loop", now=NOW, base=in_memory)
    plan = [{"plan_index": index, "key": key} for index, key in enumerate("ab")]
    sweep = write_sweep(results, {"schema": "sweep/1", "sweep": "s", "lane": "loop", "plan": plan})
    made = Made(results=results, sweep=sweep)
    for trial, rows in ((1, made.rows(1, 2)), (0, made.rows(0, 1))):
        made.begin(trial)
        made.end(trial, rows=rows)
        with Journal.open(results, sweep) as journal:
            journal.append(rows, key=made.key(trial), attempt=1, plan_index=trial)
    whole = results.results_jsonl.read_bytes()
    lines = lines_of(made)
    ends = (0, len(lines[0]) + len(lines[1]), len(whole))
    for offset in range(len(whole) + 1):
        results.results_jsonl.write_bytes(whole[:offset])
        kept = max(end for end in ends if end <= offset)
        with Journal.open(results, sweep) as journal:
            assert (journal.repair is None) == (offset == kept)
            if journal.repair is not None:
                assert (journal.repair.offset, journal.repair.n_bytes) == (kept, offset - kept)
                assert journal.repair.kept.read_bytes() == whole[kept:offset]
                assert str(kept) in journal.repair.kept.name
                assert journal.repair.what
                shutil.rmtree(results.set_aside)
            assert results.results_jsonl.read_bytes() == whole[:kept]
            adoption = adopt(journal, scan_attempts(results, sweep, recorded=journal.recorded))
            assert (adoption.interrupted, adoption.problems) == ((), ())
            assert journal.recorded == {("a", 1), ("b", 1)}
        rows = list(read_rows(results.results_jsonl, sweep_id="s"))
        assert sorted((str(row["key"]), row["n"]) for row in rows) == [("a", 0), ("b", 0), ("b", 1)]
        with Journal.open(results, sweep) as journal:
            assert (journal.repair, journal.n_rows) == (None, 3)


def test_an_unparsable_last_line_and_the_rows_of_its_attempt_are_a_torn_tail(made: Made) -> None:
    made.record(0, 1)
    lines = lines_of(made)
    lines[-1] = lines[-1].replace(b'"n":', b'"n"')
    made.results.results_jsonl.write_bytes(b"".join(lines))
    journal = reopen(made)
    assert journal.repair is not None
    assert journal.repair.offset == sum(map(len, lines[:3]))
    assert "is not a JSON object" in journal.repair.what
    assert journal.recorded == {(made.key(0), 1)}


def test_a_repair_that_was_itself_interrupted_is_done_once_more(made: Made) -> None:
    made.record(0)
    whole = made.results.results_jsonl.read_bytes()
    for _ in range(2):
        made.results.results_jsonl.write_bytes(whole + b'{"torn')
        repair = reopen(made).repair
        assert repair is not None
    assert [path.name for path in made.results.set_aside.iterdir()] == [f"results-{len(whole)}.tail"]
    made.results.results_jsonl.write_bytes(whole + b'{"other')
    reopen(made)
    assert len(list(made.results.set_aside.iterdir())) == 2


@pytest.mark.parametrize(
    ("line", "old", "new", "why"),
    [
        (0, b'"n":0', b'"n"0:', "is not a JSON object"),
        (0, b'"n":0', b'"n":9', "prev is not the digest"),
        (1, b'"seq":1', b'"seq":2', "seq 2 where 1 is due"),
        (4, b'"attempt":1', b'"attempt":2', "the attempt before it has no last row"),
        (3, b'"sweep":"loop', b'"sweep":"poll', "belongs to another sweep"),
        (3, b'"plan_index":1', b'"plan_index":2', "no trial '.*/1' is planned at 2"),
        (3, b'"plan_index":1', b'"plan_index":9', "is planned at 9"),
        (5, b'"final":true', b'"final":true,"final":true', "duplicate key"),
        (2, b"}\n", b"}", "trailing characters"),
        (8, b'"prev":"', b'"prev":"f', "prev is not the digest"),
        (8, b'"schema"', b'"scheme"', "is no row of a journal"),
    ],
)
def test_damage_before_the_tail_is_named_by_its_line_and_nothing_is_changed(
    made: Made, line: int, old: bytes, new: bytes, why: str
) -> None:
    made.record(0, 1, 2)
    lines = lines_of(made)
    assert old in lines[line]
    lines[line] = lines[line].replace(old, new, 1)
    if b'"final"' in new and line == 5:
        lines.append(lines[8])
    damaged = b"".join(lines)
    made.results.results_jsonl.write_bytes(damaged)
    found_at = line + 2 if why == "prev is not the digest" and line == 0 else line + 1
    with pytest.raises(IntegrityError, match=rf"results\.jsonl:{found_at}: .*{why}.*nothing was changed.*audit"):
        reopen(made)
    assert made.results.results_jsonl.read_bytes() == damaged
    assert not made.results.set_aside.exists()


def test_rows_of_an_attempt_that_was_recorded_before_are_damage(made: Made) -> None:
    made.record(0)
    journal = reopen(made)
    again, _ = render_lines(
        [encode_row(row) for row in made.rows(0)],
        sweep=journal.sweep,
        key=made.key(0),
        attempt=1,
        plan_index=0,
        seq=3,
        prev=journal.head,
    )
    with made.results.results_jsonl.open("ab") as file:
        file.write(again)
    with pytest.raises(IntegrityError, match=r"results\.jsonl:4: attempt 1 of .* was recorded before"):
        reopen(made)


def test_a_line_longer_than_any_of_ours_is_damage(made: Made) -> None:
    made.record(0)
    os.truncate(made.results.results_jsonl, 2**31)
    with pytest.raises(IntegrityError, match=r"results\.jsonl:4: has no end"):
        reopen(made)


def test_rows_that_are_none_or_recorded_before_are_not_appended(made: Made) -> None:
    made.record(0)
    before = made.results.results_jsonl.read_bytes()
    with Journal.open(made.results, made.sweep) as journal:
        for rows, attempt, why in (
            ([], 2, "at least one row"),
            (made.rows(0), 1, "is in the journal"),
            ([{"schema": "x", "n": float("nan")}], 2, "expected value"),
            ([{"schema": "x", "seq": 1}], 2, "brings 'seq'"),
        ):
            with pytest.raises(ValueError, match=why):
                journal.append(rows, key=made.key(0), attempt=attempt, plan_index=0)
    with pytest.raises(ValueError, match="closed"):
        journal.append(made.rows(0), key=made.key(0), attempt=2, plan_index=0)
    journal.close()
    assert made.results.results_jsonl.read_bytes() == before


def test_an_outcome_is_appended_as_its_rows_would_be(made: Made) -> None:
    made.begin(0)
    made.end(0)
    outcome = read_outcome(made.results, made.key(0), 1)
    assert outcome is not None
    with Journal.open(made.results, made.sweep) as journal:
        journal.append_outcome(outcome, plan_index=0)
    appended = made.results.results_jsonl.read_bytes()
    made.results.results_jsonl.unlink()
    with Journal.open(made.results, made.sweep) as journal:
        journal.append(made.rows(0), key=made.key(0), attempt=1, plan_index=0)
        with pytest.raises(ValueError, match="sweep 'other'"):
            journal.append_outcome(replace(outcome, sweep="other"), plan_index=0)
    assert made.results.results_jsonl.read_bytes() == appended


def test_somebody_elses_write_is_noticed_before_the_next(made: Made) -> None:
    with Journal.open(made.results, made.sweep) as journal:
        journal.append(made.rows(0), key=made.key(0), attempt=1, plan_index=0)
        with made.results.results_jsonl.open("ab") as file:
            file.write(b"{}\n")
        with pytest.raises(IntegrityError, match="written by somebody else"):
            journal.append(made.rows(1), key=made.key(1), attempt=1, plan_index=1)


def test_a_journal_that_is_a_link_or_no_file_is_refused(made: Made, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    made.results.results_jsonl.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match="is a symbolic link"):
        reopen(made)
    made.results.results_jsonl.unlink()
    os.mkfifo(made.results.results_jsonl)
    with pytest.raises(IntegrityError, match="is not a regular file"):
        reopen(made)


def test_a_journal_that_cannot_be_opened_is_explained(made: Made) -> None:
    made.results.results_jsonl.mkdir()
    with pytest.raises(HostError, match="Is a directory"):
        reopen(made)
    gone = Results(root=made.results.root / "gone")
    with pytest.raises(HostError, match="No such file"):
        Journal.open(gone, made.sweep)


def test_a_write_that_the_file_size_limit_cuts_short_is_taken_back(made: Made) -> None:
    with Journal.open(made.results, made.sweep) as journal:
        journal.append(made.rows(0), key=made.key(0), attempt=1, plan_index=0)
        before = made.results.results_jsonl.read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
        try:
            with pytest.raises(HostError):
                journal.append(made.rows(1), key=made.key(1), attempt=1, plan_index=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert made.results.results_jsonl.read_bytes() == before
        journal.append(made.rows(1), key=made.key(1), attempt=1, plan_index=1)
    assert reopen(made).n_rows == 6


def test_a_torn_write_that_cannot_be_taken_back_ends_the_writing_and_is_repaired_on_opening(made: Made) -> None:
    with Journal.open(made.results, made.sweep) as journal:
        journal.append(made.rows(0), key=made.key(0), attempt=1, plan_index=0)
        whole = made.results.results_jsonl.read_bytes()
        # The same content in a file that can be appended to and not be cut: the kernel's own seal refuses it.
        stubborn = os.memfd_create("journal", os.MFD_ALLOW_SEALING)
        os.write(stubborn, whole)
        fcntl.fcntl(stubborn, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        assert journal._fd is not None
        os.dup2(stubborn, journal._fd)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 100, limits[1]))
        try:
            with pytest.raises(HostError, match=r"not permitted; make it writable again, then `fairtrial resume"):
                journal.append(made.rows(1), key=made.key(1), attempt=1, plan_index=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with pytest.raises(ValueError, match="closed"):
            journal.append(made.rows(1), key=made.key(1), attempt=1, plan_index=1)
        torn = os.pread(stubborn, 10**6, 0)
        os.close(stubborn)
    assert len(torn) == len(whole) + 100
    made.results.results_jsonl.write_bytes(torn)
    repair = reopen(made).repair
    assert repair is not None
    assert (repair.offset, repair.n_bytes) == (len(whole), 100)


def test_a_tail_that_no_single_write_could_leave_is_damage(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.record(0)
    os.truncate(made.results.results_jsonl, made.results.results_jsonl.stat().st_size - 1)
    monkeypatch.setattr(fairtrial.store.journal, "_MAX_TAIL_BYTES", 100)
    with pytest.raises(IntegrityError, match=r"results\.jsonl:1: more than one attempt's rows follow"):
        reopen(made)
    assert not made.results.set_aside.exists()


def test_interrupted_attempts_are_named_and_finished_ones_adopted_in_the_order_of_the_plan(made: Made) -> None:
    for trial in (3, 2, 1, 0):
        made.begin(trial)
        if trial in {1, 3}:
            made.end(trial)
    (made.results.attempt_dir(made.key(3), 1) / "outcome.json").write_text("{")
    with Journal.open(made.results, made.sweep) as journal:
        adoption = adopt(journal, scan_attempts(made.results, made.sweep, recorded=journal.recorded))
        assert adoption.adopted == ((made.key(1), 1),)
        assert [record.key for record in adoption.interrupted] == [made.key(trial) for trial in (0, 2, 3)]
        assert len(adoption.problems) == 1
        outcome = read_outcome(made.results, made.key(1), 1)
        assert outcome is not None
        assert journal.n_rows == len(outcome.rows)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_stands_in_the_journal_is_opened_or_an_integrity_error(made: Made, data: st.DataObject) -> None:
    if not made.results.attempt_dir(made.key(0), 1).exists():
        made.record(0, 1)
        made.results.results_jsonl.rename(made.results.root / "whole")
    whole = (made.results.root / "whole").read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(at, len(whole)))
    text = whole[:at] + data.draw(st.binary(max_size=200)) + whole[end:]
    made.results.results_jsonl.write_bytes(text)
    try:
        journal = reopen(made)
    except IntegrityError as error:
        assert "results.jsonl:" in str(error)  # noqa: PT017 - both endings are right
        assert made.results.results_jsonl.read_bytes() == text
    else:
        assert text.startswith(made.results.results_jsonl.read_bytes())
        assert reopen(made).repair is None
        assert journal.recorded <= {(made.key(0), 1), (made.key(1), 1)}


def test_of_a_long_journal_only_what_nothing_vouches_for_is_parsed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.record(0, 1)
    monkeypatch.setattr(fairtrial.store.journal, "_PARSED_BYTES", 1)
    parsed: list[int] = []
    monkeypatch.setattr(ChainedRow, "parse", lambda row: parsed.append(row.line))
    assert reopen(made).n_rows == 6
    assert parsed == [6]
    with made.results.results_jsonl.open("ab") as file:
        file.write(b'{"torn')
    monkeypatch.setattr(fairtrial.store.journal, "_PARSED_BYTES", 7)
    assert reopen(made).n_rows == 6
    assert parsed == [6, 6]
