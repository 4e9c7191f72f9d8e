import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fairtrial.cli.output import own_command


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A program as an installer leaves it, in a directory whose name a shell would split."""
    program = tmp_path / "my bin" / "fairtrial"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m fairtrial "$@"\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("way", ["on PATH", "not on PATH", "another on PATH", "as a module", "by a relative path"])
def test_a_printed_command_works_as_it_is_printed(
    way: str, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv0 = str(Path(sys.prefix) / "fairtrial" / "__main__.py") if way == "as a module" else str(installed)
    if way == "on PATH":
        monkeypatch.setenv("PATH", str(installed.parent), prepend=":")
    if way == "another on PATH":
        (tmp_path / "fairtrial").write_text("#!/bin/sh\nexit 9\n")
        (tmp_path / "fairtrial").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    if way == "by a relative path":
        monkeypatch.chdir(installed.parent)
        argv0 = "./fairtrial"
    monkeypatch.setattr(sys, "argv", [argv0])
    command = own_command("audit", "/nonexistent/my results")
    assert command.startswith("fairtrial ") == (way == "on PATH")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 2
    assert "/nonexistent/my results" in done.stderr
