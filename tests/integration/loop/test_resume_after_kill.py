"""Killed with SIGKILL at a hundred random moments (or FAIRTRIAL_KILLS), sweeps count every trial exactly once."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from fairtrial.host.janitor import find_strays
from fairtrial.host.proc import kill_if, list_pids, read_stat

# Sweeps wait for each other on one host: all tests that run one share a process.
pytestmark = [pytest.mark.needs("git"), pytest.mark.timeout(2400), pytest.mark.xdist_group("measurement")]

N_KILLS = int(os.environ.get("FAIRTRIAL_KILLS", "100"))
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
    for child in list_pids():
        stat = read_stat(child)
        if stat is not None and stat.ppid == pid:
            yield child
            yield from children_of(child)


def is_alive(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.is_alive


def kill(pids: Iterable[int]) -> bool:
    """KILL all of them; tell whether any was still alive."""
    hits = [kill_if(pid, is_alive) for pid in pids]
    return any(hits)


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


def mounts() -> set[str]:
    return set(Path("/proc/self/mountinfo").read_text().splitlines())


def traces_of(place: Path) -> list[str]:
    """Every process that is below a directory or has it mounted, and every socket that is bound there."""
    found = [line for line in Path("/proc/net/unix").read_text().splitlines() if str(place) in line]
    for pid in list_pids():
        for name in ("cwd", "root", "mountinfo"):
            path = Path(f"/proc/{pid}/{name}")
            try:
                told = path.read_text() if name == "mountinfo" else str(path.readlink())
            except OSError:
                continue  # gone, or another user's
            found += [f"{path}: {line}" for line in told.splitlines() if str(place) in line]
    return found


class Sweep:
    """One sweep that is killed again and again, in a place of its own."""

    def __init__(self, place: Path, n_runs: int) -> None:
        place.mkdir()
        self.scratch, self.temporary, self.results = place / "s", place / "t", place / "r"
        self.scratch.mkdir()
        self.temporary.mkdir()
        self.undisturbed = place / "undisturbed"
        where = ("--scratch", str(self.scratch))
        runs = ("--transport", "file,http", "--runs", str(n_runs))
        self.loop = command("loop", *runs, "--out", str(self.results), *where)
        self.resume = command("resume", str(self.results), *where)
        self.calm = command("resume", str(self.undisturbed), *where)
        self.environment = os.environ | {"TMPDIR": str(self.temporary)}

    def run(self, argv: list[str]) -> None:
        done = subprocess.run(argv, check=False, capture_output=True, timeout=900, env=self.environment)
        assert done.returncode == 0, done.stdout + done.stderr

    def kill_once(self, turn: int) -> tuple[int, bool]:
        """Start one pass and kill it; tell at how many moments something was hit, and whether it ended all the same."""
        begun = (self.results / "sweep.json").exists()
        if not begun and self.results.exists():
            shutil.rmtree(self.results)  # it was killed before it had begun: there is nothing to resume
        n_recorded = count_recorded(self.results)
        argv = self.resume if begun else self.loop
        sweep = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.environment)
        early = begun and turn % 5 == 4  # one in five dies while it is still starting, adopting or repairing
        if not early:
            wait_until(has_recorded(self.results, n_recorded + turn % 2, sweep))
        wait_until(sweep_is_gone(sweep), limit_s=0.4 * fraction(turn))
        victims = ("sweep", "worker", "both")[turn % 3]
        below = [] if victims == "sweep" else list(children_of(sweep.pid))
        n_hits = kill((*below, *(() if victims == "worker" else (sweep.pid,))))
        if victims == "worker":
            wait_until(sweep_is_gone(sweep), limit_s=fraction(turn + 1))
            n_hits += kill([sweep.pid])
        _, said = sweep.communicate(timeout=60)
        assert b"Traceback" not in said
        # 5: only its worker was killed, and it came to its end before we killed it, too.
        assert sweep.returncode in {0, -signal.SIGKILL, *([5] if victims == "worker" else [])}, said
        return n_hits, sweep.returncode == 0

    def keep_undisturbed(self) -> None:
        """Set the same sweep aside, of which nothing has been done."""
        if (self.results / "sweep.json").exists() and not self.undisturbed.exists():
            (self.undisturbed / "trials").mkdir(parents=True)
            shutil.copy(self.results / "sweep.json", self.undisturbed)

    def kill_again_and_again(self, n_kills: int, *, turn: int) -> tuple[int, int]:
        """Kill it until so many kills have hit or nothing is left to kill; return how many hit, and the next turn."""
        n_hits, has_ended = 0, False
        while n_hits < n_kills and not has_ended:
            n, has_ended = self.kill_once(turn)
            n_hits, turn = n_hits + n, turn + 1
            self.keep_undisturbed()  # a kill may come before the sweep has begun
        return n_hits, turn


def assert_whole(sweep: Sweep) -> None:
    """Let it finish, and hold it against the undisturbed one."""
    sweep_id = json.loads((sweep.results / "sweep.json").read_bytes())["sweep"]
    sweep.run(sweep.resume)
    sweep.run(command("audit", str(sweep.results)))
    sweep.run(sweep.calm)
    planned = [entry["key"] for entry in json.loads((sweep.results / "sweep.json").read_bytes())["plan"]]
    assert sorted(counting(sweep.results)) == sorted(planned)
    assert counting(sweep.results) == counting(sweep.undisturbed)

    assert find_strays(sweep_id) == ()
    assert traces_of(sweep.scratch) == []
    assert list(sweep.scratch.iterdir()) == []
    assert list(sweep.temporary.iterdir()) == []


def test_a_sweep_killed_again_and_again_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    before = mounts()
    n_hits = turn = n_sweeps = 0
    while n_hits < N_KILLS:  # a kill that came too late is made up for, on another sweep when this one has ended
        missing = N_KILLS - n_hits
        sweep = Sweep(tmp_path / str(n_sweeps), n_runs=max(missing * 32 // 100, 1))
        n, turn = sweep.kill_again_and_again(missing, turn=turn)
        n_hits, n_sweeps = n_hits + n, n_sweeps + 1
        assert_whole(sweep)

    left = mounts() - before
    wait_until(lambda: not left & mounts())  # tests beside this one mount, too, and unmount again
    assert not left & mounts()
