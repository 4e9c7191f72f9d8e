"""Which settings file pytest uses: one that the oracle brings, else the base's, never one that the change made.

Left to itself pytest looks for the nearest one above its tests, and `addopts` in it can load any code.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from fairtrial.judging.placement import read_file
from fairtrial.judging.values import ChangedPath

__all__ = ["Settings", "choose_settings"]

_MOST_BYTES: Final = 8 << 20
_CANDIDATES: Final = (
    (b"pytest.toml", b""),
    (b".pytest.toml", b""),
    (b"pytest.ini", b""),
    (b".pytest.ini", b""),
    (b"pyproject.toml", b"[tool.pytest"),
    (b"tox.ini", b"[pytest]"),
    (b"setup.cfg", b"[tool:pytest]"),
)
"""In pytest's own order; one counts if it has the section."""


class Settings(NamedTuple):
    """A settings file.

    Attributes:
        path: Relative to the workspace, in its root, since paths in it are relative to where it lies.
        content: What must be put there first; None = it is there.
    """

    path: bytes
    content: bytes | None


def choose_settings(root: Path, change: Mapping[bytes, ChangedPath], own: frozenset[bytes]) -> Settings:
    """Choose the settings file for a tree in which runner files are restored and the oracle's files in place.

    Args:
        root: The tree.
        change: The credited change, by path.
        own: Paths that the oracle brings.
    """
    for name, section in _CANDIDATES:
        changed = None if name in own or not section else change.get(name)
        content = read_file(root, name, _MOST_BYTES) if changed is None else changed.before
        if content is not None and section in content:
            if changed is None:
                return Settings(name, None)
            return Settings(_fresh(name.rpartition(b".")[2]), content)
    return Settings(_fresh(b"ini"), b"[pytest]\n")


def _fresh(suffix: bytes) -> bytes:
    return b".fairtrial-" + secrets.token_hex(8).encode() + b"." + suffix
