"""What `doctor` tells of agents: what is installed, which version was tested, and the command that installs it."""

import os
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from fairtrial.cli.doctor import Check, Status, look
from fairtrial.plugins import load_plugin
from fairtrial.protocols import Agent

WITH_MODEL = ["bash-agent", "claude-code", "codex", "gemini-cli", "mini-swe-agent", "opencode"]


def agent_of(name: str) -> Agent:
    agent: Agent = load_plugin("fairtrial.agents", name).target()
    return agent


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that alone is on PATH beside the system's own."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def checks_of(scratch: Path) -> dict[str, Check]:
    return {check.name: check for check in look(scratch)}


def test_every_agent_is_told_with_its_tested_version_and_its_install_command(programs: Path) -> None:
    checks = checks_of(programs)
    for point in entry_points(group="fairtrial.agents"):
        agent, check = agent_of(point.name), checks[f"agent {point.name}"]
        assert agent.install in f"{check.found} {check.remedy}", point.name
        if agent.tested_version is not None:
            assert f"tested: {agent.tested_version}" in check.found, point.name


def test_one_that_is_missing_says_so_and_does_not_stop_a_sweep(programs: Path) -> None:
    check = checks_of(programs)["agent claude-code"]
    assert check.status is Status.NOTE
    assert check.found.startswith("not usable: no program 'claude' on PATH; tested: ")
    assert check.remedy == agent_of("claude-code").install


def test_another_version_than_the_tested_one_is_a_note(programs: Path) -> None:
    claude = programs / "claude"
    claude.write_text("#!/bin/sh\necho '9.8.7 (Claude Code)'\n")
    claude.chmod(0o755)
    check = checks_of(programs)["agent claude-code"]
    assert check.status is Status.NOTE
    assert check.found.startswith(f"9.8.7 at {os.path.realpath(claude)}; tested: ")
    assert "measured with" in check.found


@pytest.mark.parametrize("below_home", [True, False])
def test_a_path_below_a_home_that_sessions_see_is_a_note(
    below_home: bool, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the Python below a virtual environment, which must stay where it is."""
    monkeypatch.setenv("HOME", str(programs / ("home" if below_home else "elsewhere")))
    environment, base = programs / "venv", programs / "home" / "python"
    config = environment / "lib" / "python3.11" / "site-packages" / "minisweagent" / "config" / "mini.yaml"
    for directory in (base / "bin", environment / "bin", config.parent):
        directory.mkdir(parents=True)
    config.touch()
    (environment / "pyvenv.cfg").write_text(f"home = {base}/bin\n")
    python, script = environment / "bin" / "python", programs / "mini"
    python.write_text(f"#!/bin/sh\necho {agent_of('mini-swe-agent').tested_version}\n")
    script.write_text(f"#!{python}\n")
    for program in (python, script):
        program.chmod(0o755)
    check = checks_of(programs)["agent mini-swe-agent"]
    assert check.status is (Status.NOTE if below_home else Status.OK), check.found
    assert (f"every session can read the path {base}" in check.found) is below_home
