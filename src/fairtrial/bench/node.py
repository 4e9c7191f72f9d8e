"""What a worker keeps between trials: its slot, how limits are enforced, templates, set-up layers, agents.

A template is made once for each (repository, commit, hidden paths), a set-up layer once for each task that has a
set-up; trials only put layers over them.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias, cast

from fairtrial.bench.assets import ASSETS, VITE_SCRATCH, copy_assets
from fairtrial.bench.blobs import BlobStore, framed_digest
from fairtrial.bench.environment import Seen, describe_tree
from fairtrial.bench.index import BuiltIndex, FoundContext, Host, build_index, find_context
from fairtrial.errors import FairtrialError, HostError
from fairtrial.host.limits import UNCONTAINED, Enforcement, probe_limits
from fairtrial.host.lock import acquire_lock
from fairtrial.host.machine import describe_machine
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import SEARCH_PATH, Slot, open_slot
from fairtrial.host.unplaced import show_unplaced
from fairtrial.model.agent import AgentProbe, Installation
from fairtrial.model.bench import Task, TaskLimits
from fairtrial.model.sandbox import WORKSPACE, Access, Bind, Containment, Limit, Limits, Network, SandboxSpec
from fairtrial.model.trial import BenchSpec
from fairtrial.plugins import Plugin, load_plugin
from fairtrial.protocols import Agent
from fairtrial.workspace.frozen import content_of_layer, load_layer, save_layer
from fairtrial.workspace.layers import Base, Layer, Room, Storage, choose_storage, open_layer
from fairtrial.workspace.template import Template, make_template
from fairtrial.workspace.tree import Tree

__all__ = [
    "BLOBS",
    "GRACE_S",
    "FoundAgent",
    "Node",
    "Prepared",
    "judge_environment",
    "limits_of",
    "search_path",
    "workspace_bind",
]

SETUP_S: Final = 600.0
GRACE_S: Final = 5.0
MIB: Final = 1 << 20
LAYERS_AT_ONCE: Final = 3
BLOBS: Final = "blobs"


_Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAgent:
    """An agent on this host.

    Attributes:
        agent: The plugin's object.
        plugin: What declared it.
        probe: What the host has of it.
    """

    agent: Agent
    plugin: Plugin
    probe: AgentProbe

    @property
    def installation(self) -> Installation:
        """How it is started; `Node.agent` refuses one that cannot be."""
        if self.probe.installation is None:
            raise AssertionError(self.probe.missing)
        return self.probe.installation


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Where a task's trials begin.

    Attributes:
        template: The history-free tree.
        base: What layers are put over: the template, what the set-up wrote, and a candidate's files.
        head: The commit that it shows: the template's, unless a candidate's files are in it.
        setup_digest: What copies and set-up wrote, whatever the clock said; None where there are none.
    """

    template: Template
    base: Base
    head: str
    setup_digest: str | None = None


