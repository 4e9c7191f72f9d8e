"""An agent's plugin, captured from a directory that the operator supplies: an exact version, a snapshot, a digest.

Only what makes a plugin work is taken: its manifest, skills, scripts and assets (commands and agents where the arm says
so). Hooks and tool servers of its own are not: they are no prose, and belong to no comparison of prose.
"""

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fairtrial.bench.assets import ASSETS
from fairtrial.bench.blobs import BlobStore, read_stable
from fairtrial.bench.plugin_manifest import check_manifest, check_marketplace
from fairtrial.errors import UsageError
from fairtrial.host.files import remove_tree
from fairtrial.model.bench import PluginFiles

__all__ = ["ALL_PARTS", "PARTS", "PLUGIN_ROOT", "capture_plugin", "frozen_plugin", "is_exact_version"]

PLUGIN_ROOT: Final = "/opt/plugin"
"""Where a plugin is mounted inside; the same for every one."""
PARTS: Final = ("skills", "scripts", "assets")
ALL_PARTS: Final = (*PARTS, "commands", "agents")
MANIFEST: Final = ".claude-plugin/plugin.json"
MARKETPLACE: Final = ".claude-plugin/marketplace.json"
SCHEMA_VERSION: Final = 1
MOST_FILES: Final = 2048
MOST_FILE_BYTES: Final = 2 << 20
MOST_BYTES: Final = 16 << 20
LONGEST_PATH_BYTES: Final = 1024
_VERSION: Final = re.compile(
    r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_DROPPED: Final = frozenset(
    (".git", ".github", ".ssh", ".aws", "test", "tests", "doc", "docs", "node_modules", "__pycache__")
)
_SECRET: Final = re.compile(
    r"\.env.*|\.npmrc.*|\.netrc|\.pypirc|.*(?:credential|secret|private-key|token).*|.*\.(?:pem|key|p12|pfx|kdbx)",
    re.IGNORECASE,
)


class _File(NamedTuple):
    """One file that is taken."""

    path: str
    content: bytes
    is_executable: bool


def is_exact_version(text: str) -> bool:
    """Whether a text is one exact version: no range, no `latest`."""
    return _VERSION.fullmatch(text) is not None


def frozen_plugin(blobs: BlobStore, plugin: PluginFiles) -> Path:
    """The directory of a captured plugin, which is mounted read-only."""
    return blobs.root.parent / ASSETS / f"plugin-{plugin.manifest_digest}"


def capture_plugin(
    name: str,
    version: str,
    directory: Path,
    blobs: BlobStore,
    *,
    skills: Sequence[str],
    parts: Sequence[str] = PARTS,
) -> PluginFiles:
    """Capture a plugin and freeze it beside the captured bytes.

    Args:
        name: What its manifest must call it.
        version: The exact version that its manifest must tell.
        directory: Where the operator has it.
        blobs: The sweep's captured bytes.
        skills: Skills that it must have.
        parts: Its directories that are taken.

    Raises:
        UsageError: It is another plugin or version, has a link, is too large, lacks something, or its manifest defines
            what is not taken.
    """
    dropped: list[str] = []
    files = _read(directory, parts, dropped)
    check_manifest(directory / MANIFEST, files[0].content, name=name, version=version, parts=parts)
    for file in files:
        if file.path == MARKETPLACE:
            check_marketplace(directory / MARKETPLACE, file.content, parts=parts)
    paths = {file.path for file in files}
    for skill in skills:
        if f"skills/{skill}/SKILL.md" not in paths:
            raise UsageError(f"plugin {name!r}: {directory} has no skills/{skill}/SKILL.md, which the arm needs")
    digest = _digest(files)
    plugin = PluginFiles(
        name=name,
        version=version,
        manifest_schema_version=SCHEMA_VERSION,
        manifest_digest=digest,
        file_count=len(files),
        total_bytes=sum(len(file.content) for file in files),
        offers=tuple(f"{name}:{each}" for each in sorted(_offered(paths))),
        dropped=tuple(sorted(dropped)),
    )
    try:
        _freeze(files, frozen_plugin(blobs, plugin))
    except OSError as problem:
        raise UsageError(f"plugin {name!r}: {directory} cannot be captured: {problem}") from problem
    return plugin


def _read(directory: Path, parts: Sequence[str], dropped: list[str]) -> tuple[_File, ...]:
    """The manifest first, then everything else that is taken, in the order of paths; what is not goes to `dropped`."""
    found = [MANIFEST]
    if (directory / MARKETPLACE).is_symlink() or (directory / MARKETPLACE).exists():
        found.append(MARKETPLACE)
    for part in parts:
        if (directory / part).is_symlink() or (directory / part).exists():
            found += _paths(directory, part, dropped)
    if len(found) > MOST_FILES:
        raise UsageError(f"{directory}: more than {MOST_FILES} files; is it a plugin's own directory?")
    files: list[_File] = []
    n_bytes = 0
    for path in (found[0], *sorted(found[1:])):
        if len(os.fsencode(path)) > LONGEST_PATH_BYTES:
            raise UsageError(f"{directory}: a path of more than {LONGEST_PATH_BYTES} bytes: {path[:80]}…")
        content = read_stable(directory, path, max_bytes=MOST_FILE_BYTES)
        n_bytes += len(content)
        if n_bytes > MOST_BYTES:
            raise UsageError(f"{directory}: more than {MOST_BYTES} bytes; is it a plugin's own directory?")
        is_executable = bool((directory / path).stat().st_mode & stat.S_IXUSR)
        files.append(_File(path, content, is_executable))
    try:
        for above in ("", f"{Path(MANIFEST).parent}/"):
            there = {f"{above}{name}" for name in os.listdir(directory / above)}  # noqa: PTH208 - names
            dropped += there - {*parts, MANIFEST, MARKETPLACE, str(Path(MANIFEST).parent)}
    except OSError as problem:
        raise UsageError(f"{directory}: cannot be read: {problem.strerror}") from problem
    return tuple(files)


def _paths(directory: Path, path: str, dropped: list[str]) -> Iterator[str]:
    """The files at or below a path; a link, or what is neither file nor directory, is refused."""
    name = path.rpartition("/")[2]
    if name.casefold() in _DROPPED or _SECRET.fullmatch(name):
        dropped.append(path)
        return
    try:
        mode = (directory / path).lstat().st_mode
        children = sorted(os.listdir(directory / path)) if stat.S_ISDIR(mode) else []  # noqa: PTH208 - names
    except OSError as problem:
        raise UsageError(f"{directory / path}: cannot be read: {problem.strerror}") from problem
    if stat.S_ISREG(mode):
        yield path
    elif stat.S_ISDIR(mode):
        for child in children:
            yield from _paths(directory, f"{path}/{child}", dropped)
    else:
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "neither a file nor a directory"
        raise UsageError(f"{directory / path}: {kind}, which no captured plugin may have; put the file in its place")


def _offered(paths: set[str]) -> Iterator[str]:
    for path in paths:
        part, _, rest = path.partition("/")
        name, _, file = rest.partition("/")
        if part == "skills" and file == "SKILL.md":
            yield name
        elif part in {"commands", "agents"} and not file and name.endswith(".md"):
            yield name.removesuffix(".md")


def _digest(files: Sequence[_File]) -> str:
    described = [
        {
            "path": file.path,
            "sha256": hashlib.sha256(file.content).hexdigest(),
            "size": len(file.content),
            "executable": file.is_executable,
        }
        for file in sorted(files, key=lambda file: file.path)
    ]
    value = {"schema": SCHEMA_VERSION, "files": described}
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _freeze(files: Sequence[_File], kept: Path) -> None:
    if kept.exists():
        return
    kept.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    staged = kept.parent / f".{secrets.token_hex(8)}"
    try:
        for file in files:
            goal = staged / file.path
            goal.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            goal.write_bytes(file.content)
            goal.chmod(0o555 if file.is_executable else 0o444)
        for path in (staged, *(each for each in staged.rglob("*") if each.is_dir())):
            path.chmod(0o555)
        staged.rename(kept)
    except OSError:
        if staged.exists():
            remove_tree(staged)
        raise
