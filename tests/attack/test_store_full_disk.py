"""A full disk may stop a sweep; it may not take anything that was recorded, nor leave the user without a word."""

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.store.adopt import adopt
from fairtrial.store.attempts import OUTCOME_SCHEMA, read_outcome, scan_attempts, write_intent, write_outcome
from fairtrial.store.audit import audit
from fairtrial.store.journal import Journal
from fairtrial.store.layout import Results, create_results
from fairtrial.store.reserve import RESERVE_BYTES, is_low, prepare_reserve
from fairtrial.store.sweep_file import SweepFile, write_sweep

pytestmark = pytest.mark.root

NOW = datetime(2026, 11, 29, 13, 1, tzinfo=UTC)
SWEEP = "loop-1"


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of its own, as large as the test's parameter says."""
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", str(mount)], check=True)
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def key_of(trial: int) -> str:
    return f"trial/{trial}"


def begin(disk: Path, n_trials: int = 8) -> tuple[Results, SweepFile]:
    results = create_results(disk / "results", lane="loop", now=NOW, base=disk)
    plan = [{"plan_index": trial, "key": key_of(trial)} for trial in range(n_trials)]
    return results, write_sweep(results, {"schema": "sweep/1", "sweep": SWEEP, "lane": "loop", "plan": plan})


def start(results: Results, trial: int) -> None:
    identity = {"sweep": SWEEP, "key": key_of(trial), "attempt": 1}
    write_intent(results, {"schema": "intent/1", **identity, "begun_utc": "2026-11-29T13:01:00Z"})


def outcome_of(trial: int, n_bytes: int) -> dict[str, object]:
    rows = [{"schema": "loop-row/1", "n": number, "text": "x" * (n_bytes // 4)} for number in range(4)]
    identity = {"sweep": SWEEP, "key": key_of(trial), "attempt": 1}
    return {"schema": OUTCOME_SCHEMA, **identity, "artifacts": {}, "ended_utc": "2026-11-29T13:02:00Z", "rows": rows}


def fill(disk: Path) -> None:
    """Write until the disk is full to the last byte."""
    fd = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        while True:
            os.write(fd, bytes(4096))
    except OSError:
        os.close(fd)


def journal_rows(results: Results) -> int:
    return results.results_jsonl.read_bytes().count(b"\n")


@pytest.mark.parametrize("disk", ["64k"], indirect=True)
def test_a_disk_without_room_for_the_reserve_is_refused_before_anything_is_spent_b41(disk: Path) -> None:
    results, _ = begin(disk)
    with pytest.raises(HostError, match=rf"bytes free and {RESERVE_BYTES} needed.*--out"):
        prepare_reserve(results)
    assert not results.reserve.exists()
    assert is_low(results.root)


@pytest.mark.parametrize("disk", ["16k"], indirect=True)
def test_a_disk_that_is_full_from_the_start_is_refused(disk: Path) -> None:
    fill(disk)
    with pytest.raises(HostError, match=r"no space left.*--out"):
        begin(disk)


@pytest.mark.parametrize("disk", ["8m"], indirect=True)
def test_the_last_rows_of_a_full_disk_are_written_in_the_reserve(disk: Path) -> None:
    results, sweep = begin(disk)
    prepare_reserve(results)
    with Journal.open(results, sweep) as journal:
        start(results, 0)
        fill(disk)
        assert is_low(results.root)
        write_outcome(results, outcome_of(0, 200_000))
        assert not results.reserve.exists()
        rows = outcome_of(0, 200_000)["rows"]
        journal.append(rows, key=key_of(0), attempt=1, plan_index=0)  # type: ignore[arg-type]
        assert journal.n_rows == journal_rows(results) == 4
    assert audit(results, is_void=lambda _: False, final_members=()).is_intact


@pytest.mark.parametrize("disk", ["8m"], indirect=True)
def test_appending_takes_the_reserve_too(disk: Path) -> None:
    results, sweep = begin(disk)
    prepare_reserve(results)
    start(results, 0)
    write_outcome(results, outcome_of(0, 400_000))
    with Journal.open(results, sweep) as journal:
        fill(disk)
        (outcome,) = [record.outcome for record in scan_attempts(results, sweep)]
        assert outcome is not None
        journal.append(outcome.rows, key=key_of(0), attempt=1, plan_index=0)
    assert not results.reserve.exists()
    assert journal_rows(results) == 4


@pytest.mark.parametrize("disk", ["8m"], indirect=True)
def test_when_the_reserve_is_spent_the_journal_is_as_before_and_the_outcome_still_holds_the_rows(disk: Path) -> None:
    results, sweep = begin(disk)
    prepare_reserve(results)
    for trial in range(2):
        start(results, trial)
        write_outcome(results, outcome_of(trial, 3_000 if trial == 0 else 1_500_000))
    with Journal.open(results, sweep) as journal:
        assert adopt_one(journal, results, sweep, 0) == 4
        before = results.results_jsonl.read_bytes()
        results.reserve.unlink()
        fill(disk)
        with pytest.raises(HostError, match=r"no space left.*free some, then `fairtrial resume"):
            adopt_one(journal, results, sweep, 1)
        assert results.results_jsonl.read_bytes() == before
        assert (journal.n_rows, journal.recorded) == (4, {(key_of(0), 1)})
        (disk / "filler").unlink()
        assert adopt_one(journal, results, sweep, 1) == 8
    assert audit(results, is_void=lambda _: False, final_members=()).is_intact


def adopt_one(journal: Journal, results: Results, sweep: SweepFile, trial: int) -> int:
    records = [each for each in scan_attempts(results, sweep) if each.key == key_of(trial)]
    adopt(journal, records)
    return journal.n_rows


@pytest.mark.parametrize("disk", ["8m"], indirect=True)
def test_an_outcome_that_finds_no_room_at_all_leaves_no_part_of_itself(disk: Path) -> None:
    results, _ = begin(disk)
    start(results, 0)
    fill(disk)
    with pytest.raises(HostError, match="no space left"):
        write_outcome(results, outcome_of(0, 3_000))
    assert read_outcome(results, key_of(0), 1) is None
    assert [path.name for path in results.attempt_dir(key_of(0), 1).iterdir()] == ["intent.json"]


@pytest.mark.parametrize("disk", ["8m"], indirect=True)
def test_no_trial_begins_on_a_full_disk_and_the_reserve_is_not_spent_for_it(disk: Path) -> None:
    results, _ = begin(disk)
    prepare_reserve(results)
    fill(disk)
    with pytest.raises(HostError, match="no space left"):
        start(results, 0)
    assert results.reserve.exists()


@pytest.mark.parametrize("disk", ["8m"], indirect=True)
def test_a_torn_tail_is_repaired_on_a_full_disk_with_the_reserve(disk: Path) -> None:
    results, sweep = begin(disk)
    prepare_reserve(results)
    start(results, 0)
    write_outcome(results, outcome_of(0, 40_000))
    with Journal.open(results, sweep) as journal:
        adopt_one(journal, results, sweep, 0)
    whole = results.results_jsonl.read_bytes()
    os.truncate(results.results_jsonl, len(whole) - 7)
    fill(disk)
    with Journal.open(results, sweep) as journal:
        assert journal.repair is not None
        assert journal.repair.kept.read_bytes() == whole[:-7]
        adopt_one(journal, results, sweep, 0)
    assert results.results_jsonl.read_bytes() == whole
