"""Our own scripts as files of a sandbox, by their bytes.

A mount of the file itself would name its place on the host in the mount table, which everything inside can read: the
directory that fairtrial lies in, and often the user whose home that is.
"""

from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

from fairtrial.model.sandbox import File

__all__ = ["payload_file"]

_PAYLOAD: Final = Path(__file__).resolve().parents[1] / "payload"


def payload_file(target: str, *, script: str | None = None, mode: int = 0o444) -> File:
    """A script at a place inside; the one of the place's own name, unless another is meant."""
    return File(target=target, content=_content(script or PurePosixPath(target).name), mode=mode)


@cache
def _content(name: str) -> bytes:
    return (_PAYLOAD / name).read_bytes()
