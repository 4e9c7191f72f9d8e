"""What a worker is told of one attempt, and what identifies a trial."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fairtrial.model.bench import BenchTrial
from fairtrial.model.loop import Transport, Variant
from fairtrial.model.sandbox import Containment

__all__ = ["AnySpec", "AttemptSpec", "BenchSpec", "LoopTask", "ModelSource", "TrialSpec", "trial_key"]


def trial_key(*parts: object) -> str:
    """The identity of a trial: lane, task or scenario, arm or subject, run; never ports, paths or clocks."""
    return "/".join(str(part) for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTask:
    """One scenario by one subject over one transport once.

    Attributes:
        scenario: Scenario name.
        variant: The subject as configured, its binary resolved.
        subject_kind: The subject's kind.
        transport: How the client reaches the server.
        run: 0-based.
        block: The block it belongs to.
        position_in_block: 0-based place in the block's order.
        block_order: Names of the block's subjects in the order they run.
        null_control: It measures the same tool a second time under another name.
        skip_reason: Why the cell cannot be measured; its only row says so. None when it can.
        admitted_output_characters: Output characters that count towards a token estimate, per command.
        n_seed_files: Files of the seeded tree besides README and notes.
        hosted_remote: Address of the disposable hosted remote, or None.
        credential_env: Names of the caller's variables that the client of a hosted remote may see.
        faults: Fault cases to play, where the scenario plays any; none named = all.
    """

    scenario: str
    variant: Variant
    subject_kind: str
    transport: Transport
    run: int
    block: str
    position_in_block: int
    block_order: tuple[str, ...]
    null_control: bool
    skip_reason: str | None
    admitted_output_characters: int
    n_seed_files: int
    hosted_remote: str | None
    credential_env: tuple[str, ...]
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpec:
    """One attempt at one trial of either lane, as sent to a worker: plain and serializable.

    Attributes:
        sweep: The sweep's id.
        key: The trial's identity.
        attempt: 1-based.
        plan_index: Place in the sweep's plan.
        sweep_pass: 0 for the first execution of the sweep, one more for each resumption.
        results: The results directory, whose attempt directory takes intent, outcome and artifacts (absolute).
        scratch: The sweep's scratch directory (absolute).
        metadata: Fields that every row of the sweep carries.
    """

    sweep: str
    key: str
    attempt: int
    plan_index: int
    sweep_pass: int
    results: str
    scratch: str
    metadata: Mapping[str, object]

    @property
    def key_name(self) -> str:
        """A short name of the trial itself, the same for every attempt."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:12]

    @property
    def short_name(self) -> str:
        """A short directory name that tells neither subject nor scenario."""
        return hashlib.sha256(f"{self.sweep}\0{self.key}\0{self.attempt}".encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec(AttemptSpec):
    """One attempt at one trial of the tool lane.

    Attributes:
        loop: The scenario, the subject and the run.
    """

    loop: LoopTask


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Who plays the model: an upstream or a script.

    Attributes:
        upstream: Name of an upstream of the gateway.
        script: Absolute path of a scripted model's file, as captured.
        record: What it answers is kept, session by session, as a script that plays it again.
    """

    upstream: str | None = None
    script: str | None = None
    record: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSpec(AttemptSpec):
    """One attempt at one trial of the agent lane.

    Attributes:
        bench: The task, the arm and the run.
        gateway: Absolute path of the gateway's control socket; None where no arm speaks to a model.
        source: Who plays the model.
        n_workers: Workers of the sweep, which share the machine.
        allow_unenforced: Limits that the user lets go without enforcement.
        containment: What keeps the trial in.
    """

    bench: BenchTrial
    gateway: str | None
    source: ModelSource
    n_workers: int
    allow_unenforced: tuple[str, ...] = ()
    containment: Containment = Containment.BUBBLEWRAP


AnySpec: TypeAlias = TrialSpec | BenchSpec
"""An attempt of either lane."""