@dataclass(slots=True)
class Node:
    """One worker's share of the machine; everything of it is gone when it is closed, or with the scratch directory.

    Attributes:
        slot: Under which ids sandboxes run.
        enforcement: How limits are enforced.
        blobs: The sweep's captured bytes.
        n_workers: Workers that share the machine.
    """

    slot: Slot
    enforcement: Enforcement
    blobs: BlobStore
    n_workers: int
    _held: ExitStack = field(default_factory=ExitStack)
    _templates: dict[tuple[str, str, tuple[str, ...]], Template] = field(
        default_factory=dict[tuple[str, str, tuple[str, ...]], Template]
    )
    _prepared: dict[_Key, Prepared] = field(default_factory=dict["_Key", Prepared])
    _failed: dict[_Key, str] = field(default_factory=dict["_Key", str])
    _over: dict[tuple[Base, str], Prepared] = field(default_factory=dict[tuple[Base, str], Prepared])
    _agents: dict[str, FoundAgent] = field(default_factory=dict[str, FoundAgent])
    _repositories: dict[Base, Seen] = field(default_factory=dict[Base, Seen])
    _contexts: dict[str, FoundContext] = field(default_factory=dict[str, FoundContext])
    _indexes: dict[tuple[str, str, str, tuple[str, ...]], BuiltIndex | str] = field(
        default_factory=dict[tuple[str, str, str, tuple[str, ...]], "BuiltIndex | str"]
    )

    @classmethod
    def open(cls, spec: BenchSpec) -> "Node":
        """Take possession of this worker's slot.

        Raises:
            HostError: There is none, or a limit cannot be enforced.
        """
        scratch = Path(spec.scratch)
        slot = open_slot(scratch)
        allowed = frozenset(Limit(name) for name in spec.allow_unenforced)
        contained = spec.containment is not Containment.NONE
        return cls(
            slot=slot,
            enforcement=probe_limits(slot, allow_unenforced=allowed) if contained else UNCONTAINED,
            blobs=BlobStore(scratch / BLOBS),
            n_workers=spec.n_workers,
        )

    def agent(self, name: str) -> FoundAgent:
        """An agent by name, probed once.

        Raises:
            HostError: It cannot be used here.
        """
        if name not in self._agents:
            plugin = load_plugin("fairtrial.agents", name)
            agent = cast("type[Agent]", plugin.target)()
            probe = agent.probe()
            if probe.installation is not None:
                probe = replace(
                    probe, installation=replace(probe.installation, binds=self._unplaced(probe.installation.binds))
                )
            self._agents[name] = FoundAgent(agent=agent, plugin=plugin, probe=probe)
        found = self._agents[name]
        if found.probe.installation is None:
            raise HostError(f"agent {name}: {found.probe.missing}")
        return found

    @property
    def host(self) -> Host:
        """What indexes are built and served with."""
        return Host(slot=self.slot, enforcement=self.enforcement, scratch=self.blobs.root.parent)

    def context(self, name: str) -> FoundContext:
        """A context by name, probed once.

        Raises:
            HostError: It cannot be used here.
        """
        if name not in self._contexts:
            found = find_context(name)
            binds = self._unplaced(found.installation.binds)
            probe = replace(found.probe, installation=replace(found.installation, binds=binds))
            self._contexts[name] = replace(found, probe=probe)
        return self._contexts[name]

    def _unplaced(self, binds: tuple[Bind, ...]) -> tuple[Bind, ...]:
        """The same mounts, which do not tell those who have them where on the host they come from."""
        return tuple(replace(bind, source=show_unplaced(bind.source, self.slot, self._held)) for bind in binds)

    def index(self, task: Task, context: str) -> BuiltIndex:
        """A context's index of a task's tree; a failure is remembered for the trials that follow.

        Raises:
            HostError: It cannot be built, or is not free of what the task hides.
        """
        key = (context, task.repository, task.commit, task.hidden)
        if key not in self._indexes:
            try:
                self._indexes[key] = build_index(self.context(context), task, self.template(task), self.host)
            except FairtrialError as problem:
                self._indexes[key] = str(problem)
        if isinstance(known := self._indexes[key], str):
            raise HostError(known)
        return known

    def template(self, task: Task) -> Template:
        """The history-free tree of a task's commit.

        Raises:
            HostError: git failed.
        """
        key = (task.repository, task.commit, task.hidden)
        if key not in self._templates:
            directory = self.slot.root / f"t{len(self._templates)}"
            self._templates[key] = make_template(
                Path(task.repository), task.commit, directory, slot=self.slot, hide=task.hidden
            )
        return self._templates[key]

    def prepare(self, task: Task) -> Prepared:
        """Where the task's trials begin; its set-up runs the first time.

        Raises:
            HostError: The set-up failed.
        """
        key = _key(task)
        if key not in self._prepared:
            template = self.template(task)
            base, written = Base(trees=(template.tree,)), None
            if task.setup is not None or task.copies or task.dependencies:
                base, written = self._try_set_up(key, task, base)
            self._prepared[key] = Prepared(template=template, base=base, head=template.commit, setup_digest=written)
        return self._prepared[key]

    def repository(self, task: Task, base: Base, layer: Layer) -> Seen:
        """What the repository itself tells agents; looked at once for each base, in a layer over it.

        Raises:
            HostError: It cannot be read.
        """
        if base not in self._repositories:
            try:
                self._repositories[base] = describe_tree(Tree(layer.before))
            except OSError as problem:
                raise HostError(f"task {task.id}: its tree cannot be read: {problem}") from problem
        return self._repositories[base]

    def put_over(self, prepared: Prepared, task: Task, name: str, fill: Callable[[Layer], str]) -> Prepared:
        """The same place with one more layer, which is filled the first time and frozen then.

        Args:
            prepared: Where the task's trials begin.
            task: The task, for its limits.
            name: What the layer holds: the same name on the same place means the same bytes.
            fill: Writes the layer; returns the commit that it shows.

        Raises:
            HostError: It cannot be filled.
        """
        key = (prepared.base, name)
        if key not in self._over:
            room, _ = self.room(task.limits)
            with open_layer(prepared.base, slot=self.slot, room=room, storage=Storage.DISK) as layer:
                head = fill(layer)
                archive = save_layer(layer, slot=self.slot)
            base = self._held.enter_context(load_layer(archive, prepared.base, slot=self.slot))
            archive.unlink()
            self._over[key] = replace(prepared, base=base, head=head)
        return self._over[key]

    def _try_set_up(self, key: _Key, task: Task, base: Base) -> tuple[Base, str]:
        """Set up once; a failure is remembered for the trials that follow."""
        if key in self._failed:
            raise HostError(self._failed[key])
        try:
            return self._set_up(task, base)
        except HostError as problem:
            self._failed[key] = str(problem)
            raise

    def room(self, limits: TaskLimits) -> tuple[Room, Storage]:
        """How much a layer of a task can take, and where it lies."""
        room = Room(disk_bytes=limits.disk_mib * MIB, inodes=limits.inodes)
        memory_bytes = describe_machine().memory_bytes
        return room, choose_storage(room, n_layers=LAYERS_AT_ONCE * self.n_workers, available_bytes=memory_bytes)

    def _set_up(self, task: Task, base: Base) -> tuple[Base, str]:
        """Run a task's set-up unless another worker has; all workers begin with the same bytes.

        Raises:
            HostError: It failed.
        """
        archive = self.blobs.root.parent / f"f{_set_up_digest(task)}"
        written = archive.with_suffix(".sha256")
        lock = archive.with_suffix(".lock")
        lock.touch()
        with acquire_lock(lock, wait_s=2 * SETUP_S):
            if not archive.exists():
                self._freeze(task, base, archive, written)
        return self._held.enter_context(load_layer(archive, base, slot=self.slot)), written.read_text()

    def _freeze(self, task: Task, base: Base, archive: Path, written: Path) -> None:
        room, _ = self.room(task.limits)
        with open_layer(base, slot=self.slot, room=room, storage=Storage.DISK) as layer:
            copy_assets(self.blobs.root.parent / ASSETS, task, layer, slot=self.slot)
            if task.setup is not None:
                self._run_setup(task, task.setup, layer)
            _require_hidden(task, Tree(layer.merged))
            saved = save_layer(layer, slot=self.slot)
            written.write_text(content_of_layer(saved))
            saved.rename(archive)

    def _run_setup(self, task: Task, command: str, layer: Layer) -> None:
        spec = SandboxSpec(
            argv=("/bin/sh", "-c", command),
            env=judge_environment(task),
            binds=(workspace_bind(layer), *self.binds(task)),
            network=Network.HOST if task.setup_network else Network.NONE,
            limits=limits_of(task.limits, wall_s=SETUP_S),
        )
        result = run_sandbox(spec, slot=self.slot, enforcement=self.enforcement, space=layer.space)
        if not result.ok:
            said = result.stderr.tail.decode(errors="replace").strip().splitlines()
            how = f"ended with {result.returncode}" if result.limit is None else f"reached its {result.limit} limit"
            raise HostError(
                f"task {task.id}: setup {how}: {said[-1] if said else result.detail}; mend the task's setup"
            )

    def binds(self, task: Task) -> tuple[Bind, ...]:
        """What a task sees of the host besides its tree: toolchains where the host has them, frozen dependencies."""
        frozen = self.blobs.root.parent / ASSETS
        return (
            *(Bind(source=Path(path), target=path) for path in task.toolchains if not _is_system(path)),
            *(_dependency(frozen / each.digest, each.target) for each in task.dependencies),
        )

    def close(self) -> None:
        """Let go of the set-up layers, and of what is shown of agents and contexts."""
        self._held.close()


