"""The rows of one trial of the tool lane, one builder a kind (step, harness, hole, skip).

Field names are those of the reference; totals are computed in `fairtrial.evidence.loop`.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.evidence.tokens import token_fields
from fairtrial.host.machine import filesystem_of, load_average_1m
from fairtrial.model.loop import RemoteWords, Scenario, Transport
from fairtrial.model.process import ProcessResult
from fairtrial.model.trial import TrialSpec

__all__ = ["LOOP_ROW", "Row", "RowBuilder", "remote_of"]

LOOP_ROW: Final = "loop-row/1"
STDERR_TAIL: Final = 4000
NO_COMMAND: Final[list[str]] = []
NO_PROCESS: Final = {"tool_call_count": 0, "terminal_tool_call_count": 0, "vcs_tool_call_count": 0}
SERVERS: Final = {
    Transport.FILE: "none: the store is read through the file system",
    Transport.HTTP: "the tool's own server on 127.0.0.1 behind a counting forwarder",
    Transport.NATIVE: "the tool's own server on 127.0.0.1 behind a forwarder that counts bytes",
    Transport.SSH: "the tool's own server command behind a stand-in for ssh on this machine",
    Transport.HOSTED: "hosted",
}
TRACKS: Final = {
    Transport.FILE: "core-equivalent",
    Transport.HTTP: "local-loopback",
    Transport.NATIVE: "local-loopback",
    Transport.SSH: "local-loopback",
    Transport.HOSTED: "agent-default",
}

Row = dict[str, object]


def remote_of(scenario: Scenario, transport: Transport, *, is_played: bool) -> RemoteWords:
    """What rows say of the remote: a scenario may have one of its own, but none where it is not played."""
    own = scenario.remote if is_played else None
    return own or RemoteWords(transport=transport.value, server=SERVERS[transport])


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBuilder:
    """Makes rows that all carry the trial's identity.

    Attributes:
        identity: Fields that every row of the trial carries.
        admitted_output_characters: Output characters that count towards a token estimate, per command.
    """

    identity: Mapping[str, object]
    admitted_output_characters: int

    @classmethod
    def of(cls, spec: TrialSpec, scenario: Scenario) -> "RowBuilder":
        """The builder of one attempt's rows."""
        task = spec.loop
        remote = remote_of(scenario, task.transport, is_played=task.skip_reason is None)
        filesystem = filesystem_of(Path(spec.scratch))
        identity = {
            "schema": LOOP_ROW,
            **spec.metadata,
            "profile": scenario.profile,
            "benchmark_track": scenario.track or TRACKS[task.transport],
            "git_remote_mode": "hosted" if task.transport is Transport.HOSTED else "local",
            "subject": task.variant.name,
            "subject_kind": task.subject_kind,
            "subject_label": task.variant.label,
            "scenario": task.scenario,
            "run": task.run,
            "remote_transport": remote.transport,
            "remote_server": remote.server,
            "block": task.block,
            "position_in_block": task.position_in_block,
            "run_subject_order": list(task.block_order),
            "null_control": task.null_control,
            "sweep_pass": spec.sweep_pass,
            "filesystem_type": filesystem.type,
            "filesystem_options": filesystem.options,
        }
        return cls(identity=identity, admitted_output_characters=task.admitted_output_characters)

    def step(
        self, operation: str, kind: str, command: Sequence[str], expected: Sequence[int], result: ProcessResult
    ) -> Row:
        """A command that an agent would have run (`kind` vcs or edit)."""
        code = result.returncode
        fine = code in expected and not result.timed_out
        returncode = 0 if fine else code or 1
        output_characters = result.stdout.n_characters + result.stderr.n_characters
        row = self._row(operation, kind) | {
            "elapsed_ms": None if result.elapsed_ms is None else round(result.elapsed_ms, 3),
            "returncode": returncode,
            "process_returncode": code,
            "process_state": result.state.value,
            "timed_out": result.timed_out,
            "expected_returncodes": list(expected),
            "command": list(command),
            "tool_call_count": 1,
            "terminal_tool_call_count": 1,
            "vcs_tool_call_count": 1 if kind == "vcs" else 0,
            "harness_command_count": 0,
            "stdout_bytes": result.stdout.n_bytes,
            "stderr_bytes": result.stderr.n_bytes,
            "stdout_truncated": result.stdout.tail_truncated,
            "stderr_truncated": result.stderr.tail_truncated,
            "raw_output_bytes": result.stdout.n_bytes + result.stderr.n_bytes,
            **token_fields(len(shlex.join(command)), output_characters, admitted=self.admitted_output_characters),
            "cpu_user_s": result.cpu_user_s,
            "cpu_system_s": result.cpu_system_s,
            "peak_memory_bytes": result.peak_memory_bytes,
            "peak_memory_reason": result.peak_memory_reason,
            "peak_memory_below_bytes": result.peak_memory_below_bytes,
        }
        if result.elapsed_ms is None:
            row["elapsed_ms_reason"] = result.detail or result.state.value
        if returncode != 0:
            row["stderr"] = result.stderr.tail.decode("utf-8", "backslashreplace")[-STDERR_TAIL:] or result.detail
        return row

    def harness(self, operation: str, *, elapsed_ms: float | None, n_commands: int, returncode: int = 0) -> Row:
        """Work that an agent would not do; timed, and counted in elapsed totals."""
        return (
            self._row(operation, "harness")
            | NO_PROCESS
            | {
                "elapsed_ms": None if elapsed_ms is None else round(elapsed_ms, 3),
                "returncode": returncode,
                "command": NO_COMMAND,
                "harness_command_count": n_commands,
                "stdout_bytes": 0,
                "stderr_bytes": 0,
            }
        )

    def hole(self, operation: str, reason: str) -> Row:
        """A step inside a measured loop that was not measured."""
        return (
            self._row(operation, "summary")
            | NO_PROCESS
            | {
                "elapsed_ms": 0,
                "returncode": 77,
                "skipped": True,
                "skip_reason": reason,
                "command": NO_COMMAND,
                "harness_command_count": 0,
            }
        )

    def skip(self, stem: str, reason: str) -> Row:
        """A cell of the plan that could not be measured at all."""
        return self.hole(f"{stem}.skipped", reason)

    def total(self, stem: str, sums: Mapping[str, object]) -> Row:
        """The total row of a measured attempt, from the sums over its rows."""
        return {**self._row(f"{stem}.total", "summary"), **sums, "operation": f"{stem}.total"}

    def void(self, stem: str, kind: str, detail: str) -> Row:
        """The total row of an attempt that is no evidence."""
        return (
            self._row(f"{stem}.total", "summary")
            | NO_PROCESS
            | {
                "elapsed_ms": None,
                "elapsed_ms_reason": f"void: {kind}",
                "returncode": 1,
                "command": NO_COMMAND,
                "harness_command_count": 0,
                "error_kind": kind,
                "error_detail": detail[:2000],
            }
        )

    def _row(self, operation: str, step_kind: str) -> Row:
        return {
            **self.identity,
            "operation": operation,
            "step_kind": step_kind,
            "retry_count": 0,
            "human_action_count": 0,
            "load_1m": load_average_1m(),
        }
