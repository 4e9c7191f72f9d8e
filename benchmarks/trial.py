"""What does the harness itself cost per trial? Compares a sweep of trials that do nothing with the same work by hand.

A repository of 2,000 files and 300 commits, the nop agent, authored check and oracle `true`, one worker. The floor,
measured in the same run and under the same ids: one overlay mount and three bare Bubblewrap starts. Prints both in
milliseconds, and what 200 trials leave on the scratch disk. Exit codes: 0 within 60 ms or 4 times the floor, whichever
is more · 1 over.

Run it on a quiet machine.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from fairtrial.host.slot import slot_argv

N_FILES = 2000
N_COMMITS = 300
N_TRIALS = 200
LIMIT_MS = 60.0
LIMIT_RATIO = 4.0
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


def main() -> int:
    """Measure both sides."""
    base = Path(tempfile.mkdtemp(prefix="ft-", dir="/var/tmp"))
    base.chmod(0o711)
    try:
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
        floor = [sys.executable, "-c", FLOOR, str(base)]
        done = subprocess.run(slot_argv(floor, 0), check=True, capture_output=True, text=True)
        floor_ms = statistics.median(map(float, done.stdout.split()))
        command = ["bench", "--tasks", base / "tasks.yaml", "--arms", "baseline", "--agent", "nop", "--model", "none"]
        words = [*command, "--runs", N_TRIALS, "--out", base / "r", "--scratch", base]
        sweep = subprocess.run(
            [sys.executable, "-m", "fairtrial", "-q", *map(str, words)], check=False, stdout=subprocess.DEVNULL
        )
        rows = [json.loads(line) for line in (base / "r" / "results.jsonl").read_text().splitlines()]
        moments = [datetime.fromisoformat(row["recorded_at"]) for row in rows]
        gaps = [(b - a).total_seconds() * 1000 for a, b in pairwise(moments)]
        trial_ms = statistics.median(gaps)
        left = sum(path.lstat().st_size for path in base.glob("ft-*/**/*") if not path.is_dir())
        limit_ms = max(LIMIT_MS, LIMIT_RATIO * floor_ms)
        state = "ok" if trial_ms <= limit_ms else "over"
        print(f"trial: {trial_ms:.1f} ms; floor: {floor_ms:.1f} ms; ratio {trial_ms / floor_ms:.1f}: {state}")
        first, last = statistics.median(gaps[:50]), statistics.median(gaps[-50:])
        print(f"first 50: {first:.1f} ms; last 50: {last:.1f} ms; left on the scratch disk: {left} bytes")
        print(f"sweep ended with {sweep.returncode}, {len(rows)} rows, pid {os.getpid()}")
        return 0 if state == "ok" else 1
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    sys.exit(main())
