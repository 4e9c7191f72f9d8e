"""Measures the fold and rendering of long row files: seconds, peak memory, ratio to sha256sum, linearity.

    python benchmarks/report.py --step-rows 10000 100000 1000000 --agent-rows 10000 100000

Each measurement runs in a process of its own, so that its peak memory is its own. Rows are read as plain JSON lines by
pydantic's parser, which needs a third of the standard library's time; what the checked reader of `fairtrial report`
costs on top is measured in `benchmarks/store`. Exits 1 when a limit is exceeded.
"""

import argparse
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic_core import from_json
from rich.console import Console

from fairtrial.evidence.bench import BenchFold
from fairtrial.evidence.loop import loop_summary, total_row
from fairtrial.evidence.loop_report import summarize_loop
from fairtrial.evidence.loop_runs import LoopFold
from fairtrial.evidence.tokens import token_fields
from fairtrial.report.bench import bench_report_json, render_bench_markdown, render_bench_terminal
from fairtrial.report.loop import loop_report_json, render_loop_markdown, render_loop_terminal

LIMITS: Final = {"loop": (1_000_000, 20.0), "bench": (100_000, 10.0)}
"""Rows and seconds in which a report of so many must be made."""
PEAK_MEMORY_LIMIT_BYTES: Final = 300_000_000
OPERATIONS: Final = ("acquire", "edit", "snapshot.add", "snapshot.commit", "publish", "end")
SUBJECTS: Final = ("git", "git(null)", "hg", "fossil")
TRANSPORTS: Final = ("file", "http")


