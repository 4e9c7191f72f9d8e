"""What is written while we read it is refused: what would be kept is neither the file before nor the one after."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from fairtrial.bench.assets import SnapshotSize, capture_copy, capture_dependency
from fairtrial.bench.blobs import read_stable
from fairtrial.errors import UsageError

WRITES: dict[str, Callable[[Path], object]] = {
    "longer": lambda path: path.write_bytes(b"longer than before"),
    "shorter": lambda path: path.write_bytes(b"s"),
    "as long": lambda path: path.write_bytes(b"AFTER!"),
    "touched": os.utime,
}
READERS: dict[str, Callable[[Path], object]] = {
    "an oracle's file": lambda root: read_stable(root, "file", max_bytes=1000),
    "a copy": lambda root: capture_copy(root, "file", root / "frozen", SnapshotSize()),
    "a dependency": lambda root: capture_dependency(root, "file", "there", root / "frozen", SnapshotSize()),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    os.utime(path, ns=(0, 0))  # a clock that ticks every 4 ms would give a write at once the same time
    return tmp_path


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("write", WRITES)
def test_a_file_that_is_written_between_our_look_and_our_reading_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, reader: str, write: str
) -> None:
    open_it = os.fdopen

    def written_just_now(fd: int, mode: str) -> IO[Any]:
        if "r" in mode:
            WRITES[write](root / "file")
        return open_it(fd, mode)

    with monkeypatch.context() as at_that_moment:
        at_that_moment.setattr(os, "fdopen", written_just_now)
        with pytest.raises(UsageError, match="file: was changed while it was read; run again when nothing writes it"):
            READERS[reader](root)
    assert list(root.glob("frozen/*")) == list(root.glob("frozen/.*")) == [], "nothing of it is kept"


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_nobody_writes_is_read(root: Path, reader: str) -> None:
    assert READERS[reader](root)
