"""The plugin of an arm as it is written, and from where it is captured."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.plugin_files import ALL_PARTS, PARTS, capture_plugin, is_exact_version
from fairtrial.errors import UsageError
from fairtrial.model.bench import PluginFiles

__all__ = ["PluginEntry", "PluginPlace", "asked_plugins", "capture_arm_plugin", "refuse_unused_plugins"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginEntry:
    """A plugin of the agent, as written.

    Attributes:
        name: What its manifest calls it.
        version: Its exact version; left out together with `directory`, `--plugin` says both.
        directory: Where it is, below the file's directory.
        skills: Skills that it must have besides those that the phases demand.
        parts: Its directories that are taken.
    """

    name: str
    version: str | None = None
    directory: str | None = None
    skills: tuple[str, ...] = ()
    parts: tuple[str, ...] = PARTS

    def __post_init__(self) -> None:
        for name in (self.name, *self.skills):
            if not _NAME.fullmatch(name):
                raise ValueError(f"name {name!r:.80} must be letters, digits, '.', '_' or '-'")
        if (self.version is None) != (self.directory is None):
            raise ValueError("a plugin has both 'version' and 'directory', or neither and is named by --plugin")
        if self.version is not None and not is_exact_version(self.version):
            raise ValueError(f"version {self.version!r:.80} is no exact version such as 1.2.3")
        for part in self.parts:
            if part not in ALL_PARTS:
                raise ValueError(f"part {part!r:.40} is none that is taken; valid: {', '.join(ALL_PARTS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPlace:
    """Where the operator has a plugin.

    Attributes:
        version: Its exact version.
        directory: Its directory.
    """

    version: str
    directory: Path


def capture_arm_plugin(
    arm: str,
    entry: PluginEntry,
    root: Path,
    demanded: Sequence[str],
    places: Mapping[str, PluginPlace],
    blobs: BlobStore,
) -> PluginFiles:
    """Capture an arm's plugin from where its file, or else the operator, says that it is.

    Args:
        arm: The arm's name, for messages.
        entry: What is written of it.
        root: Where the file's paths start.
        demanded: Skills that the arm's phases demand of it.
        places: What the operator says, by name.
        blobs: Takes the captured bytes.

    Raises:
        UsageError: Nobody says where it is, or it is not what it must be.
    """
    place = places.get(entry.name)
    if entry.version is not None and entry.directory is not None:
        place = PluginPlace(version=entry.version, directory=root / entry.directory)
    if place is None:
        raise UsageError(
            f"arm {arm!r} needs the plugin {entry.name!r}: say where it is and which version, as in"
            f" --plugin {entry.name}@1.2.3=DIRECTORY"
        )
    skills = tuple(dict.fromkeys((*entry.skills, *demanded)))
    return capture_plugin(entry.name, place.version, place.directory, blobs, skills=skills, parts=entry.parts)


def asked_plugins(entries: Iterable[PluginEntry | None]) -> frozenset[str]:
    """The plugins of which the operator is to say where they are."""
    return frozenset(entry.name for entry in entries if entry is not None and entry.version is None)


def refuse_unused_plugins(entries: Iterable[PluginEntry | None], places: Mapping[str, PluginPlace]) -> None:
    """Refuse a plugin that was named for no arm: one that was thought of would be missing from the comparison.

    Raises:
        UsageError: There is one.
    """
    if unused := sorted(places.keys() - asked_plugins(entries)):
        raise UsageError(f"--plugin {unused[0]}: no arm of this sweep asks for it; take it out, or name such an arm")
