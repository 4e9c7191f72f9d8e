"""How dear are records? Appending, auditing and reading against the same work done by hand, as ratios in one run.

    python benchmarks/store.py                        full size, some minutes and 4 GB of disk
    python benchmarks/store.py --rows 100000 --agent-rows 10000

A directory is built as a sweep leaves it, each attempt with its intent and outcome. Its audit has two floors in the
same run: `sha256sum` of the journal, and `find | xargs sha256sum` over the attempts' files. The seconds allowed are
those for the rows (they hold for the full size and shrink with it) plus what the files' own floor takes. Memory is the
largest sum of proportional set sizes (smaps_rollup) seen of a process and its fork: what they share counts once.

Exits 1 when a figure is over its limit. On a busy machine repeat it: CPU seconds stand beside the wall clock's.
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fairtrial.store.attempts import ROWS_BEGIN, ROWS_END, ROWS_SEPARATOR, encode_outcome, parse_outcome
from fairtrial.store.audit import audit
from fairtrial.store.chain import EncodedRow, encode_row, render_lines
from fairtrial.store.journal import Journal
from fairtrial.store.layout import INTENT, OUTCOME, Results
from fairtrial.store.rows import read_rows
from fairtrial.store.seal import write_seal
from fairtrial.store.sweep_file import read_sweep, write_sweep

WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
SMALL_ROWS = 10_000
STEPS_PER_TRIAL = 20
APPEND_LIMIT_RATIO = 1.5
STEP_ROWS, STEP_LIMIT_S, STEP_LIMIT_MB = 1_000_000, 20.0, 300.0
AGENT_ROWS, AGENT_LIMIT_S = 100_000, 10.0
SAMPLE_S = 0.05
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
            outcome = {"schema": "outcome/1", **identity, "artifacts": {}, "ended_utc": "2026-11-29T13:02:00Z"}
            before = encode_outcome(outcome | {"rows": []}).removesuffix(ROWS_BEGIN + ROWS_END)
            data = before + ROWS_BEGIN + ROWS_SEPARATOR.join(map(b"".join, rows)) + ROWS_END
            (directory / OUTCOME).write_bytes(data)
    with Journal.open(results, sweep) as journal_:
        write_seal(results, journal_)
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one thing cost, done in a process of its own.

    Attributes:
        wall_s: Seconds on the clock.
        cpu_s: Seconds of CPU.
        peak_mb: Peak memory in MB of it and its fork together, what they share counted once; the largest sample.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float


def measure(what: str, root: Path, *, n_times: int) -> Cost:
    """Do one thing some times; return the quickest, with the most memory that any took."""
    costs = [measure_once(what, root) for _ in range(n_times)]
    quickest = min(costs, key=lambda cost: cost.wall_s)
    return replace(quickest, peak_mb=max(cost.peak_mb for cost in costs))


def measure_once(what: str, root: Path) -> Cost:
    """Do one thing in a process of its own, and look at its memory until it has ended."""
    argv = [sys.executable, __file__, "--measure", what, str(root)]
    peak_mb = 0.0
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as live:
        while live.poll() is None:
            peak_mb = max(peak_mb, proportional_mb(live.pid))
            time.sleep(SAMPLE_S)
        if live.returncode or live.stdout is None:
            raise SystemExit(f"{what} of {root} ended with {live.returncode}")
        return Cost(**json.load(live.stdout), peak_mb=peak_mb)


def proportional_mb(pid: int) -> float:
    """The proportional set sizes of a process and its children together, in MB; 0 of one that has ended."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    own_kb = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return own_kb / 1024 + sum(proportional_mb(int(child)) for child in children)


def do(what: str, root: Path) -> None:
    """Do one thing and print what it cost."""
    results = Results(root=root)
    begin, begin_cpu_s = time.perf_counter(), spent_cpu_s()
    if what == "audit":
        report = audit(results, is_void=lambda row: row["returncode"] == 77, final_members=("returncode",))
        if not (report.is_intact and report.is_complete and report.sealed):
            raise SystemExit(f"the benchmark's own directory is not whole: {report.problems[:3]}")
    elif what == "open":
        Journal.open(results, read_sweep(results)).close()
    else:
        for _ in read_rows(results.results_jsonl, sweep_id=read_sweep(results).sweep):
            pass
    cost = {"wall_s": time.perf_counter() - begin, "cpu_s": spent_cpu_s() - begin_cpu_s}
    print(json.dumps(cost))


