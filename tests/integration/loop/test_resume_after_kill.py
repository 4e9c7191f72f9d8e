"""Killed with SIGKILL at a hundred random moments (or FAIRTRIAL_KILLS), a sweep counts every trial exactly once."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairtrial.host.janitor import find_strays

# Sweeps wait for each other on one host: all tests that run one share a process.
pytestmark = [pytest.mark.needs("git"), pytest.mark.timeout(2400), pytest.mark.xdist_group("measurement")]

N_KILLS = int(os.environ.get("FAIRTRIAL_KILLS", "100"))
N_RUNS = N_KILLS * 32 // 100  # so that there is something left to kill
SAME = (
    "returncode",
    "oracle_payload_on_remote_branch",
    "coverage_complete",
    "tool_call_count",
    "vcs_tool_call_count",
    "estimated_tokens",
    "command",
    "summarized_operations",
    "workspace_branches",
    "published_heads",
    "published_sha256",
)


def fraction(n: int) -> float:
    """A number in [0, 1) that looks random and is the same in every run of this test."""
    return int.from_bytes(hashlib.sha256(f"kill {n}".encode()).digest()[:6], "big") / 2**48


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fairtrial", "-q", *arguments]


def children_of(pid: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == pid:
            child = int(path.name)
            yield child
            yield from children_of(child)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], *, limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and not condition():
        time.sleep(0.005)


def sweep_is_gone(sweep: subprocess.Popen[bytes]) -> Callable[[], bool]:
    return lambda: sweep.poll() is not None


def count_recorded(results: Path) -> int:
    journal = results / "results.jsonl"
    return journal.read_bytes().count(b'"final":true') if journal.exists() else 0


def has_recorded(results: Path, n: int, sweep: subprocess.Popen[bytes]) -> Callable[[], bool]:
    """A worker is at work and so many attempts are in the journal, or the sweep has ended by itself."""

    def condition() -> bool:
        return sweep.poll() is not None or (any(True for _ in children_of(sweep.pid)) and count_recorded(results) >= n)

    return condition


def final_rows(results: Path) -> list[dict[str, object]]:
    rows = (json.loads(line) for line in (results / "results.jsonl").read_bytes().splitlines())
    return [row for row in rows if row["final"]]


def counting(results: Path) -> dict[str, dict[str, object]]:
    void = {"interrupted", "cancelled", "infra-error", "unknown"}
    rows = [row for row in final_rows(results) if row["error_kind" if "error_kind" in row else "key"] not in void]
    assert max(Counter(row["key"] for row in rows).values()) == 1
    return {str(row["key"]): {name: row.get(name) for name in SAME} for row in rows}


def test_a_sweep_killed_again_and_again_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    scratch = tmp_path / "s"
    scratch.mkdir()
    results = tmp_path / "r"
    loop = command(
        "loop", "--transport", "file,http", "--runs", str(N_RUNS), "--out", str(results), "--scratch", str(scratch)
    )
    resume = command("resume", str(results), "--scratch", str(scratch))
    undisturbed = tmp_path / "undisturbed"
    n_kills = 0
    while n_kills < N_KILLS:
        begun = (results / "sweep.json").exists()
        if not begun and results.exists():
            shutil.rmtree(results)  # it was killed before it had begun: there is nothing to resume
        n_recorded = count_recorded(results)
        sweep = subprocess.Popen(resume if begun else loop, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        early = begun and n_kills % 5 == 4  # one in five dies while it is still starting, adopting or repairing
        if not early:
            wait_until(has_recorded(results, n_recorded + n_kills % 2, sweep))
        wait_until(sweep_is_gone(sweep), limit_s=0.4 * fraction(n_kills))
        victims = ("sweep", "worker", "both")[n_kills % 3]
        below = [] if victims == "sweep" else list(children_of(sweep.pid))
        for pid in (*below, *(() if victims == "worker" else (sweep.pid,))):
            kill(pid)
        n_kills += sweep.poll() is None or bool(below)
        if victims == "worker":
            wait_until(sweep_is_gone(sweep), limit_s=fraction(n_kills))
            kill(sweep.pid)
        _, said = sweep.communicate(timeout=60)
        assert b"Traceback" not in said
        if sweep.returncode == 0:
            break  # on a machine so fast nothing is left to kill
        # 5: only its worker was killed, and it came to its end before we killed it, too.
        assert sweep.returncode in {-signal.SIGKILL, *([5] if victims == "worker" else [])}, said
        if (results / "sweep.json").exists() and not undisturbed.exists():  # a kill may come before the sweep has begun
            (undisturbed / "trials").mkdir(parents=True)  # the same sweep, of which nothing has been done
            shutil.copy(results / "sweep.json", undisturbed)
    assert n_kills >= N_KILLS * 3 // 4
    sweep_id = json.loads((results / "sweep.json").read_bytes())["sweep"]
    finished = subprocess.run(resume, check=False, capture_output=True, timeout=900)
    assert finished.returncode == 0, finished.stderr
    audited = subprocess.run(command("audit", str(results)), check=False, capture_output=True, timeout=60)
    assert audited.returncode == 0, audited.stdout + audited.stderr

    calm = command("resume", str(undisturbed), "--scratch", str(scratch))
    assert subprocess.run(calm, check=False, capture_output=True, timeout=900).returncode == 0
    planned = [entry["key"] for entry in json.loads((results / "sweep.json").read_bytes())["plan"]]
    assert sorted(counting(results)) == sorted(planned)
    assert counting(results) == counting(undisturbed)

    assert find_strays(sweep_id) == ()
    assert list(scratch.iterdir()) == []