def _require_hidden(task: Task, tree: Tree) -> None:
    for path in task.hidden:
        if tree.mode(os.fsencode(path)) is not None:
            raise HostError(
                f"task {task.id}: setup makes {path!r}, which is hidden; let it make nothing there, or do not hide it"
            )


def _dependency(source: Path, target: str) -> Bind:
    scratch = (VITE_SCRATCH,) if (source / VITE_SCRATCH).is_dir() else ()
    return Bind(source=source, target=f"{WORKSPACE}/{target}", scratch=scratch)


def _key(task: Task) -> _Key:
    """A set-up for each task: what one task's limits stop, another's may not."""
    return task.id, _set_up_digest(task)


def _set_up_digest(task: Task) -> str:
    """Of everything that decides which bytes a set-up leaves."""
    copies = [f"{each.target} {each.digest}" for each in (*task.copies, *task.dependencies)]
    world = [str(task.setup_network), *task.toolchains, *task.toolchain_digests]
    parts = (task.repository, task.commit, task.setup or "", *map("\0".join, (task.hidden, copies, world)))
    return framed_digest(part.encode() for part in parts)[:16]


def limits_of(limits: TaskLimits, *, wall_s: float) -> Limits:
    """A task's limits as a sandbox takes them."""
    return Limits(
        processes=limits.processes,
        memory_bytes=limits.memory_mib * MIB,
        cpu_s=limits.cpu_s,
        files=limits.files,
        output_bytes=limits.output_mib * MIB,
        wall_s=wall_s,
        grace_s=GRACE_S,
    )


def workspace_bind(layer: Layer) -> Bind:
    """The tree under test, writable."""
    return Bind(source=layer.merged, target="/workspace", access=Access.READ_WRITE)


def _is_system(path: str) -> bool:
    """Every sandbox has /usr, and nothing can be mounted in it."""
    return Path(path).is_relative_to("/usr")


def search_path(task: Task, system: str) -> str:
    """Where programs are found: in the toolchains first, since a task names one to have it used."""
    return ":".join((*(f"{path}/bin" for path in task.toolchains), system))


def judge_environment(task: Task) -> dict[str, str]:
    """The environment of set-up, authored check and oracle."""
    return {
        "CI": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "HOME": "/home/agent",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "PATH": search_path(task, SEARCH_PATH),
        "SHELL": "/bin/sh",
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108 - inside the sandbox
    }
