"""How dear are records? Appending, auditing and reading against the same work done by hand, as ratios in one run.

    python benchmarks/store.py                        full size, some minutes and 4 GB of disk
    python benchmarks/store.py --rows 100000 --agent-rows 10000

Exits 1 when a figure is over its limit. Limits in seconds hold for the full size and shrink with it.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fairtrial.store.attempts import encode_outcome
from fairtrial.store.audit import audit
from fairtrial.store.chain import EncodedRow, encode_row, render_lines
from fairtrial.store.journal import Journal
from fairtrial.store.layout import INTENT, OUTCOME, Results
from fairtrial.store.rows import read_rows
from fairtrial.store.seal import write_seal
from fairtrial.store.sweep_file import read_sweep, write_sweep

SMALL_ROWS = 10_000
STEPS_PER_TRIAL = 20
APPEND_LIMIT_RATIO = 1.5
STEP_ROWS, STEP_LIMIT_S, STEP_LIMIT_MB = 1_000_000, 20.0, 300.0
AGENT_ROWS, AGENT_LIMIT_S = 100_000, 10.0
# Above this the cost of a row grows with the sweep; below, it is the noise of a shared machine.
LINEAR_LIMIT_RATIO = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Rows of one shape.

    Attributes:
        name: Also the first part of the sweep's id.
        row: A row of typical length, without envelope.
        rows_per_trial: How many rows an attempt has.
    """

    name: str
    row: Mapping[str, object]
    rows_per_trial: int


def step_row() -> dict[str, object]:
    """Build a step row that makes a line of about 600 bytes."""
    return {
        "schema": "loop-row/1",
        "subject": "git",
        "scenario": "task_loop",
        "run": 1,
        "operation": "task.snapshot.commit",
        "step_kind": "vcs",
        "elapsed_ms": 12.345,
        "returncode": 0,
        "timed_out": False,
        "command": ["git", "commit", "-q", "-m", "Add the note"],
        "stdout_bytes": 0,
        "stderr_bytes": 12,
        "tool_call_count": 1,
        "estimated_tokens": 42,
        "load": [0.5, 0.4],
        "row": 0,
        "note": "-" * 20,
    }


def agent_row() -> dict[str, object]:
    """Build an agent row that makes a line of about 4 KB."""
    row = step_row()
    return row | {
        "schema": "bench-row/1",
        **{f"member_{number}": number * 1.5 for number in range(40)},
        "wire": {"requests": 12, "by_model": {"m": {"input_tokens": 5, "output_tokens": 6}}},
        "authored_test_output": "ok test\n" * 200,
        "oracle_output": "é" * 300,
    }


LANES = (
    Lane(name="loop", row=step_row(), rows_per_trial=STEPS_PER_TRIAL),
    Lane(name="bench", row=agent_row(), rows_per_trial=1),
)


def variants(lane: Lane, n_rows: int) -> Iterator[list[EncodedRow]]:
    """Make the rows of each trial; each row differs, and none is encoded from scratch."""
    encoded = encode_row(lane.row)
    before, after = encoded.rest.split(b'"row":0', 1)
    for first in range(0, n_rows, lane.rows_per_trial):
        numbers = range(first, min(first + lane.rows_per_trial, n_rows))
        yield [EncodedRow(encoded.head, b'%b"row":%d%b' % (before, number, after)) for number in numbers]


