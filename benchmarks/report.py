"""Measures `fairtrial report` on long row files: seconds, peak memory, ratio to sha256sum, linearity.

    python benchmarks/report.py --step-rows 10000 100000 1000000 --agent-rows 10000 100000

The whole command is measured, its start too. Exits 1 when a limit is exceeded.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fairtrial.evidence.loop import loop_summary, total_row
from fairtrial.evidence.tokens import token_fields

LIMITS: Final = {"loop": (1_000_000, 20.0), "bench": (100_000, 10.0)}
"""Rows and seconds in which a report of so many must be made."""
PEAK_MEMORY_LIMIT_BYTES: Final = 300_000_000
LINEAR_LIMIT_RATIO: Final = 1.3
"""Above this the cost of a row grows with the file; below, it is the noise of a shared machine."""
OPERATIONS: Final = ("acquire", "edit", "snapshot.add", "snapshot.commit", "publish", "end")
SUBJECTS: Final = ("git", "git(null)", "hg", "fossil")
TRANSPORTS: Final = ("file", "http")


def main() -> int:
    """Generate, measure, print; 1 when a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step-rows", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--agent-rows", type=int, nargs="*", default=[10_000, 100_000])
    arguments = parser.parse_args()
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
            seconds, cpu_s, peak_bytes = measure(path)
            size_mb = path.stat().st_size / 1e6
        row_us.append(seconds / written * 1e6)
        print(
            f"{lane:6}{written:>10}{size_mb:>8.1f}{seconds:>9.2f}{cpu_s:>8.2f}{peak_bytes / 1e6:>9.1f}"
            f"{seconds / sha_s:>12.1f}{row_us[-1]:>10.2f}"
        )
        limit_rows, limit_s = LIMITS[lane]
        if written <= limit_rows * 1.01 and seconds > limit_s:
            yield f"{lane}: {written} rows took {seconds:.1f} s, more than {limit_s} s"
        if written <= limit_rows * 1.01 and peak_bytes > PEAK_MEMORY_LIMIT_BYTES:
            limit_mb = PEAK_MEMORY_LIMIT_BYTES / 1e6
            yield f"{lane}: {written} rows took {peak_bytes / 1e6:.0f} MB, more than {limit_mb:.0f} MB"
    if len(row_us) > 1:
        ratio = row_us[-1] / row_us[0]
        print(f"{lane}: time a row at the largest size / at the smallest: {ratio:.2f}")
        if ratio > LINEAR_LIMIT_RATIO:
            yield f"{lane}: a row costs {ratio:.2f} times as much in the largest file as in the smallest"


def measure(path: Path) -> tuple[float, float, int]:
    """Report one file; return seconds, seconds of CPU, and peak memory in bytes."""
    start = time.perf_counter()
    argv = [sys.executable, "-m", "fairtrial", "report", str(path)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"`fairtrial report` ended with {process.returncode}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


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
    """Make at least so many tool-lane rows, of 700 bytes and each total of 1,500: whole runs, each with its total."""
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