def spent_cpu_s() -> float:
    """Seconds of CPU that this process and its children have spent."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, WHO))


def time_command(script: str, path: Path) -> float:
    """Time a shell command on a path, in seconds; the better of two."""
    times: list[float] = []
    for _ in range(2):
        begin = time.perf_counter()
        subprocess.run(["sh", "-c", script, "sh", str(path)], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    return min(times)


def compare_append(parent: Path, n_appends: int) -> float:
    """Append attempts through the journal and through a bare loop, in turns; return the ratio of their times.

    The rows come from outcomes, as in a sweep; what they cost when they are written from Python values stands beside.
    """
    results = Results(root=parent / "append")
    results.trials.mkdir(parents=True)
    plan = [{"plan_index": index, "key": f"trial/{index:06}"} for index in range(2 * n_appends)]
    sweep = write_sweep(results, {"schema": "sweep/1", "sweep": "append", "lane": "loop", "plan": plan})
    rows = [step_row()] * STEPS_PER_TRIAL
    outcomes = [
        parse_outcome(
            "outcome.json",
            encode_outcome(
                {"schema": "outcome/1", "sweep": "append", "key": key, "attempt": 1, "artifacts": {}, "rows": rows}
            ),
        )
        for key in sweep.plan_keys
    ]
    data, _ = render_lines(
        outcomes[0].encoded, sweep="append", key=sweep.plan_keys[0], attempt=1, plan_index=0, seq=0, prev="0" * 64
    )
    bare = os.open(parent / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    times_s: dict[str, list[float]] = {"ours": [], "bare": [], "from values": []}

    def write_bare() -> None:
        os.write(bare, data)
        os.fsync(bare)

    def time_one(name: str, step: Callable[[], None]) -> None:
        begin = time.perf_counter()
        step()
        times_s[name].append(time.perf_counter() - begin)

    with Journal.open(results, sweep) as journal:
        for index in range(n_appends):
            ours = partial(journal.append_outcome, outcomes[index], plan_index=index)
            other = n_appends + index
            values = partial(journal.append, rows, key=sweep.plan_keys[other], attempt=1, plan_index=other)
            steps: list[tuple[str, Callable[[], None]]] = [
                ("ours", ours),
                ("bare", write_bare),
                ("from values", values),
            ]
            for shift in range(3):
                time_one(*steps[(index + shift) % 3])
    os.close(bare)
    medians_ms = {name: sorted(times)[n_appends // 2] * 1e3 for name, times in times_s.items()}
    ratio = medians_ms["ours"] / medians_ms["bare"]
    print(
        f"append {STEPS_PER_TRIAL} rows, {len(data)} bytes, fsync: {ratio:.2f} x a bare write and fsync; medians in ms:"
    )
    print("  " + ", ".join(f"{name} {milliseconds:.3f}" for name, milliseconds in medians_ms.items()))
    return ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The figures of one lane that have limits.

    Attributes:
        audit: What the audit cost.
        rows: What reading the rows cost.
        files_s: What the coreutils take for the attempts' files, in seconds.
        linear_ratio: An audited row's cost in the large directory, against the small one.
    """

    audit: Cost
    rows: Cost
    files_s: float
    linear_ratio: float


def compare_reading(parent: Path, lane: Lane, n_rows: int) -> Reading:
    """Build a small and a large directory, and read both in every way."""
    n_small = min(SMALL_ROWS, n_rows)
    small = build(parent / f"{lane.name}-small", lane, n_small)
    large = build(parent / f"{lane.name}-large", lane, n_rows)
    journal_s = time_command('sha256sum "$1"', large.results_jsonl)
    files_s = time_command('find "$1" -type f -print0 | xargs -0 sha256sum', large.trials)
    n_bytes = large.results_jsonl.stat().st_size / n_rows
    print(f"{lane.name}: {n_rows} rows of {n_bytes:.0f} bytes in {n_rows // lane.rows_per_trial} attempts")
    print(f"  floors: {journal_s:.2f} s for the journal (sha256sum), {files_s:.2f} s for the attempts' files")
    costs: dict[str, Cost] = {}
    ratios: dict[str, float] = {}
    for what in ("audit", "open", "read"):
        # The small one is over in a moment, so that a neighbour's burst of work is all of it: the best of five counts.
        little = measure(what, small.root, n_times=5)
        cost = costs[what] = measure(what, large.root, n_times=2 if what == "audit" else 1)
        ratios[what] = (cost.wall_s / n_rows) / (little.wall_s / n_small)
        print(
            f"  {what:<6}{cost.wall_s:7.2f} s ({cost.cpu_s:.2f} s CPU), {cost.wall_s / n_rows * 1e6:.1f} us a row,"
            f" {cost.wall_s / journal_s:.2f} x sha256sum, {ratios[what]:.2f} x a row's cost in {n_small},"
            f" {cost.peak_mb:.0f} MB"
        )
    for results in (small, large):
        shutil.rmtree(results.root)
    return Reading(audit=costs["audit"], rows=costs["read"], files_s=files_s, linear_ratio=ratios["audit"])


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
        allowed_s = STEP_LIMIT_S * max(arguments.rows / STEP_ROWS, 0.05)
        limit("audit of step rows, s", steps.audit.wall_s, allowed_s + steps.files_s)
        limit("audit of step rows, MB", steps.audit.peak_mb, STEP_LIMIT_MB)
        limit("audit of step rows, linear", steps.linear_ratio, LINEAR_LIMIT_RATIO)
        limit("reading step rows, s", steps.rows.wall_s, allowed_s)
        limit("reading step rows, MB", steps.rows.peak_mb, STEP_LIMIT_MB)
        agents = compare_reading(parent, LANES[1], arguments.agent_rows)
        allowed_s = AGENT_LIMIT_S * max(arguments.agent_rows / AGENT_ROWS, 0.05)
        limit("audit of agent rows, s", agents.audit.wall_s, allowed_s + agents.files_s)
        limit("audit of agent rows, linear", agents.linear_ratio, LINEAR_LIMIT_RATIO)
        limit("reading agent rows, s", agents.rows.wall_s, allowed_s)
    for line in over:
        print(f"OVER: {line}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
