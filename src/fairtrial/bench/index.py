"""Indexes of contexts: built once from a task's tree, proven free of what the task hides, frozen, shared by all trials.

An index is built offline, from the history-free tree that trials start from, at the path that sessions have it at.
Before that every file is taken out of the tree whose path or bytes name what the task hides: what an index tells of
such a file could lead an arm to it. What comes out belongs to us, is read-only, and goes by its digest.
"""

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias, cast

from pydantic import TypeAdapter

from fairtrial.bench.blobs import framed_digest
from fairtrial.errors import HostError, IntegrityError
from fairtrial.host.files import remove_tree, write_durably
from fairtrial.host.limits import Enforcement, Space
from fairtrial.host.lock import acquire_lock
from fairtrial.host.payload import payload_file
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import SEARCH_PATH, Slot
from fairtrial.model.bench import Task
from fairtrial.model.context import INDEX, ContextCommand, ContextInstallation, ContextProbe, Described
from fairtrial.model.sandbox import WORKSPACE, Access, Bind, Limits, SandboxResult, SandboxSpec
from fairtrial.plugins import Plugin, load_plugin
from fairtrial.protocols import Context
from fairtrial.workspace.layers import Base, Room, Storage, open_layer
from fairtrial.workspace.template import Template
from fairtrial.workspace.tree import Tree, TreeLimitError

__all__ = [
    "CONTEXTS",
    "TOOL_HOST",
    "BuiltIndex",
    "FoundContext",
    "Host",
    "build_index",
    "context_sandbox",
    "find_context",
    "markers_of",
    "require_free",
    "withhold",
]

