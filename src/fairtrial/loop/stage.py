"""The stage of one trial: its directories, its environment, its server, and the one way commands are run on it.

Every command, timed or not, goes through here and leaves a line in the trial's transcript.
"""

import json
import os
import shlex
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from fairtrial.errors import HostError
from fairtrial.host.janitor import SWEEP_VARIABLE
from fairtrial.host.process import run as run_process
from fairtrial.loop.seed import NOTES
from fairtrial.loop.server import OwnServer, own_server
from fairtrial.loop.spawned import run_until_killed
from fairtrial.loop.ssh import SshWire
from fairtrial.model.loop import Place, Play, Scenario, Serve, Step, Transport, Truth
from fairtrial.model.process import ProcessResult, ProcessState
from fairtrial.model.trial import TrialSpec
from fairtrial.protocols import Subject
from fairtrial.wire.client import WireServer
from fairtrial.wire.faults import Fault
from fairtrial.wire.fixture import FixtureSettings
from fairtrial.wire.ledger import ConnectionReuse, WireLedger
from fairtrial.wire.settings import FRONT, ForwardSettings, WireSettings

__all__ = ["PROBE_LIMIT_S", "SERVER_ENVIRONMENT", "STEP_LIMIT_S", "HeadLook", "Stage", "Wire", "open_stage"]

STEP_LIMIT_S: Final = 120.0
PROBE_LIMIT_S: Final = 120.0
READINGS: Final = 3
GRACE_S: Final = 2.0
PROBE_CAPTURE_BYTES: Final = 4 * 1024 * 1024
SERVER_ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
FIXTURE: Final = WireSettings(
    front=None, forward=None, fixture=FixtureSettings(create="/api/repos", publish="/api/oak/repo/push")
)
SHOWN_ROOT: Final = "/trial"
LOOPBACK: Final = "127.0.0.1"
SHOWN_PORT: Final = 8080


