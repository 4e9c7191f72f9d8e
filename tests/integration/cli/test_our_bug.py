"""A bug of ours in one trial: that trial is void, the sweep goes on to its end, and the command ends with 70."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = [pytest.mark.needs("git"), pytest.mark.timeout(600), pytest.mark.xdist_group("our-bug")]

AGENT: Final = """
from fairtrial.agents.nop import Nop


class Buggy(Nop):
    def read_report(self, lines):
        raise ZeroDivisionError("division by zero in a plugin")
"""
SUBJECT: Final = """
from fairtrial.subjects.git import Git


class Buggy(Git):
    def environment(self, *arguments, **more):
        raise ZeroDivisionError("division by zero in a plugin")
"""


def add_plugin(site: Path, group: str, text: str) -> dict[str, str]:
    """A distribution of the test's own; the environment in which it is installed."""
    information = site / "buggy-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: buggy\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[fairtrial.{group}]\nbuggy = buggy:Buggy\n")
    (site / "buggy.py").write_text(text)
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(site)]))
    return {**os.environ, "PYTHONPATH": paths, "ANTHROPIC_API_KEY": "sk-ant-none"}


def fairtrial(env: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fairtrial", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, env=env)


def rows_of(out: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return [row for row in rows if row["final"]]


def assert_kept(out: Path, env: dict[str, str]) -> None:
    (kept,) = out.glob("trials/*/1/exception.txt")
    assert "ZeroDivisionError: division by zero in a plugin" in kept.read_text()
    assert "Traceback" in kept.read_text(), "where it was raised can be found"
    assert (out / "seal.json").exists(), "the sweep came to its end"
    assert fairtrial(env, "audit", out).returncode == 5, "whole, and short of a counting attempt"


@pytest.mark.needs("bwrap")
def test_an_agent_lane_sweep_goes_on_and_ends_with_70(tmp_path: Path) -> None:
    env = add_plugin(tmp_path / "site", "agents", AGENT)
    example, out = tmp_path / "ex", tmp_path / "r"
    assert fairtrial(env, "init", example).returncode == 0
    arms = tmp_path / "arms.yaml"
    phases = [{"prompt": "{task}"}]
    arms.write_text(json.dumps({"arms": {name: {"phases": phases, "agent": name} for name in ("buggy", "nop")}}))
    words = ("bench", "--tasks", example / "tasks.yaml", "--only", "linear", "--arms", "buggy", "nop", "--runs", 1)
    done = fairtrial(env, *words, "--arms-file", arms, "--model", "claude-sonnet-4-5", "--out", out)
    assert done.returncode == 70, done.stderr
    assert "Traceback" not in done.stderr
    rows = {row["arm"]: row for row in rows_of(out)}
    assert (rows["buggy"]["error_kind"], rows["buggy"]["resolved"]) == ("unknown", False)
    assert "ZeroDivisionError: division by zero in a plugin" in rows["buggy"]["error_detail"]
    assert rows["nop"]["error_kind"] == "oracle-failed", "the other trial was run and judged"
    assert_kept(out, env)


@pytest.mark.xdist_group("measurement")
def test_a_tool_lane_sweep_goes_on_and_ends_with_70(tmp_path: Path) -> None:
    env = add_plugin(tmp_path / "site", "subjects", SUBJECT)
    out = tmp_path / "r"
    words = ("loop", "--subjects", "git,buggy", "--scenarios", "task_loop", "--runs", 1, "--out", out)
    done = fairtrial(env, *words)
    assert done.returncode == 70, done.stderr
    assert "Traceback" not in done.stderr
    kinds = {row["subject"]: row["error_kind"] for row in rows_of(out)}
    assert kinds.pop("buggy") == "unknown"
    assert set(kinds.values()) == {None}, kinds
    assert_kept(out, env)
