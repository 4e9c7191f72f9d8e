"""What a toolchain's digest depends on, and what not."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.bench.toolchains import SYSTEM, toolchain_digest
from fairtrial.errors import UsageError


@pytest.fixture
def toolchain(tmp_path: Path) -> Path:
    root = tmp_path / "tools"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "tool").write_text("#!/bin/sh\n")
    (root / "bin" / "tool").chmod(0o755)
    (root / "bin" / "alias").symlink_to("tool")
    (root / "lib").mkdir()
    (root / "lib" / "m.py").write_text("x = 1\n")
    return root


CHANGES: dict[str, Callable[[Path], object]] = {
    "bytes of the same length": lambda root: (root / "lib/m.py").write_text("x = 2\n"),
    "an executable bit": lambda root: (root / "bin/tool").chmod(0o644),
    "a link": lambda root: ((root / "bin/alias").unlink(), (root / "bin/alias").symlink_to("other")),
    "a name": lambda root: (root / "lib/m.py").rename(root / "lib/n.py"),
    "one more file": lambda root: (root / "lib/n.py").touch(),
    "one more directory": lambda root: (root / "share").mkdir(),
    "one file less": lambda root: (root / "bin/tool").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_content_changes_it(toolchain: Path, change: str) -> None:
    before = toolchain_digest(str(toolchain))
    CHANGES[change](toolchain)
    assert toolchain_digest(str(toolchain)) != before


def test_times_places_and_compiled_files_do_not(toolchain: Path, tmp_path: Path) -> None:
    before = toolchain_digest(str(toolchain))
    os.utime(toolchain / "lib" / "m.py", (1, 1))
    (toolchain / "lib" / "__pycache__").mkdir()
    (toolchain / "lib" / "__pycache__" / "m.pyc").write_bytes(b"x")
    toolchain.rename(tmp_path / "elsewhere")
    assert toolchain_digest(str(tmp_path / "elsewhere")) == before


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone: cannot be read whole: No such file"):
        toolchain_digest(str(tmp_path / "gone"))


def test_what_opens_and_cannot_be_read_is_refused_as_well() -> None:
    memory = f"/proc/{os.getpid()}/task/{os.getpid()}"  # whose `mem` has nothing at its beginning
    with pytest.raises(UsageError, match=r"cannot be read whole: .*; name another directory"):
        toolchain_digest(memory)


def test_the_system_itself_is_not_read() -> None:
    assert toolchain_digest("/usr") == SYSTEM
