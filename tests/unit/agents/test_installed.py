"""Finding agents on a machine that has them, has them otherwise, or has them not."""

import os
import stat
import sys
from pathlib import Path

import pytest

from fairtrial.agents.bash_agent import BashAgent
from fairtrial.agents.claude_code import ClaudeCode
from fairtrial.agents.codex import Codex
from fairtrial.agents.gemini_cli import GeminiCli
from fairtrial.agents.mini_swe_agent import MiniSweAgent
from fairtrial.agents.nop import Nop
from fairtrial.agents.opencode import OpenCode
from fairtrial.protocols import Agent

SEARCHED = [ClaudeCode, Codex, GeminiCli, MiniSweAgent, OpenCode]


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def bin_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


@pytest.mark.parametrize("agent", SEARCHED)
def test_an_agent_that_is_not_there_says_how_to_install_it(agent: type[Agent], bin_path: Path) -> None:
    assert not list(bin_path.iterdir())
    probe = agent().probe()
    assert (probe.binary, probe.version, probe.installation) == (None, None, None)
    assert agent.install in probe.missing


@pytest.mark.parametrize("agent", [BashAgent, Nop])
def test_our_own_agents_are_always_there(agent: type[Agent], bin_path: Path) -> None:
    assert bin_path.exists()
    assert agent().probe().missing is None


def test_a_link_to_the_program_is_followed_for_the_mount(bin_path: Path, tmp_path: Path) -> None:
    real = program(tmp_path / "lib" / "claude.exe", "echo '2.1.332 (Claude Code)'")
    (bin_path / "claude").symlink_to(real)
    probe = ClaudeCode().probe()
    assert probe.version == "2.1.332"
    assert probe.installation is not None
    (bind,) = probe.installation.binds
    assert (bind.source, bind.target) == (real, "/opt/agent/claude")
    assert "untested" not in probe.details


def test_another_version_than_the_tested_one_is_said(bin_path: Path) -> None:
    program(bin_path / "claude", "echo '9.9.9 (Claude Code)'")
    probe = ClaudeCode().probe()
    assert probe.missing is None
    assert "2.1.332" in probe.details["untested"]


def test_a_program_that_tells_no_version_is_no_agent(bin_path: Path) -> None:
    program(bin_path / "claude", "echo native binary not installed >&2; exit 1")
    assert "does not tell a version" in str(ClaudeCode().probe().missing)


def test_behind_the_launcher_of_codex_the_native_program_is_found(bin_path: Path, tmp_path: Path) -> None:
    scope = tmp_path / "node_modules" / "@openai"
    launcher = program(scope / "codex" / "bin" / "codex.js", "exit 1")
    native = program(
        scope / "codex-linux-x64" / "vendor" / "some-linux-musl" / "bin" / "codex", "echo codex-cli 0.171.0"
    )
    (bin_path / "codex").symlink_to(launcher)
    probe = Codex().probe()
    assert (probe.binary, probe.version) == (str(native), "0.171.0")
    assert probe.installation is not None
    assert probe.installation.argv == ("/opt/agent/bin/codex",)
    assert probe.installation.binds[0].source == native.parent.parent


def test_opencode_without_ripgrep_would_download_it(bin_path: Path) -> None:
    program(bin_path / "opencode", "echo 1.18.33")
    assert "rg" in str(OpenCode().probe().missing)
    program(bin_path / "rg", "exit 0")
    probe = OpenCode().probe()
    assert probe.missing is None
    assert probe.installation is not None
    assert [bind.target for bind in probe.installation.binds] == ["/opt/agent/opencode", "/opt/agent/rg"]


def test_gemini_is_run_by_node_which_comes_along(bin_path: Path, tmp_path: Path) -> None:
    bundle = program(tmp_path / "gemini-cli" / "bundle" / "gemini.js", "echo 0.61.0")
    (bin_path / "gemini").symlink_to(bundle)
    assert "node" in str(GeminiCli().probe().missing)
    program(bin_path / "node", 'exec /bin/sh "$@"')
    probe = GeminiCli().probe()
    assert probe.installation is not None
    assert probe.installation.argv == ("/opt/node", "/opt/agent/bundle/gemini.js")
    assert [bind.source for bind in probe.installation.binds] == [bundle.parent.parent, bin_path / "node"]


def test_mini_swe_agent_is_its_virtual_environment_and_the_python_below(bin_path: Path, tmp_path: Path) -> None:
    root, base = tmp_path / "venv", tmp_path / "python"
    (base / "bin").mkdir(parents=True)
    python = program(root / "bin" / "python", "echo 2.4.6")
    (root / "pyvenv.cfg").write_text(f"home = {base}/bin\n")
    config = root / "lib" / "python3.11" / "site-packages" / "minisweagent" / "config" / "mini.yaml"
    config.parent.mkdir(parents=True)
    config.touch()
    script = root / "bin" / "mini"
    script.write_text(f"#!{python}\n")
    script.chmod(0o755)
    (bin_path / "mini").symlink_to(script)
    probe = MiniSweAgent().probe()
    assert probe.version == "2.4.6"
    assert probe.installation is not None
    assert probe.installation.argv[:2] == ("/opt/agent/bin/python", "-I")
    inside = "/opt/agent/lib/python3.11/site-packages/minisweagent/config/mini.yaml"
    assert probe.installation.argv[-1] == inside
    assert [(bind.source, bind.target) for bind in probe.installation.binds] == [
        (root, "/opt/agent"),
        (base, str(base)),
    ]


def test_a_mini_of_another_kind_is_no_agent(bin_path: Path) -> None:
    program(bin_path / "mini", "exit 0")
    assert "virtual environment" in str(MiniSweAgent().probe().missing)


def test_a_binary_mini_is_no_agent(bin_path: Path) -> None:
    (bin_path / "mini").write_bytes(os.urandom(64) + Path(sys.executable).read_bytes()[:64])
    (bin_path / "mini").chmod(0o755)
    assert "virtual environment" in str(MiniSweAgent().probe().missing)
