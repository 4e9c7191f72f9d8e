"""Nothing that the tool lane starts outlives it, and nothing that hangs keeps it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.host.lock import HOST_LOCK_PATH, acquire_lock
from fairtrial.loop.rows import RowBuilder
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.loop.stage import open_stage
from fairtrial.loop.work import step_row
from fairtrial.model.loop import Motion, Operation, Step
from fairtrial.model.trial import TrialSpec
from fairtrial.subjects.git import Git

pytestmark = [pytest.mark.xdist_group("measurement"), pytest.mark.timeout(600)]

SERVERS = [
    pytest.param(name, transport, word, marks=pytest.mark.needs(*{name, "git"}), id=f"{name}-{transport}")
    for name, transport, word in (
        ("hg", "http", "serve"),
        ("fossil", "http", "server"),
        ("git", "native", "daemon"),
        ("oak", "http", "serve"),
    )
]


def sweep(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fairtrial", "-q", "loop", *arguments]


def wait_until(condition: Callable[[], object], live: subprocess.Popen[bytes] | None = None) -> None:
    """The test's own limit bounds it; a sweep that ends meanwhile fails it at once."""
    while not condition():
        assert live is None or live.poll() is None, live.stderr and live.stderr.read()
        time.sleep(0.02)


def processes_that_name(path: Path) -> dict[int, list[str]]:
    """Living processes with the path in their command line."""
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(str(path) in word for word in words):
            found[int(entry.name)] = words
    return found


@pytest.mark.parametrize(("name", "transport", "word"), SERVERS)
def test_a_tools_server_dies_with_a_sweep_that_is_killed(name: str, transport: str, word: str, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    where = ["--out", str(tmp_path / "r"), "--scratch", str(scratch)]
    command = sweep("--subjects", name, "--transport", transport, "--runs", "50", *where)
    live = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: any(word in words for words in processes_that_name(scratch).values()), live)
    finally:
        live.send_signal(signal.SIGKILL)
        live.communicate()
    wait_until(lambda: not processes_that_name(scratch))
    shutil.rmtree(scratch)


@pytest.mark.needs("git")
def test_a_tool_that_hangs_and_will_not_be_told_is_ended_and_is_a_failed_row(
    make_spec: Callable[..., TrialSpec], git: Git, tmp_path: Path
) -> None:
    spec = make_spec()
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 60; done"
    step = Step(argv=("/bin/sh", "-c", script), cwd=tmp_path)
    operation = Operation(name="task.publish", phase="task", motion=Motion.PUBLISH)
    scenario = SCENARIOS["task_loop"]
    with open_stage(spec, scenario, git) as stage:
        row = step_row(stage, RowBuilder.of(spec, scenario), operation, step, limit_s=1)
    assert row["timed_out"] is True
    assert row["process_state"] in {"forced-kill", "timeout"}  # the second where TERM came before the trap
    assert row["returncode"] != 0
    written = tmp_path / "pid"
    if written.exists():  # on a busy machine it may not have come so far
        with pytest.raises(ProcessLookupError):
            os.kill(int(written.read_text()), 0)


@pytest.mark.needs("git")
def test_two_sweeps_on_one_host_wait_for_each_other(tmp_path: Path) -> None:
    said: list[str] = []
    with acquire_lock(HOST_LOCK_PATH, wait_s=500, on_wait=said.append):
        both = {
            name: subprocess.Popen(
                [word for word in sweep("--runs", "1", "--out", str(tmp_path / name)) if word != "-q"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name in ("a", "b")
        }
        for live in both.values():
            assert live.stderr is not None
            assert any("waiting up to" in line for line in iter(live.stderr.readline, ""))
        assert not [*tmp_path.glob("*/trials/*")]
    ended = {name: live.communicate()[1] for name, live in both.items()}
    assert [live.returncode for live in both.values()] == [0, 0], ended
    rows = {name: [*map(json.loads, (tmp_path / name / "results.jsonl").read_text().splitlines())] for name in both}
    assert all(row["measurement_lock_wait_ms"] > 0 for each in rows.values() for row in each)
    spans = sorted(
        (min(path.stat().st_mtime_ns for path in found), max(path.stat().st_mtime_ns for path in found))
        for found in ([*(tmp_path / name).glob("trials/*/*/*")] for name in both)
    )
    assert spans[0][1] < spans[1][0]  # no trial of one between those of the other