def main() -> int:
    """Generate, measure, print; 1 when a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step-rows", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--agent-rows", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--measure", nargs=2, metavar=("LANE", "FILE"), help="measure one file in this process")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return 0
    print(f"{'lane':6}{'rows':>10}{'MB':>8}{'seconds':>9}{'CPU s':>8}{'peak MB':>9}{'x sha256sum':>12}{'us a row':>10}")
    exceeded = [*measure_lane("loop", arguments.step_rows), *measure_lane("bench", arguments.agent_rows)]
    for problem in exceeded:
        print(problem)
    return 1 if exceeded else 0


def measure_lane(lane: str, sizes: list[int]) -> Iterator[str]:
    """Measure one lane at each size, print a line each, and yield what exceeds a limit."""
    row_us: list[float] = []
    for n_rows in sizes:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "results.jsonl"
            written = write_rows(path, loop_rows(n_rows) if lane == "loop" else agent_rows(n_rows))
            sha_s = time_sha256sum(path)
            child = [sys.executable, __file__, "--measure", lane, str(path)]
            found = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
            size_mb = path.stat().st_size / 1e6
        seconds, peak_bytes = found["seconds"], found["peak_memory_bytes"]
        row_us.append(seconds / written * 1e6)
        print(
            f"{lane:6}{written:>10}{size_mb:>8.1f}{seconds:>9.2f}{found['cpu_s']:>8.2f}{peak_bytes / 1e6:>9.1f}"
            f"{seconds / sha_s:>12.1f}{row_us[-1]:>10.2f}"
        )
        limit_rows, limit_s = LIMITS[lane]
        if written <= limit_rows * 1.01 and seconds > limit_s:
            yield f"{lane}: {written} rows took {seconds:.1f} s, more than {limit_s} s"
        if written <= limit_rows * 1.01 and peak_bytes > PEAK_MEMORY_LIMIT_BYTES:
            limit_mb = PEAK_MEMORY_LIMIT_BYTES / 1e6
            yield f"{lane}: {written} rows took {peak_bytes / 1e6:.0f} MB, more than {limit_mb:.0f} MB"
    if len(row_us) > 1:
        print(f"{lane}: time a row at the largest size / at the smallest: {row_us[-1] / row_us[0]:.2f}")


def measure(lane: str, path: str) -> dict[str, float]:
    """Fold one file and render its three reports."""
    start = time.perf_counter()
    console = Console(file=io.StringIO(), width=200)
    with Path(path).open(encoding="utf-8") as lines:
        if lane == "loop":
            fold = LoopFold()
            for line in lines:
                fold.add(from_json(line))
            summary = summarize_loop(fold)
            render_loop_terminal(summary, console)
            sizes = [len(render_loop_markdown(summary)), len(json.dumps(loop_report_json(summary, sealed=False)))]
        else:
            bench = BenchFold()
            for line in lines:
                bench.add(from_json(line))
            aggregates = bench.summary()
            render_bench_terminal(aggregates, console)
            sizes = [
                len(render_bench_markdown(aggregates)),
                len(json.dumps(bench_report_json(aggregates, sealed=False))),
            ]
    seconds, cpu_s = time.perf_counter() - start, time.process_time()
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "cpu_s": cpu_s, "peak_memory_bytes": peak_bytes, "report_bytes": sum(sizes)}


def time_sha256sum(path: Path) -> float:
    """Give the seconds that `sha256sum` needs for the same bytes, which are in the page cache for both."""
    start = time.perf_counter()
    subprocess.run(["sha256sum", str(path)], check=True, capture_output=True)
    return time.perf_counter() - start


def write_rows(path: Path, rows: Iterator[dict[str, object]]) -> int:
    """Write rows as JSON lines and give their number."""
    n_rows = 0
    with path.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, separators=(",", ":")) + "\n")
            n_rows += 1
    return n_rows


def loop_rows(n_rows: int) -> Iterator[dict[str, object]]:
    """Make at least so many tool-lane rows of about 600 bytes: whole runs, each with its total."""
    made = run = 0
    while made < n_rows:
        for transport in TRANSPORTS:
            for position, subject in enumerate(SUBJECTS):
                rows = list(one_run(run, transport, subject, position))
                made += len(rows)
                yield from rows
        run += 1


def one_run(run: int, transport: str, subject: str, position: int) -> Iterator[dict[str, object]]:
    """Make the rows of one subject's run."""
    identity: dict[str, object] = {
        "schema": "loop-row/1", "key": f"task_loop/{transport}/{subject}/{run}",
        "attempt": 1, "subject": subject,
        "scenario": "task_loop", "run": run, "remote_transport": transport, "block": f"task_loop/{transport}/{run}",
        "position_in_block": position, "null_control": subject.endswith("(null)"), "host": "bench-host",
    }  # fmt: skip
    steps: list[dict[str, object]] = []
    for phase in ("task", "followup"):
        for index, operation in enumerate(OPERATIONS):
            steps.append({
                **identity, "operation": f"{phase}.{operation}", "step_kind": "edit" if operation == "edit" else "vcs",
                "elapsed_ms": 5 + (run * 7 + index * 3 + position) % 50 / 10, "returncode": 0,
                "command": [subject, operation], "tool_call_count": 1, "vcs_tool_call_count": int(operation != "edit"),
                "cpu_user_s": 0.004, "cpu_system_s": 0.002, **token_fields(48, 120 + run % 9),
            })  # fmt: skip
    yield from steps
    planned = [str(step["operation"]) for step in steps]
    yield {**identity, **total_row(planned, steps), **loop_summary(steps), "oracle_payload_on_remote_branch": True}


def agent_rows(n_rows: int) -> Iterator[dict[str, object]]:
    """Make so many agent-lane rows of about 4 KB."""
    for index in range(n_rows):
        task, arm, run = (
            f"task-{index // 4 % 250}",
            ("baseline", "workflow", "workflow_direct", "review")[index % 4],
            index // 1000,
        )
        failed = index % 7 == 0
        yield {
            "schema": "bench-row/1", "key": f"bench/{task}/{arm}/{run}", "attempt": 1, "task": task, "class": "x",
            "arm": arm, "run": run, "ok": not failed, "resolved": not failed,
            "error_kind": "verify-failed" if failed else None, "input_tokens": 20_000 + index % 999,
            "cache_creation_input_tokens": 1000, "cache_read_input_tokens": 500_000 + index % 77,
            "output_tokens": 9000 + index % 55, "cost_usd": 1 + index % 100 / 50, "duration_s": 60 + index % 31 / 2,
            "num_turns": 10 + index % 9, "diff_files": 3, "diff_insertions": 40, "diff_deletions": 4,
            "transcript_missing": False, "verify_output": "a line of output that nobody reads\n" * 96,
        }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
