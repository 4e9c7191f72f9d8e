"""The agent lane from the command line: a sweep, its records, its refusals, its exit codes."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fairtrial.host.lock import HOST_LOCK_PATH, acquire_lock

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(600), pytest.mark.xdist_group("bench")]

MODEL = "claude-sonnet-4-5"
KEY = "sk-ant-REDACTED"
Done = subprocess.CompletedProcess[str]


def fairtrial(*arguments: object, **variables: str) -> Done:
    command = [sys.executable, "-m", "fairtrial", *map(str, arguments)]
    env = os.environ | variables
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, env=env)


def bench(example: Path, out: Path, *more: object, arms: str = "baseline", script: Path | None = None) -> list[object]:
    return [
        *("bench", "--tasks", example / "tasks.yaml", "--only", "linear", "--arms", arms, "--out", out),
        *("--agent", "bash-agent", "--model", MODEL, "--script", script or example / "script.yaml"),
        *(f"--skill=plan={example}/skills/tally-plan", f"--skill=work={example}/skills/tally-work"),
        *more,
    ]


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    directory = tmp_path / "ex"
    done = fairtrial("init", directory)
    assert done.returncode == 0, done.stderr
    return directory


def test_a_sweep_is_complete_sealed_and_tells_no_secret(example: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    # The words behind --arms need no commas.
    words = bench(example, out, "--runs", 1, "--json", arms="baseline")
    words[words.index("baseline") + 1 : words.index("baseline") + 1] = ["workflow"]
    done = fairtrial(*words, ANTHROPIC_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["schema"] == "bench-report/1"
    assert value["remarks"]["scripted_rows"] == 2
    assert value["remarks"]["without_controls"] == {"linear": "missing"}
    assert value["remarks"]["environment_differs"] == {}
    rows = rows_of(out)
    assert sorted((row["arm"], row["resolved"], row["controls"]) for row in rows) == [
        ("baseline", True, "missing"),
        ("workflow", True, "missing"),
    ]
    assert fairtrial("audit", out, "--expect", value["seal"]).returncode == 0
    assert not any(KEY.encode() in path.read_bytes() for path in out.rglob("*") if path.is_file())
    gate = fairtrial("gate", out, "--incumbent", "workflow", "--candidate", "baseline", "--model", MODEL, "--json")
    assert (gate.returncode, json.loads(gate.stdout)["decision"]) == (5, "insufficient_evidence")


def test_a_sweep_that_is_killed_counts_every_trial_once(example: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    command = [sys.executable, "-m", "fairtrial", "-q", *map(str, bench(example, out, "--runs", 3))]
    sweep = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list(out.glob("trials/*/1/wire-*.jsonl")):
        time.sleep(0.01)
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    done = fairtrial("resume", out)
    assert done.returncode == 0, done.stderr
    rows = rows_of(out)
    counted = [row for row in rows if row["error_kind"] is None]
    assert sorted(row["key"] for row in counted) == [f"bench/linear/baseline/{run}" for run in range(3)]
    assert len(rows) > len(counted)
    assert all(row["error_kind"] == "interrupted" for row in rows if row not in counted)
    assert fairtrial("audit", out).returncode == 0
    again = fairtrial("resume", out)
    assert again.returncode == 0
    assert len(rows_of(out)) == len(rows), "nothing is left to do"


def test_only_a_sweep_that_measures_time_waits_for_another_measurement(example: Path, tmp_path: Path) -> None:
    timed, other = tmp_path / "timed", tmp_path / "other"
    words = [*bench(example, timed, "--runs", 1, "--metric", "duration_s", "--lock-wait", 500)]
    with acquire_lock(HOST_LOCK_PATH, wait_s=500, on_wait=lambda _holder: None):
        command = [sys.executable, "-m", "fairtrial", *map(str, words)]
        waits = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert waits.stderr is not None
        said = next((line for line in iter(waits.stderr.readline, "") if "waiting up to 500 s" in line), "")
        assert f"another measurement on this host: pid {os.getpid()} (" in said
        done = fairtrial(*bench(example, other, "--runs", 1, "--lock-wait", 0))
        assert done.returncode == 0, done.stderr
        assert not list(timed.glob("trials/*"))
    _, stderr = waits.communicate(timeout=500)
    assert waits.returncode == 0, stderr
    assert [row["measurement_lock_wait_ms"] for row in rows_of(other)] == [None]
    (row,) = rows_of(timed)
    assert row["measurement_lock_wait_ms"] > 0


def slow_script(path: Path, seconds: str) -> Path:
    """A scripted model whose agent sleeps in its first turn, for a time that no other process has."""
    usage = {"uncached_input": 10, "output": 1}
    sleep = {"calls": [{"tool": "Bash", "input": {"command": f"sleep {seconds}", "timeout_s": 600}}], "usage": usage}
    agents = [{"name": "slow", "turns": [sleep, {"text": "Done.", "usage": usage}]}]
    path.write_text(json.dumps({"schema": "script/1", "agents": agents}))
    return path


def is_running(words: bytes) -> bool:
    """Tell whether any process of this machine was started with those words."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words in process.read_bytes().replace(b"\0", b" "):
                return True
        except OSError:
            continue  # it ended meanwhile
    return False