class Wire(Protocol):
    """What stands between client and server, counts, and can be told to fail."""

    def set_faults(self, faults: Sequence[Fault], reuse: ConnectionReuse | None = None) -> None:
        """Replace the plan of faults and its counts, and the factor unless it is None."""
        ...

    def drain(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight, for at most so long; return whether nothing is."""
        ...

    def ledger(self) -> WireLedger:
        """What it saw so far."""
        ...


class _Served(NamedTuple):
    """What a transport needed: the port for clients, what stands on the wire, and the tool's own server behind it."""

    port: int | None = None
    wire: Wire | None = None
    own: OwnServer | None = None


class HeadLook(NamedTuple):
    """A look at a branch's head: what is there, or why nobody could look ("" when somebody could)."""

    head: str | None
    unread: str = ""


@dataclass(slots=True, kw_only=True)
class Stage:
    """Where a trial plays.

    Attributes:
        spec: The attempt.
        scenario: What is played.
        subject: Who plays.
        root: The trial's own directory.
        environment: The whole environment of the subject's commands.
        remote: The address of the remote.
        server: What stands on the wire of a loopback transport, or None when there is no wire.
        places: One place for each phase.
        transcript: Every command run so far, as records of the transcript artifact.
        n_probe_calls: Commands run by the harness to look, not to act.
        server_start_ms: Time from nothing to servers that are ready.
        last_ledger: What the wire server had seen when it was stopped before the trial's end; None while it runs.
        own_server: The tool's own server behind the wire, where it has one.
        servers: Ends what was started, once.
    """

    spec: TrialSpec
    scenario: Scenario
    subject: Subject
    root: Path
    environment: Mapping[str, str]
    remote: str
    server: Wire | None
    places: dict[str, Place]
    transcript: list[dict[str, object]]
    n_probe_calls: int = 0
    server_start_ms: float = 0.0
    last_ledger: WireLedger | None = None
    own_server: OwnServer | None = None
    servers: ExitStack = field(default_factory=ExitStack)

    def stop_servers(self) -> bool:
        """End every server of the trial, each with its group, and wait; false when one would not go."""
        if self.server is not None:
            self.last_ledger = self.server.ledger()
            self.server = None
        self.own_server = None
        try:
            self.servers.close()
        except HostError:
            return False
        return True

    def revive_server(self) -> bool:
        """Start the tool's own server again where a fault has killed it, as whoever runs it would; whether one had.

        Raises:
            HostError: It does not come up again.
        """
        return self.own_server is not None and self.own_server.revive()

    def run_step(self, step: Step, *, limit_s: float = STEP_LIMIT_S) -> ProcessResult:
        """Run one timed command of the agent."""
        result = run_process(step.argv, env=self.environment, cwd=step.cwd, timeout_s=limit_s, grace_s=GRACE_S)
        self._record("step", result, step.cwd)
        return result

    def run_until_killed(self, step: Step, due: Callable[[], bool], state: ProcessState) -> ProcessResult:
        """Run one timed command of the agent and kill it, with all of its group, as soon as `due` says so."""
        result = run_until_killed(step, self.environment, due, state)
        self._record("step", result, step.cwd)
        return result

    def record_step(self, result: ProcessResult, step: Step) -> None:
        """Write down a command of the agent that ran beside others."""
        self._record("step", result, step.cwd)

    def probe(self, argv: Sequence[str], *, cwd: Path) -> ProcessResult:
        """Run one command of the harness that looks at what is there (`RunProbe`)."""
        self.n_probe_calls += 1
        result = run_process(
            argv,
            env=self.environment,
            cwd=cwd,
            timeout_s=PROBE_LIMIT_S,
            grace_s=GRACE_S,
            capture_bytes=PROBE_CAPTURE_BYTES,
        )
        self._record("probe", result, cwd)
        return result

    def prepare(self, steps: Sequence[Step]) -> tuple[ProcessResult, ...]:
        """Run commands of the harness's own preparation; the first that fails is the host's fault.

        Raises:
            HostError: One of them failed.
        """
        results: list[ProcessResult] = []
        for step in steps:
            result = run_process(
                step.argv, env=self.environment, cwd=step.cwd, timeout_s=PROBE_LIMIT_S, grace_s=GRACE_S
            )
            self._record("harness", result, step.cwd)
            results.append(result)
            if result.returncode not in step.expected:
                said = result.stderr.tail.decode("utf-8", "replace").strip()[-200:] or result.detail or result.state
                raise HostError(f"preparing the trial: {self.shown_line(step.argv)} failed: {said}")
        return tuple(results)

    def open_place(self, phase: str) -> Place:
        """One place more, for work that the scenario's phases do not name."""
        first = self.places[self.scenario.phases[0]]
        place = replace(
            first,
            workspace=self.root / phase,
            branch=self.branch_of(phase),
            message=f"Note the {phase} work of run {self.spec.loop.run}",
        )
        self.places[phase] = place
        return place

    def branch_of(self, phase: str) -> str:
        """The name that the lane gives a branch."""
        return f"{_branch_prefix(self.spec)}{phase}-{self.spec.loop.run}"

    def server_head(self, phase: str) -> HeadLook:
        """The branch's head on the server at this moment: in its store, or where that is out of reach over the wire.

        A look that fails is repeated: another process may hold a store's lock.
        """
        look = self._look(phase)
        for _ in range(READINGS - 1):
            if not look.unread:
                break
            look = self._look(phase)
        return look

    def _look(self, phase: str) -> HeadLook:
        place = self.places[phase]
        if self.spec.loop.transport is Transport.HOSTED:
            first = self.subject.read_truth(self.probe, place, NOTES, Transport.HOSTED).readings[0]
            return HeadLook(first.head, first.detail if first.failed else "")
        try:
            return HeadLook(self.subject.store_head(self.probe, place))
        except HostError as error:
            return HeadLook(None, str(error))

    def read_back(self, phase: str) -> Truth:
        """Read everything of a published branch back.

        Again where a reading failed, and where one names another head than the next: the store was moving.
        """
        truth = self._read_back(phase)
        for _ in range(READINGS - 1):
            if len({each.head for each in truth.readings}) == 1 and not any(each.failed for each in truth.readings):
                break
            truth = self._read_back(phase)
        return truth

    def _read_back(self, phase: str) -> Truth:
        return self.subject.read_truth(self.probe, self.places[phase], NOTES, self.spec.loop.transport)

    def settle_branch(self, phase: str) -> None:
        """Take over the branch's name from the workspace, where the tool and not the lane named it."""
        branch = self.subject.published_branch(self.probe, self.places[phase])
        if branch is not None:
            self.places[phase] = replace(self.places[phase], branch=branch)

    def shown(self, argv: Sequence[str]) -> tuple[str, ...]:
        """A command as an agent would have typed it: without paths and ports of this machine, so it counts alike."""
        binary, *arguments = argv
        name = self.subject.kind if binary == self.spec.loop.variant.binary else binary
        return (name, *(self._shown_argument(argument) for argument in arguments))

    def shown_line(self, argv: Sequence[str]) -> str:
        """The same as one shell line."""
        return shlex.join(self.shown(argv))

    def _shown_argument(self, argument: str) -> str:
        if self.spec.loop.transport is not Transport.HOSTED and (port := urlsplit(self.remote).port):
            argument = argument.replace(f"{LOOPBACK}:{port}", f"{LOOPBACK}:{SHOWN_PORT}")
        return argument.replace(str(self.root), SHOWN_ROOT)

    def _record(self, role: str, result: ProcessResult, cwd: Path) -> None:
        self.transcript.append(
            {
                "n": len(self.transcript),
                "role": role,
                "argv": list(result.argv),
                "cwd": str(cwd),
                "state": result.state.value,
                "returncode": result.returncode,
                "elapsed_ms": result.elapsed_ms,
                "stdout": {"bytes": result.stdout.n_bytes, "tail": _text(result.stdout.tail)},
                "stderr": {"bytes": result.stderr.n_bytes, "tail": _text(result.stderr.tail)},
                "detail": result.detail,
            }
        )

    def transcript_bytes(self) -> bytes:
        """The transcript artifact: one JSON object a line; undecodable bytes appear as backslash escapes."""
        return b"".join(json.dumps(record).encode() + b"\n" for record in self.transcript)


@contextmanager
def open_stage(spec: TrialSpec, scenario: Scenario, subject: Subject) -> Generator[Stage]:
    """Make the directories of a trial, start its server, and stop the server at the end; directories stay."""
    root = Path(spec.scratch) / spec.short_name
    for name in ("home", "served"):
        (root / name).mkdir(parents=True)
    task = spec.loop
    store = subject.served_store(root / "served")
    mark = {SWEEP_VARIABLE: spec.sweep}
    environment = subject.environment(root / "home") | mark
    _write_files(subject, root / "home")
    if task.transport is Transport.HOSTED:
        environment |= {name: os.environ[name] for name in task.credential_env if name in os.environ}
    with ExitStack() as stack:
        begun_s = time.perf_counter()
        served = _serve_fixture if scenario.play is Play.INTERRUPTED else _serve
        port, server, own = served(stack, task.transport, root, subject, mark)
        if isinstance(server, SshWire):
            if task.variant.binary is not None:
                server.serve_by(subject.kind, task.variant.binary)
            environment["PATH"] = f"{server.path}:{environment['PATH']}"
        start_ms = (time.perf_counter() - begun_s) * 1000
        remote = task.hosted_remote or subject.remote(task.transport, store, port)
        stage = _stage(spec, scenario, subject, root, environment, remote, store, server)
        stage.server_start_ms, stage.servers, stage.own_server = start_ms, stack, own
        yield stage


def _serve_fixture(
    stack: ExitStack, _transport: Transport, _root: Path, _subject: Subject, mark: dict[str, str]
) -> _Served:
    """Start the server that takes a publication and never answers."""
    server = stack.enter_context(WireServer())
    return _Served(server.start(FIXTURE, SERVER_ENVIRONMENT | mark), server)


def _serve(stack: ExitStack, transport: Transport, root: Path, subject: Subject, mark: dict[str, str]) -> _Served:
    """Start what the transport needs.

    Whoever serves, our forwarder stands before it: it speaks HTTP over `http`, and only counts bytes and looks for the
    publication's mark over `native`. All of it carries the janitor's `mark`.
    """
    if transport is Transport.SSH:
        return _Served(wire=SshWire(root / "ssh", subject.publication_mark))
    served = root / "served"
    front = subject.server(transport, served)
    if front is None:
        return _Served()
    own: OwnServer | None = None
    if isinstance(front, Serve):
        home = root / "server"
        home.mkdir()
        _write_files(subject, home)
        own = stack.enter_context(own_server(front, subject.environment(home) | mark, root / "server.log"))
        watch = None if transport is Transport.HTTP else subject.publication_mark
        forward = ForwardSettings(upstream=f"{LOOPBACK}:{own.port}", watch=watch)
        settings = WireSettings(front=None, forward=forward)
    else:
        settings = WireSettings(front=front, forward=ForwardSettings(upstream=FRONT))
    server = stack.enter_context(WireServer())
    return _Served(server.start(settings, SERVER_ENVIRONMENT | mark), server, own)


def _write_files(subject: Subject, home: Path) -> None:
    for name, text in subject.home_files(home).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)


def _stage(
    spec: TrialSpec,
    scenario: Scenario,
    subject: Subject,
    root: Path,
    environment: Mapping[str, str],
    remote: str,
    store: Path,
    server: Wire | None,
) -> Stage:
    first = root / scenario.phases[0]
    hosted, prefix = spec.loop.transport is Transport.HOSTED, _branch_prefix(spec)
    places = {
        phase: Place(
            root=root,
            store=store,
            base=root / "base" if scenario.shared_base else first,
            workspace=root / phase,
            remote=remote,
            trunk=f"{prefix}seed" if hosted else "main",
            branch=f"{prefix}{phase}-{spec.loop.run}",
            message=f"Note the {phase} work of run {spec.loop.run}",
        )
        for phase in scenario.phases
    }
    return Stage(
        spec=spec,
        scenario=scenario,
        subject=subject,
        root=root,
        environment=environment,
        remote=remote,
        server=server,
        places=places,
        transcript=[],
    )


def _branch_prefix(spec: TrialSpec) -> str:
    """On a hosted remote every branch is below our own name."""
    return f"fairtrial/{spec.sweep}/{spec.key_name}/" if spec.loop.transport is Transport.HOSTED else "work/"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
