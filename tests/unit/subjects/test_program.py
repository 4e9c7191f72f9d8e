import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.host.process import run as run_process
from fairtrial.model.loop import Probe
from fairtrial.model.process import ProcessResult
from fairtrial.subjects.program import ask_program, find_program, linked_version, look_up


def probe(name: str) -> Probe:
    pattern = r"tool (\d+)\.(\d+)"
    return find_program(
        name, ask=("--version",), pattern=pattern, oldest=(2, 31), install="apt-get install tool", label="tool"
    )


def program(path: Path, says: str) -> str:
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("says", "what"),
    [
        (None, "binary '{path}' is no program that can be run"),
        ("hello", "{path} --version says 'hello', not a tool version"),
        ("x" * 60_000, "{path} --version says '" + "x" * 400 + "', not a tool version"),
        ("tool 2.30 of\nold", "{path} is tool 2.30, which is too old"),
    ],
)
def test_a_binary_that_a_variant_names_is_to_be_named_anew_and_not_installed(
    tmp_path: Path, says: str | None, what: str
) -> None:
    path = str(tmp_path / "other") if says is None else program(tmp_path / "other", says)
    expected = what.format(path=path) + "; let the variant's `binary` name tool 2.31 or newer"
    assert probe(path).missing == expected


def test_a_named_binary_may_be_one_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    what = "binary 'tool-2.40' is no program that can be run"
    assert probe("tool-2.40").missing == what + "; let the variant's `binary` name tool 2.31 or newer"


@pytest.mark.parametrize(
    ("says", "what"), [(None, "no program 'tool' on PATH"), ("tool 2.30", "{path} is tool 2.30, which is too old")]
)
def test_a_program_of_the_path_is_to_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str | None, what: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = str(tmp_path / "tool") if says is None else program(tmp_path / "tool", says)
    assert probe("tool").missing == what.format(path=path) + "; install tool 2.31 or newer: apt-get install tool"


def test_a_program_of_a_fit_version_is_not_missing(tmp_path: Path) -> None:
    found = probe(program(tmp_path / "other", "tool 2.31"))
    assert (found.binary, found.version, found.missing) == (str(tmp_path / "other"), "tool 2.31", None)


def test_a_library_tells_its_own_version_and_one_that_cannot_be_told_is_unknown(tmp_path: Path) -> None:
    assert linked_version(Path("/usr/bin/env"), "libnothing") is None
    assert linked_version(tmp_path / "nothing", "libc") is None
    assert linked_version(Path(sys.executable).resolve(), "libc") is None  # it does not name itself in that form


def test_a_program_that_was_killed_while_it_answered_is_asked_again(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\n[ -e {tmp_path}/asked ] && echo 1.2 && exit\n: > {tmp_path}/asked\nkill -9 $$\n")
    tool.chmod(0o755)
    assert ask_program([str(tool)]).stdout.head == b"1.2\n"


def test_a_program_that_always_dies_is_not_asked_for_ever(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\necho >> {tmp_path}/asked\nkill -9 $$\n")
    tool.chmod(0o755)
    assert ask_program([str(tool)]).returncode == -9
    assert (tmp_path / "asked").read_text().count("\n") == 3


def run(argv: Sequence[str], *, cwd: Path) -> ProcessResult:
    return run_process(argv, env={"PATH": "/usr/bin:/bin"}, cwd=cwd, timeout_s=60, capture_bytes=100)


@pytest.mark.parametrize(
    ("script", "absent", "found"),
    [("echo head", 0, "head"), ("echo head", 1, "head"), ("exit 0", 0, None), ("exit 1", 1, None)],
)
def test_a_look_tells_what_is_there_or_that_nothing_is(
    tmp_path: Path, script: str, absent: int, found: str | None
) -> None:
    assert look_up(run, ("sh", "-c", script), cwd=tmp_path, absent=absent) == found


@pytest.mark.parametrize(
    ("script", "absent"),
    [
        ("echo locked >&2; exit 1", 0),
        ("echo locked >&2; exit 1", 1),
        ("echo locked >&2", 0),
        ("exit 0", 1),
        ("kill -9 $$", 0),
    ],
)
def test_a_look_that_failed_never_says_that_nothing_is_there(tmp_path: Path, script: str, absent: int) -> None:
    with pytest.raises(HostError, match="the store cannot be read"):
        look_up(run, ("sh", "-c", script), cwd=tmp_path, absent=absent)