def open_below(pid: int) -> Iterator[int]:
    """Descriptors of all processes below one; each can be read once its process has ended."""
    for children in Path("/proc").glob(f"{pid}/task/*/children"):
        with suppress(OSError):  # it ended meanwhile
            for child in map(int, children.read_text().split()):
                yield os.pidfd_open(child)
                yield from open_below(child)


def test_nothing_survives_a_sweep_that_is_killed(example: Path, tmp_path: Path, public_path: Path) -> None:
    """B59."""
    seconds = f"600.9{os.getpid()}"
    script = slow_script(tmp_path / "slow.yaml", seconds)
    words = bench(example, tmp_path / "r", "--runs", 1, "--scratch", public_path, script=script)
    command = [sys.executable, "-m", "fairtrial", "-q", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sweep:
        while sweep.poll() is None and not is_running(f"sleep {seconds}".encode()):
            time.sleep(0.01)
        below = list(open_below(sweep.pid))
        sweep.kill()
    assert len(below) >= 4, "the gateway, a worker, its sandbox, what sleeps in there"
    for descriptor in below:
        select.select([descriptor], [], [])
        os.close(descriptor)
    assert not is_running(f"sleep {seconds}".encode())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["INT", "TERM", "HUP"])
def test_an_interrupt_ends_a_sweep_cleanly_and_resume_finishes_it(
    example: Path, tmp_path: Path, public_path: Path, number: signal.Signals
) -> None:
    out, scratch, seconds = tmp_path / "r", public_path, f"6.0{number:d}{os.getpid()}"
    script = slow_script(tmp_path / "slow.yaml", seconds)
    words = bench(example, out, "--runs", 2, "--scratch", scratch, script=script)
    sweep = subprocess.Popen([sys.executable, "-m", "fairtrial", *map(str, words)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and sweep.poll() is None and not is_running(f"sleep {seconds}".encode()):
        time.sleep(0.01)
    sweep.send_signal(number)
    _, said = sweep.communicate(timeout=120)
    assert sweep.returncode == 128 + number, said
    assert f"resume {out}" in said
    assert not is_running(f"sleep {seconds}".encode())
    assert list(scratch.iterdir()) == []
    (row,) = rows_of(out)
    assert (row["error_kind"], row["resolved"], row["ok"]) == ("cancelled", False, False)
    assert not (out / "seal.json").exists(), "a stopped sweep is not sealed"
    assert "INCOMPLETE: 2 of 2 planned trials have no counting attempt: linear/baseline (2)." in (
        out / "report.md"
    ).read_text().replace("\\", "")
    done = fairtrial("resume", out)
    assert done.returncode == 0, done.stderr
    counted = [(row["key"], row["attempt"], row["error_kind"]) for row in rows_of(out)]
    assert counted == [
        ("bench/linear/baseline/0", 1, "cancelled"),
        ("bench/linear/baseline/0", 2, "oracle-failed"),
        ("bench/linear/baseline/1", 1, "oracle-failed"),
    ]
    assert fairtrial("audit", out).returncode == 0


def test_an_incumbent_that_resolves_nothing_is_named_and_ends_with_one(example: Path, tmp_path: Path) -> None:
    usage = {"uncached_input": 10, "output": 1}
    skill = {"calls": [{"tool": "Skill", "input": {"skill": "tally-work"}}], "usage": usage}
    script = tmp_path / "idle.yaml"
    agents = [{"name": "idle", "turns": [skill, {"text": "Done.", "usage": usage}]}]
    script.write_text(json.dumps({"schema": "script/1", "agents": agents}))
    out = tmp_path / "r"
    done = fairtrial(*bench(example, out, "--runs", 1, "--json", arms="workflow_direct,baseline", script=script))
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert report["broken_incumbent_arms"] == ["workflow_direct"], "a baseline that resolves nothing is no incumbent"
    assert report["uncounted"] == {}, "failures are evidence"
    assert "BROKEN INCUMBENT" in (out / "report.md").read_text()


def test_an_engine_that_is_not_installed_is_refused(example: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    done = fairtrial(*bench(example, out, "--engine", "lokal"))
    assert done.returncode == 2, done.stderr
    assert "no plugin 'lokal' in fairtrial.engines; installed: local" in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(("n_runs", "options", "n_begun"), [(5, ["--outage-streak", 2], 2), (7, [], 5)])
def test_an_outage_stops_the_sweep(
    n_runs: int, options: list[object], n_begun: int, example: Path, tmp_path: Path
) -> None:
    """B47: the same failure at once, again and again, is no result of any arm, and nothing else is begun."""
    tasks = example / "tasks.yaml"
    tasks.write_text(tasks.read_text().replace("    class: performance", "    class: performance\n    setup: exit 3"))
    out = tmp_path / "r"
    done = fairtrial(*bench(example, out, "--runs", n_runs, *options))
    assert done.returncode == 5, done.stderr
    assert [row["error_kind"] for row in rows_of(out)] == ["infra-error"] * n_begun
    assert len(list((out / "trials").iterdir())) == n_begun
    assert f"{n_begun} trials in a row ended as in an outage" in done.stderr
    report = " ".join((out / "report.md").read_text().replace("\\", "").split())
    incomplete = f"INCOMPLETE: {n_runs} of {n_runs} planned trials have no counting attempt"
    assert incomplete in report, "also those that never began"


def test_changed_inputs_are_refused_by_name(example: Path, tmp_path: Path) -> None:
    out, tool = tmp_path / "r", tmp_path / "tools" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tasks = example / "tasks.yaml"
    named = f"    class: performance\n    toolchains: [{tool.parents[1]}]"
    tasks.write_text(tasks.read_text().replace("    class: performance", named))
    assert fairtrial(*bench(example, out, "--runs", 1)).returncode == 0
    assert list(rows_of(out)[0]["toolchain_digests"]) == [str(tool.parents[1])]
    tool.write_text("#!/bin/ls\n")
    oracle = example / "oracles" / "test_linear.py"
    oracle.write_text(oracle.read_text() + "\n")
    done = fairtrial("resume", out)
    assert done.returncode == 2
    assert "task linear: oracle_digest was" in done.stderr
    assert "task linear: toolchain_digests was" in done.stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["--arms", "baselin"], "did you mean 'baseline'?"),
        (["--model", "claude-latest"], "no fixed model"),
        (["--agent", "bash-agnt"], "no plugin 'bash-agnt'"),
        (["--metric", "cost"], "did you mean 'cost_usd'?"),
        (["--only", "lineer"], "did you mean 'linear'?"),
        (["--arms", "workflow", "--agent", "nop"], "knows no skills"),
        (["--allow-unenforced", "memry"], "did you mean 'memory'?"),
        (["--skill", "work"], "is not ROLE=DIRECTORY"),
    ],
)
def test_usage_faults_are_found_before_anything_is_made(
    example: Path, tmp_path: Path, changes: list[str], words: str
) -> None:
    out = tmp_path / "r"
    done = fairtrial(*bench(example, out, *changes))
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert not out.exists()


