"""What a plugin's manifest may say: who it is, and where below its own directories its components are.

A manifest can define components inline, or name files anywhere in the plugin: hooks and tool servers among them. What
is not taken as a directory may not come in by the manifest.
"""

import json
import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

from fairtrial.errors import UsageError
from fairtrial.store.strict_json import JsonObject, MalformedJsonError, parse_object

__all__ = ["check_manifest", "check_marketplace"]

NOT_TAKEN: Final = (
    "hooks",
    "mcpServers",
    "lspServers",
    "monitors",
    "channels",
    "outputStyles",
    "themes",
    "workflows",
    "settings",
    "experimental",
)
"""Keys that define what acts in a session without the model, or changes the agent itself."""
PATHS: Final = ("skills", "commands", "agents")
"""Keys that name directories or files of components, each in a directory of the same name."""


def check_manifest(where: Path, content: bytes, *, name: str, version: str, parts: Sequence[str]) -> None:
    """Refuse the manifest of another plugin or version, or one that defines what is not taken.

    Args:
        where: The file, for messages.
        content: Its bytes.
        name: What it must call the plugin.
        version: The version that it must tell.
        parts: Directories of the plugin that are taken.

    Raises:
        UsageError: It is one.
    """
    manifest = _parse(where, content)
    for key, expected in (("name", name), ("version", version)):
        if manifest.get(key) != expected:
            found = json.dumps(manifest.get(key))[:80]
            raise UsageError(f"{where}: its {key} is {found}, not {json.dumps(expected)}; name the one that is meant")
    _require_taken(f"{where}", manifest, parts)


def check_marketplace(where: Path, content: bytes, *, parts: Sequence[str]) -> None:
    """Refuse a marketplace an entry of which defines what is not taken.

    Args:
        where: The file, for messages.
        content: Its bytes.
        parts: Directories of the plugin that are taken.

    Raises:
        UsageError: There is such an entry, or the file is none that can be read.
    """
    entries = _parse(where, content).get("plugins", [])
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in cast("list[object]", entries)):
        raise UsageError(f"{where}: its plugins are no list of objects")
    for place, entry in enumerate(cast("list[JsonObject]", entries)):
        _require_taken(f"{where}: plugins[{place}]", entry, parts)


def _parse(where: Path, content: bytes) -> JsonObject:
    try:
        return parse_object(content)
    except MalformedJsonError as problem:
        raise UsageError(f"{where}: {problem}; a plugin's manifest is one JSON object") from problem


def _require_taken(where: str, manifest: JsonObject, parts: Sequence[str]) -> None:
    for key in NOT_TAKEN:
        if key in manifest:
            raise UsageError(f"{where}: has {key!r}, which is not taken of a plugin; use a copy without this key")
    for key in PATHS:
        if key not in manifest:
            continue
        value = manifest[key]
        for path in cast("list[object]", value) if isinstance(value, list) else [value]:
            if key not in parts:
                raise UsageError(
                    f"{where}: has {key!r}, but the arm's parts do not; name it there, or use a copy without"
                )
            if not isinstance(path, str) or posixpath.normpath(path).split("/")[0] != key:
                shown = json.dumps(path)[:80]
                raise UsageError(
                    f"{where}: {key} has {shown}, which is no path below {key}/, and nothing else is taken"
                )
