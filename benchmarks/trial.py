"""What does the harness itself cost per trial? Compares a sweep of trials that do nothing with the same work by hand.

A repository of 2,000 files and 300 commits, the nop agent, authored check and oracle `true`, one worker. The floor,
measured in the same run and under the same ids: one overlay mount and three bare Bubblewrap starts. Prints both in
milliseconds; within is 60 ms or 4 times the floor, whichever is more.

Then memory and scratch disk are looked at while such a sweep goes on, once in a while, and the trials from 20 to 70
compared with the last fifty; flat is where neither grew by more than 2 MiB.

    python benchmarks/trial.py                 both
    python benchmarks/trial.py --only time
    python benchmarks/trial.py --only flat

Exits 1 when one is over or growing. Run it on a quiet machine.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from fairtrial.host.slot import slot_argv

N_FILES = 2000
N_COMMITS = 300
N_TRIALS = 200
LIMIT_MS = 60.0
LIMIT_RATIO = 4.0
EARLY = (20, 70)
PAUSE_S = 0.3
MOST_GROWTH_MIB = 2.0
FLOOR = """
import subprocess, sys, time
from pathlib import Path
from fairtrial.host.kernel import detach_mount, mount
from fairtrial.host.slot import open_slot
slot = open_slot(Path(sys.argv[1]))
for name in "lower", "u", "w", "m":
    (slot.root / name).mkdir()
    slot.give(slot.root / name)