def test_without_a_key_nothing_begins(example: Path, tmp_path: Path) -> None:
    words = [word for word in bench(example, tmp_path / "r") if word not in {"--script", example / "script.yaml"}]
    done = fairtrial(*words, ANTHROPIC_API_KEY="")
    assert done.returncode == 2
    assert "variable ANTHROPIC_API_KEY is not set" in done.stderr
    assert not (tmp_path / "r").exists()


def test_controls_that_fail_are_told_here_and_in_every_report(example: Path, tmp_path: Path) -> None:
    (example / "oracles" / "test_linear.py").write_text(
        "import unittest\n\n\nclass L(unittest.TestCase):\n"
        "    def test_a(self):\n        pass\n\n    def test_b(self):\n        pass\n"
    )
    checked = fairtrial(
        "check", example / "tasks.yaml", "--only", "linear", "--runs", 1, "--json", "--out", tmp_path / "c"
    )
    assert checked.returncode == 1, checked.stderr
    verdicts = {each["control"]: each["held"] for each in json.loads(checked.stdout)["controls"]}
    assert (verdicts["nop"], verdicts["reference"]) == ("failed", "held")
    done = fairtrial(*bench(example, tmp_path / "r", "--runs", 1))
    assert re.search(r"NO FRESH CONTROLS.*linear \(failed\)", " ".join(done.stdout.split()))