CONTEXTS: Final = "contexts"
TOOL_HOST: Final = "/opt/tool-host/tool_host.py"
MOST_ENTRIES: Final = 250_000
MOST_BYTES: Final = 2 << 30
MOST_SCANNED_BYTES: Final = 64 << 20
ALWAYS_HIDDEN: Final = ("FAIRTRIAL_ORACLE_ROOT", ".fairtrial-oracle")
"""What leads to an oracle in any task."""
LOCK_WAIT_S: Final = 4 * 3600.0
DESCRIBE_S: Final = 120.0
_Manifest: TypeAlias = list[tuple[str, str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundContext:
    """A context on this host.

    Attributes:
        name: The plugin's name.
        context: The plugin's object.
        plugin: What declared it.
        probe: What the host has of it.
    """

    name: str
    context: Context
    plugin: Plugin
    probe: ContextProbe

    @property
    def installation(self) -> ContextInstallation:
        """How it is started; whoever found it refused one that cannot be."""
        if self.probe.installation is None:
            raise AssertionError(self.probe.missing)
        return self.probe.installation


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIndex:
    """A finished index, and what was proven of it.

    Attributes:
        context: Name of the context.
        version: What made it.
        plugin_sha256: Digest of the plugin.
        commit: The tree's commit.
        manifest_digest: Over path, digest and size of each of its files.
        snapshot_digest: Over that, the context, its version and plugin, the repository, its commit and what is hidden.
        files: Its files.
        bytes: Their bytes.
        markers: What it was searched for.
        withheld: Files of the tree that it was built without, since they hold a marker.
        server: What its server says of itself.
        mutating: Tools of the server that no arm is offered.
    """

    context: str
    version: str
    plugin_sha256: str
    commit: str
    manifest_digest: str
    snapshot_digest: str
    files: int
    bytes: int
    markers: tuple[str, ...]
    withheld: tuple[str, ...]
    server: Described
    mutating: tuple[str, ...]

    def directory(self, scratch: Path) -> Path:
        """Where its files lie."""
        return scratch / CONTEXTS / self.snapshot_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What an index is built with.

    Attributes:
        slot: Under which ids.
        enforcement: How limits are enforced.
        scratch: The sweep's directory, where indexes are shared.
    """

    slot: Slot
    enforcement: Enforcement
    scratch: Path


_RECORD: Final[TypeAdapter[BuiltIndex]] = TypeAdapter(BuiltIndex)
_DESCRIBED: Final[TypeAdapter[Described]] = TypeAdapter(Described)


def find_context(name: str) -> FoundContext:
    """A context by name, as this host has it.

    Raises:
        UsageError: There is none of that name.
        HostError: It cannot be used here.
    """
    plugin = load_plugin("fairtrial.contexts", name)
    context = cast("type[Context]", plugin.target)()
    probe = context.probe()
    if probe.installation is None:
        raise HostError(f"context {name}: {probe.missing}")
    return FoundContext(name=name, context=context, plugin=plugin, probe=probe)


def markers_of(task: Task, settings: Sequence[str]) -> tuple[str, ...]:
    """What nothing of an index may name: the task's hidden paths, and what leads to oracles in any task.

    The context's own names are no secret of a task, also where they are hidden: its index may well hold them.
    """
    hidden = (path for path in task.hidden if {*settings}.isdisjoint(path.split("/")))
    return (*hidden, *ALWAYS_HIDDEN)


def build_index(found: FoundContext, task: Task, template: Template, host: Host) -> BuiltIndex:
    """The index of a task's tree; built unless a trial of the sweep has built it.

    Raises:
        HostError: It cannot be built, or its server does not answer as the plugin says.
        IntegrityError: It names what the task hides.
    """
    place = host.scratch / CONTEXTS
    place.mkdir(mode=0o755, exist_ok=True)
    parts = (found.name, str(found.probe.version), found.plugin.file_sha256, task.repository, task.commit, *task.hidden)
    identity = framed_digest(part.encode() for part in parts)
    record, lock = place / f"{identity}.json", place / f"{identity}.lock"
    lock.touch()
    with acquire_lock(lock, wait_s=LOCK_WAIT_S):
        if not record.exists():
            built = _build(found, task, template, host, identity)
            write_durably(record, json.dumps(asdict(built)).encode(), mode=0o644)
    return _RECORD.validate_json(record.read_bytes())


def _build(found: FoundContext, task: Task, template: Template, host: Host, identity: str) -> BuiltIndex:
    markers = markers_of(task, found.context.settings)
    staged = host.scratch / CONTEXTS / f".{secrets.token_hex(8)}"
    empty = host.slot.root / f"e{secrets.token_hex(4)}"
    room = Room(disk_bytes=MOST_BYTES, inodes=MOST_ENTRIES)
    try:
        empty.mkdir(mode=0o755)
        host.slot.give(empty)
        with (
            open_layer(Base(trees=(template.tree,)), slot=host.slot, room=room, storage=Storage.DISK) as tree,
            open_layer(Base(trees=(empty,)), slot=host.slot, room=room, storage=Storage.DISK) as made,
        ):
            prepared = Tree(tree.merged)
            withheld = withhold(prepared, markers, settings=found.context.settings)
            for path, content in found.context.places.items():
                prepared.put_file(os.fsencode(path), content, 0o644, host.slot)
            command = found.context.build(found.installation)
            _run(found, command, host, tree=tree.merged, index=made.merged, writes=True, space=made.space)
            manifest = _freeze(Tree(made.merged), staged)
            require_free(found.name, staged, manifest, markers)
            command = found.context.prove(found.installation, markers)
            said = _run(found, command, host, tree=tree.merged, index=staged)
            if said.stdout.n_bytes:
                first = said.stdout.head[:200].decode("utf-8", "replace").strip()
                raise IntegrityError(f"context {found.name}: its index holds what the task hides: {first}")
            server = _describe(found, host, tree=tree.merged, index=staged)
        manifest_digest = framed_digest(f"{path}\0{sha256}\0{n_bytes}".encode() for path, sha256, n_bytes in manifest)
        built = BuiltIndex(
            context=found.name,
            version=str(found.probe.version),
            plugin_sha256=found.plugin.file_sha256,
            commit=template.commit,
            manifest_digest=manifest_digest,
            snapshot_digest=framed_digest([identity.encode(), manifest_digest.encode()]),
            files=len(manifest),
            bytes=sum(n_bytes for _, _, n_bytes in manifest),
            markers=markers,
            withheld=withheld,
            server=server,
            mutating=found.context.mutating,
        )
        place = built.directory(host.scratch)
        if not place.exists():
            staged.rename(place)
    except OSError as problem:
        raise HostError(f"context {found.name}: its index cannot be kept: {problem}") from problem
    except TreeLimitError as problem:
        raise HostError(f"context {found.name}: more than {MOST_ENTRIES} entries") from problem
    finally:
        for left in (staged, empty):
            if left.exists():
                remove_tree(left)
    return built


def withhold(tree: Tree, markers: Sequence[str], *, settings: Sequence[str]) -> tuple[str, ...]:
    """Take out of a tree what has a marker in its path or its bytes, or is too large to tell; return the paths.

    Besides what is, or is below, one of the names in `settings`, wherever it is.

    Raises:
        TreeLimitError: There is too much in it to look at.
    """
    names = {os.fsencode(name) for name in settings}
    found: list[bytes] = []
    for item in tree.walk(most_entries=MOST_ENTRIES):
        if stat.S_ISDIR(item.mode):
            continue
        content = item.path + b"\n"
        if stat.S_ISLNK(item.mode):
            content += tree.read_link(item.path)
        elif stat.S_ISREG(item.mode):
            content += tree.read_file(item.path, MOST_SCANNED_BYTES)
        is_setting = not names.isdisjoint(item.path.split(b"/"))
        if is_setting or len(content) >= MOST_SCANNED_BYTES or any(_is_named(marker, content) for marker in markers):
            found.append(item.path)
    for path in found:
        tree.remove(path)
    return tuple(sorted(path.decode(errors="backslashreplace") for path in found))


def require_free(name: str, index: Path, manifest: Sequence[tuple[str, str, int]], markers: Sequence[str]) -> None:
    """Look for the markers in the names and bytes of every file of an index.

    Raises:
        IntegrityError: One is there.
    """
    for path, _, _ in manifest:
        content = path.encode() + b"\n" + (index / path).read_bytes()
        for marker in markers:
            if _is_named(marker, content):
                raise IntegrityError(f"context {name}: its index names {marker!r}, which the task hides, in {path}")


def _is_named(marker: str, content: bytes) -> bool:
    """Whether a marker stands in it, and not as a part of a longer word: `tests` is not named by `unittests`.

    What leads to an oracle is no word that anything else has in it, so that counts wherever it stands.
    """
    sought = marker.encode()
    if sought not in content or marker in ALWAYS_HIDDEN:
        return sought in content
    begins, ends = re.match(rb"\w", sought) is not None, re.match(rb"\w", sought[-1:]) is not None
    bounded = (rb"(?<!\w)" if begins else b"") + re.escape(sought) + (rb"(?!\w)" if ends else b"")
    return re.search(bounded, content) is not None


def _freeze(made: Tree, staged: Path) -> _Manifest:
    """Copy an index to where it stays.

    Raises:
        HostError: It is empty, holds a link or a special file, or is too large.
    """
    manifest: _Manifest = []
    left_bytes = MOST_BYTES
    staged.mkdir(mode=0o755)
    for item in sorted(made.walk(most_entries=MOST_ENTRIES), key=lambda item: item.path):
        path = item.path.decode(errors="surrogateescape")
        if stat.S_ISDIR(item.mode):
            (staged / path).mkdir(mode=0o755)
            continue
        if not stat.S_ISREG(item.mode):
            raise HostError(f"an index: {path!r:.80} is no regular file; the context's plugin must not make any")
        content = made.read_file(item.path, left_bytes + 1)
        left_bytes -= len(content)
        if left_bytes < 0:
            raise HostError(f"an index: more than {MOST_BYTES} bytes; index less of the tree")
        (staged / path).write_bytes(content)
        (staged / path).chmod(0o444)
        manifest.append((path, hashlib.sha256(content).hexdigest(), len(content)))
    if not manifest:
        raise HostError("an index: nothing was written; see the context's plugin")
    return manifest


def _describe(found: FoundContext, host: Host, *, tree: Path, index: Path) -> Described:
    """Ask the server what it is and what tools it has, before any session meets it.

    Raises:
        HostError: It does not answer, or has other tools than its plugin says.
    """
    command = found.context.serve(found.installation)
    argv = ("/usr/bin/python3", "-I", "-S", TOOL_HOST, "describe", "--", *command.argv)
    asked = replace(command, argv=argv, wall_s=DESCRIBE_S)
    said = _run(found, asked, host, tree=tree, index=index)
    described = _DESCRIBED.validate_json(said.stdout.head)
    declared = {*found.context.tools, *found.context.mutating}
    if declared != {*described.tools}:
        differ = ", ".join(sorted(declared ^ {*described.tools}))
        raise HostError(f"context {found.name}: server and plugin differ in tools: {differ}; see the context's version")
    return described


def _run(
    found: FoundContext,
    command: ContextCommand,
    host: Host,
    *,
    tree: Path,
    index: Path,
    writes: bool = False,
    space: Space | None = None,
) -> SandboxResult:
    spec = context_sandbox(found, command, tree=tree, index=index)
    if writes:
        binds = [replace(bind, access=Access.READ_WRITE) if bind.target == INDEX else bind for bind in spec.binds]
        spec = replace(spec, binds=tuple(binds))
    result = run_sandbox(spec, slot=host.slot, enforcement=host.enforcement, space=space, capture_bytes=1 << 20)
    if not result.ok:
        said = result.stderr.tail.decode(errors="replace").strip().splitlines()
        how = f"ended with {result.returncode}" if result.limit is None else f"reached its {result.limit} limit"
        why = said[-1][:500] if said else result.detail
        raise HostError(f"context {found.name}: {command.argv[0]} {how}: {why}; see `fairtrial doctor`")
    return result


def context_sandbox(found: FoundContext, command: ContextCommand, *, tree: Path, index: Path) -> SandboxSpec:
    """A sandbox of a context: the tree and the index read-only, its own programs, no network, nothing of a session."""
    home: Mapping[str, str] = {
        "HOME": "/home/agent",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PATH": SEARCH_PATH,
        "TMPDIR": "/tmp",  # noqa: S108 - inside the sandbox
    }
    return SandboxSpec(
        argv=command.argv,
        env={**home, **command.env},
        binds=(
            Bind(source=tree, target=WORKSPACE),
            *found.installation.binds,
            Bind(source=index, target=INDEX),
        ),
        files=(payload_file(TOOL_HOST),),
        limits=Limits(wall_s=command.wall_s),
    )