bare = slot.argv(("bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink",
                  "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "/usr/bin/true"))
for _ in range(40):
    began = time.perf_counter()
    point = slot.root / "m"
    options = f"lowerdir={slot.root}/lower,upperdir={slot.root}/u,workdir={slot.root}/w,userxattr"
    mount("overlay", point, options)
    for _ in range(3):
        subprocess.run(bare, env={}, check=True)
    detach_mount(point)
    print((time.perf_counter() - began) * 1000)
"""


def make_repository(root: Path) -> None:
    """Write the repository; one fast-import makes all commits."""
    root.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root, check=True)
    lines: list[str] = []
    for number in range(N_COMMITS):
        text = f"commit {number}"
        lines += [
            "commit refs/heads/main",
            f"committer a <a@a> {1_700_000_000 + number} +0000",
            f"data {len(text)}",
            text,
        ]
        paths = range(N_FILES) if number == 0 else (number,)
        for path in paths:
            content = f"file {path} of commit {number}\n"
            lines += [f"M 100644 inline d{path % 40}/f{path}.txt", f"data {len(content)}", content.rstrip("\n"), ""]
    feed = "\n".join(lines) + "\n"
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, check=True, input=feed.encode())
    subprocess.run(["git", "reset", "-q", "--hard"], cwd=root, check=True)


def prepare(base: Path) -> list[str]:
    """Write the repository and its task; the command line of the sweep."""
    make_repository(base / "repo")
    (base / "o").write_text("nothing\n")
    task = {
        "id": "nothing",
        "class": "none",
        "repo": "repo",
        "prompt": "Do nothing.",
        "verify": "true",
        "oracle": {"command": "true", "files": [{"source": "o", "target": "o"}]},
    }
    (base / "tasks.yaml").write_text(json.dumps({"tasks": [task]}))
    command = ["bench", "--tasks", base / "tasks.yaml", "--arms", "baseline", "--agent", "nop", "--model", "none"]
    words = [*command, "--runs", N_TRIALS, "--out", base / "r", "--scratch", base]
    return [sys.executable, "-m", "fairtrial", "-q", *map(str, words)]


def measure_time(base: Path) -> int:
    """Measure both sides."""
    command = prepare(base)
    floor = [sys.executable, "-c", FLOOR, str(base)]
    done = subprocess.run(slot_argv(floor, 0), check=True, capture_output=True, text=True)
    floor_ms = statistics.median(map(float, done.stdout.split()))
    sweep = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (base / "r" / "results.jsonl").read_text().splitlines()]
    moments = [datetime.fromisoformat(row["recorded_at"]) for row in rows]
    gaps = [(b - a).total_seconds() * 1000 for a, b in pairwise(moments)]
    trial_ms = statistics.median(gaps)
    limit_ms = max(LIMIT_MS, LIMIT_RATIO * floor_ms)
    state = "ok" if trial_ms <= limit_ms else "over"
    print(f"trial: {trial_ms:.1f} ms; floor: {floor_ms:.1f} ms; ratio {trial_ms / floor_ms:.1f}: {state}")
    first, last = statistics.median(gaps[:50]), statistics.median(gaps[-50:])
    print(f"first 50: {first:.1f} ms; last 50: {last:.1f} ms")
    print(f"sweep ended with {sweep.returncode}, {len(rows)} rows, pid {os.getpid()}")
    return 0 if state == "ok" else 1


def measure_flatness(base: Path) -> int:
    """Look at a sweep while it goes on."""
    seen: list[dict[str, float]] = []
    with subprocess.Popen(prepare(base), stdout=subprocess.DEVNULL) as sweep:
        while sweep.poll() is None:
            seen.append({"trials": count_rows(base), **memory_of(sweep.pid), "scratch": scratch_mib(base)})
            time.sleep(PAUSE_S)
    early = [each for each in seen if EARLY[0] <= each["trials"] < EARLY[1]]
    late = [each for each in seen if N_TRIALS - 50 <= each["trials"] < N_TRIALS]
    worst_mib = 0.0
    for name in ("sweep", "worker", "scratch"):  # the nop agent needs no gateway
        before, after = (statistics.median(each.get(name, 0.0) for each in part) for part in (early, late))
        worst_mib = max(worst_mib, after - before)
        print(f"{name}: {before:.1f} MiB after {EARLY[0]} to {EARLY[1]} trials, {after:.1f} MiB at the end")
    state = "flat" if worst_mib <= MOST_GROWTH_MIB else "growing"
    print(f"{len(early)} and {len(late)} looks; sweep ended with {sweep.returncode}: {state}")
    return 0 if state == "flat" and sweep.returncode == 0 else 1


def count_rows(base: Path) -> int:
    """Trials that are on disk."""
    path = base / "r" / "results.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def memory_of(root: int) -> dict[str, float]:
    """Resident MiB of the sweep's process and of its worker."""
    found: dict[str, float] = {}
    for pid in descendants(root):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue  # it has just ended
        role = "sweep" if pid == root else "worker" if "worker" in words else None
        kib = status.partition("VmRSS:")[2].split()[:1]
        if role is not None and kib and "fairtrial.host.enter" not in words:
            found[role] = max(found.get(role, 0.0), int(kib[0]) / 1024)
    return found


def descendants(root: int) -> Iterator[int]:
    """A process and all below it."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += [child for child, parent in parents.items() if parent == pid]


def scratch_mib(base: Path) -> float:
    """MiB of blocks in the scratch directory, as seen from outside the worker's mounts."""
    n_bytes = 0
    for scratch in base.glob("ft-*"):
        for directory, _, files in os.walk(scratch):  # unlike glob, it goes on where a trial has just removed something
            for name in files:
                with suppress(OSError):
                    n_bytes += (Path(directory) / name).lstat().st_blocks * 512
    return n_bytes / (1 << 20)


def measure_in_place(measure: Callable[[Path], int]) -> int:
    """Make a place, measure in it, remove it."""
    base = Path(tempfile.mkdtemp(prefix="ft-", dir="/var/tmp"))
    base.chmod(0o711)
    try:
        return measure(base)
    finally:
        shutil.rmtree(base)


def main() -> int:
    """Measure what is asked for."""
    both = {"time": measure_time, "flat": measure_flatness}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=both, help="one measurement alone")
    only = parser.parse_args().only
    return max([measure_in_place(measure) for name, measure in both.items() if only in (None, name)])


if __name__ == "__main__":
    sys.exit(main())
