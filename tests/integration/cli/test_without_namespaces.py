"""Where the host refuses namespaces, a parent-death signal and the janitor take their place, and rows say so."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.host.janitor import find_strays

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.xdist_group("measurement"), pytest.mark.timeout(400)]

REFUSED = ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--disable-userns", "--"]
SLOW = """#!/bin/sh
for word; do [ "$word" = clone ] && [ -e "$0.slow" ] && { setsid %s 300 & %s 300; }; done
exec /usr/bin/git "$@"
"""


def processes_of(program: Path) -> list[str]:
    lines = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines.append((path / "cmdline").read_bytes().decode(errors="replace"))
    return [line for line in lines if str(program) in line]


def command(*arguments: object) -> list[str]:
    return [*REFUSED, sys.executable, "-m", "fairtrial", *map(str, arguments)]


def test_a_sweep_runs_and_its_rows_name_the_weaker_isolation(tmp_path: Path) -> None:
    out = tmp_path / "r"
    done = subprocess.run(command("loop", "--runs", 1, "--out", out), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert {row["worker_isolation"] for row in rows} == {"parent-death-signal"}


@pytest.mark.parametrize("victims", ["sweep", "worker and sweep"])
def test_nothing_survives_a_killed_sweep_once_it_is_resumed(victims: str, tmp_path: Path) -> None:
    sleeper, slow = tmp_path / "sleeper", tmp_path / "git"
    sleeper.symlink_to("/bin/sleep")
    slow.write_text(SLOW % (sleeper, sleeper))
    slow.chmod(0o755)
    (tmp_path / "git.slow").touch()
    path = tmp_path / "subjects.toml"
    path.write_text(f'[subject.slow]\nsubject = "git"\nbinary = "{slow}"\n')
    out, scratch = tmp_path / "r", tmp_path / "s"
    scratch.mkdir()
    arguments = ["--subjects-file", path, "--subjects", "slow", "--runs", 1, "--out", out, "--scratch", scratch]
    sweep = subprocess.Popen(command("loop", *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while len(processes_of(sleeper)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    sweep_id = json.loads((out / "sweep.json").read_text())["sweep"]
    program, worker = list(children_of(sweep.pid))[:2]
    for pid in (program, sweep.pid) if victims == "sweep" else (worker, program, sweep.pid):
        os.kill(pid, signal.SIGKILL)
    sweep.wait(90)
    (tmp_path / "git.slow").unlink()
    # Without bwrap: a process in a user namespace of its own may not look into another's.
    resume = [sys.executable, "-m", "fairtrial", "resume", str(out), "--scratch", str(scratch)]
    again = subprocess.run(resume, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert find_strays(sweep_id) == ()
    assert processes_of(sleeper) == []
    assert list(scratch.iterdir()) == []


def children_of(pid: int) -> Iterator[int]:
    """Children of a process, then theirs: the program under bwrap, its worker."""
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        yield child
        yield from children_of(child)