def build(root: Path, lane: Lane, n_rows: int) -> Results:
    """Build a sealed results directory as a sweep leaves it, but without waiting for the disk."""
    results = Results(root=root)
    results.trials.mkdir(parents=True)
    n_trials = -(-n_rows // lane.rows_per_trial)
    keys = [f"{lane.name}/task_loop/git/file/{number}" for number in range(n_trials)]
    plan = [{"plan_index": index, "key": key} for index, key in enumerate(keys)]
    sweep = write_sweep(results, {"schema": "sweep/1", "sweep": f"{lane.name}-1", "lane": lane.name, "plan": plan})
    head, seq = sweep.digest, 0
    with results.results_jsonl.open("wb") as journal:
        for index, (key, rows) in enumerate(zip(keys, variants(lane, n_rows), strict=True)):
            lines, head = render_lines(
                rows, sweep=sweep.sweep, key=key, attempt=1, plan_index=index, seq=seq, prev=head
            )
            journal.write(lines)
            seq += len(rows)
            identity = {"sweep": sweep.sweep, "key": key, "attempt": 1}
            directory = results.attempt_dir(key, 1)
            directory.mkdir(parents=True)
            intent = {"schema": "intent/1", **identity, "begun_utc": "2026-11-29T13:01:00Z"}
            (directory / INTENT).write_bytes(json.dumps(intent).encode())
            outcome = {
                "schema": "outcome/1",
                **identity,
                "artifacts": {},
                "ended_utc": "2026-11-29T13:02:00Z",
                "rows": [],
            }
            data = encode_outcome(outcome).replace(b'"rows":[]', b'"rows":[%b]' % b",".join(map(b"".join, rows)))
            (directory / OUTCOME).write_bytes(data)
    with Journal.open(results, sweep) as journal_:
        write_seal(results, journal_)
    return results


def measure(what: str, root: Path) -> tuple[float, float]:
    """Do one thing in a process of its own; return its seconds and its peak memory in MB."""
    argv = [sys.executable, __file__, "--measure", what, str(root)]
    seconds, megabytes = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    return seconds, megabytes


def do(what: str, root: Path) -> None:
    """Do one thing and print its seconds and the peak memory of this process."""
    results = Results(root=root)
    begin = time.perf_counter()
    if what == "audit":
        report = audit(results, is_void=lambda row: row["returncode"] == 77)
        if not (report.is_intact and report.is_complete and report.sealed):
            raise SystemExit(f"the benchmark's own directory is not whole: {report.problems[:3]}")
    elif what == "open":
        Journal.open(results, read_sweep(results)).close()
    else:
        for _ in read_rows(results.results_jsonl, sweep_id=read_sweep(results).sweep):
            pass
    seconds = time.perf_counter() - begin
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def sha256sum(path: Path) -> float:
    """Time the coreutils program on one file, in seconds."""
    begin = time.perf_counter()
    subprocess.run(["sha256sum", str(path)], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def compare_append(parent: Path, n_appends: int) -> float:
    """Append attempts through the journal and through a bare loop, in turns; return the ratio of their times."""
    results = Results(root=parent / "append")
    results.trials.mkdir(parents=True)
    keys = [f"trial/{number:06}" for number in range(n_appends)]
    plan = [{"plan_index": index, "key": key} for index, key in enumerate(keys)]
    sweep = write_sweep(results, {"schema": "sweep/1", "sweep": "append", "lane": "loop", "plan": plan})
    rows = [step_row()] * STEPS_PER_TRIAL
    bare = os.open(parent / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ours_s: list[float] = []
    bare_s: list[float] = []
    data = bytes(
        len(
            render_lines(
                [encode_row(row) for row in rows],
                sweep="append",
                key=keys[0],
                attempt=1,
                plan_index=0,
                seq=0,
                prev="0" * 64,
            )[0]
        )
    )

    def append(index: int) -> None:
        begin = time.perf_counter()
        journal.append(rows, key=keys[index], attempt=1, plan_index=index)
        ours_s.append(time.perf_counter() - begin)

    def write(_index: int) -> None:
        begin = time.perf_counter()
        os.write(bare, data)
        os.fsync(bare)
        bare_s.append(time.perf_counter() - begin)

    with Journal.open(results, sweep) as journal:
        for index in range(n_appends):
            for step in (append, write) if index % 2 else (write, append):
                step(index)
    os.close(bare)
    ratio = sum(ours_s) / sum(bare_s)
    medians = sorted(ours_s)[n_appends // 2] * 1e3, sorted(bare_s)[n_appends // 2] * 1e3
    print(f"append {len(data)} bytes + fsync: {ratio:.2f} x bare (medians {medians[0]:.2f} and {medians[1]:.2f} ms)")
    return ratio


def compare_reading(parent: Path, lane: Lane, n_rows: int) -> dict[str, float]:
    """Build a small and a large directory and read both in every way; return the figures that have limits."""
    figures: dict[str, float] = {}
    small = build(parent / f"{lane.name}-small", lane, min(SMALL_ROWS, n_rows))
    large = build(parent / f"{lane.name}-large", lane, n_rows)
    size = large.results_jsonl.stat().st_size
    print(f"{lane.name}: {n_rows} rows of {size / n_rows:.0f} bytes, {n_rows // lane.rows_per_trial} attempts")
    floor_s = sha256sum(large.results_jsonl)
    print(f"  sha256sum of the journal   {floor_s:7.2f} s")
    for what in ("audit", "open", "read"):
        # The small one is over in a moment: the best of three is what the machine can do.
        small_s = min(measure(what, small.root)[0] for _ in range(3))
        seconds, megabytes = measure(what, large.root)
        linear = (seconds / n_rows) / (small_s / min(SMALL_ROWS, n_rows))
        print(
            f"  {what:<10} {seconds:7.2f} s = {seconds / n_rows * 1e6:5.1f} us/row"
            f" = {seconds / floor_s:5.2f} x sha256sum, {linear:4.2f} x a row's cost in {SMALL_ROWS}, {megabytes:.0f} MB"
        )
        figures |= {f"{what}_s": seconds, f"{what}_mb": megabytes, f"{what}_linear": linear}
    for results in (small, large):
        shutil.rmtree(results.root)
    return figures


def main() -> int:
    """Run everything; 1 when a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=STEP_ROWS)
    parser.add_argument("--agent-rows", type=int, default=AGENT_ROWS)
    parser.add_argument("--appends", type=int, default=300)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="where to build, on a real disk")  # noqa: S108
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        do(arguments.measure[0], Path(arguments.measure[1]))
        return 0
    over: list[str] = []

    def limit(name: str, figure: float, at_most: float) -> None:
        if figure > at_most:
            over.append(f"{name}: {figure:.2f} is over {at_most:.2f}")

    with tempfile.TemporaryDirectory(prefix="fairtrial-bench-", dir=arguments.dir) as name:
        parent = Path(name)
        limit("append ratio", compare_append(parent, arguments.appends), APPEND_LIMIT_RATIO)
        steps = compare_reading(parent, LANES[0], arguments.rows)
        limit("audit of step rows, s", steps["audit_s"], max(1.0, STEP_LIMIT_S * arguments.rows / STEP_ROWS))
        limit("audit of step rows, MB", steps["audit_mb"], STEP_LIMIT_MB)
        limit("audit of step rows, linear", steps["audit_linear"], LINEAR_LIMIT_RATIO)
        limit("reading step rows, MB", steps["read_mb"], STEP_LIMIT_MB)
        agents = compare_reading(parent, LANES[1], arguments.agent_rows)
        limit("audit of agent rows, s", agents["audit_s"], max(1.0, AGENT_LIMIT_S * arguments.agent_rows / AGENT_ROWS))
        limit("audit of agent rows, linear", agents["audit_linear"], LINEAR_LIMIT_RATIO)
    for line in over:
        print(f"OVER: {line}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
