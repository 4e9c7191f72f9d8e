"""The stage of one trial: its directories, its environment, its server, and the one way commands are run on it.

Every command, timed or not, goes through here and leaves a line in the trial's transcript.
"""

import json
import os
import shlex
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from fairtrial.errors import HostError
from fairtrial.host.janitor import SWEEP_VARIABLE
from fairtrial.host.process import run as run_process
from fairtrial.model.loop import Place, Scenario, Step, Transport
from fairtrial.model.process import ProcessResult
from fairtrial.model.trial import TrialSpec
from fairtrial.protocols import Subject
from fairtrial.wire.client import WireServer
from fairtrial.wire.settings import FRONT, ForwardSettings, WireSettings

__all__ = ["PROBE_LIMIT_S", "STEP_LIMIT_S", "Stage", "open_stage"]

STEP_LIMIT_S: Final = 120.0
PROBE_LIMIT_S: Final = 120.0
GRACE_S: Final = 2.0
PROBE_CAPTURE_BYTES: Final = 4 * 1024 * 1024
SERVER_ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
SHOWN_ROOT: Final = "/trial"
SHOWN_ORIGIN: Final = "http://127.0.0.1:8080"


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
        server: The server process of a loopback transport, or None.
        places: One place for each phase.
        transcript: Every command run so far, as records of the transcript artifact.
        n_probe_calls: Commands run by the harness to look, not to act.
    """

    spec: TrialSpec
    scenario: Scenario
    subject: Subject
    root: Path
    environment: Mapping[str, str]
    remote: str
    server: WireServer | None
    places: Mapping[str, Place]
    transcript: list[dict[str, object]]
    n_probe_calls: int = 0

    def run_step(self, step: Step) -> ProcessResult:
        """Run one timed command of the agent."""
        result = run_process(step.argv, env=self.environment, cwd=step.cwd, timeout_s=STEP_LIMIT_S, grace_s=GRACE_S)
        self._record("step", result, step.cwd)
        return result

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

    def shown(self, argv: Sequence[str]) -> tuple[str, ...]:
        """A command as an agent would have typed it: without paths and ports of this machine, so it counts alike."""
        binary, *arguments = argv
        name = self.subject.kind if binary == self.spec.loop.variant.binary else binary
        return (name, *(self._shown_argument(argument) for argument in arguments))

    def shown_line(self, argv: Sequence[str]) -> str:
        """The same as one shell line."""
        return shlex.join(self.shown(argv))

    def _shown_argument(self, argument: str) -> str:
        if self.spec.loop.transport is Transport.HTTP:
            origin = urlsplit(self.remote)
            argument = argument.replace(f"{origin.scheme}://{origin.netloc}", SHOWN_ORIGIN)
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
    environment = subject.environment(root / "home") | {SWEEP_VARIABLE: spec.sweep}
    if task.transport is Transport.HOSTED:
        environment |= {name: os.environ[name] for name in task.credential_env if name in os.environ}
    front = subject.server(task.transport, root / "served")
    if front is None:
        remote = task.hosted_remote or subject.remote(task.transport, store, None)
        yield _stage(spec, scenario, subject, root, environment, remote, store, None)
        return
    with WireServer() as server:
        port = server.start(
            WireSettings(front=front, forward=ForwardSettings(upstream=FRONT)),
            SERVER_ENVIRONMENT | {SWEEP_VARIABLE: spec.sweep},
        )
        remote = subject.remote(task.transport, store, port)
        yield _stage(spec, scenario, subject, root, environment, remote, store, server)


def _stage(
    spec: TrialSpec,
    scenario: Scenario,
    subject: Subject,
    root: Path,
    environment: Mapping[str, str],
    remote: str,
    store: Path,
    server: WireServer | None,
) -> Stage:
    first = root / scenario.phases[0]
    hosted = spec.loop.transport is Transport.HOSTED
    prefix = f"fairtrial/{spec.sweep}/{spec.key_name}/" if hosted else "work/"
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


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
