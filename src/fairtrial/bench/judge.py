"""Judging one change: the authored check and the oracle, each on a fresh tree that we build.

Nothing of the session is alive any more, and of its tree only the credited change is used.
"""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from fairtrial.bench.blobs import BlobLostError
from fairtrial.bench.node import Node, Prepared, judge_environment, limits_of, toolchain_binds, workspace_bind
from fairtrial.host.sandbox import run_sandbox
from fairtrial.model.bench import Into, Task
from fairtrial.model.sandbox import File, SandboxResult, SandboxSpec, SandboxState
from fairtrial.workspace.change import Change, apply_change
from fairtrial.workspace.layers import Layer, open_layer
from fairtrial.workspace.tree import Tree

__all__ = ["OracleLostError", "Verdict", "ask_oracle", "check_authored"]

ORACLE_ROOT: Final = "/oracle"
PROOF_FD: Final = 3
NONCE_BYTES: Final = 16
MOST_PROOF_BYTES: Final = 4096
OUTPUT_CHARACTERS: Final = 4000


class OracleLostError(Exception):
    """Our captured oracle source is missing or changed: no verdict, and no fault of the arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a check or an oracle said.

    Attributes:
        passed: It passed.
        reason: Why not, in words that tell nothing of an oracle's inside; "" when it passed.
        output: The end of what it printed; "" for an oracle, whose output is never kept.
        host_failed: It could not be run at all: an infra-error.
    """

    passed: bool
    reason: str
    output: str
    host_failed: bool = False


def check_authored(node: Node, task: Task, prepared: Prepared, change: Change, *, timeout_s: float) -> Verdict:
    """Run the task's own check on the change.

    Raises:
        HostError: The host failed.
    """
    with _judged(node, task, prepared, change) as layer:
        spec = SandboxSpec(
            argv=("/bin/sh", "-c", task.verify),
            env=judge_environment(),
            binds=(workspace_bind(layer), *toolchain_binds(task)),
            limits=limits_of(task.limits, wall_s=timeout_s),
        )
        result = run_sandbox(spec, slot=node.slot, enforcement=node.enforcement, space=layer.space)
    output = (result.stdout.tail + result.stderr.tail).decode("utf-8", "backslashreplace")[-OUTPUT_CHARACTERS:]
    reason = _reason(result)
    return Verdict(
        passed=not reason,
        reason=reason,
        output=output,
        host_failed=result.state is SandboxState.START_FAILURE,
    )


def ask_oracle(node: Node, task: Task, prepared: Prepared, change: Change, *, timeout_s: float) -> Verdict:
    """Run the task's oracle on the change.

    Raises:
        OracleLostError: Its captured files are not what was captured.
        HostError: The host failed.
    """
    try:
        contents = {file.blob.name: (file.into, node.blobs.read(file.blob)) for file in task.oracle.files}
    except BlobLostError as problem:
        raise OracleLostError(str(problem)) from problem
    nonce = secrets.token_hex(NONCE_BYTES)
    beside = tuple(
        File(target=f"{ORACLE_ROOT}/{target}", content=content)
        for target, (into, content) in contents.items()
        if into is Into.ORACLE_ROOT
    )
    over = {target.encode(): content for target, (into, content) in contents.items() if into is Into.WORKSPACE}
    with _judged(node, task, prepared, change) as layer:
        tree = Tree(layer.merged)
        for target, content in over.items():
            tree.put_file(target, content, 0o444, node.slot)
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            spec = SandboxSpec(
                argv=("/bin/sh", "-c", task.oracle.command),
                env={
                    **judge_environment(),
                    "FAIRTRIAL_ORACLE_ROOT": ORACLE_ROOT,
                    "FAIRTRIAL_PROOF_FD": str(PROOF_FD),
                    "FAIRTRIAL_NONCE": nonce,
                },
                binds=(workspace_bind(layer), *toolchain_binds(task)),
                files=beside,
                pass_fds=(write_fd,),
                limits=limits_of(task.limits, wall_s=timeout_s),
            )
            result = run_sandbox(spec, slot=node.slot, enforcement=node.enforcement, space=layer.space)
            os.close(write_fd)
            write_fd = -1
            proof = os.read(read_fd, MOST_PROOF_BYTES)
        finally:
            os.close(read_fd)
            if write_fd >= 0:
                os.close(write_fd)
        changed = [target for target, content in over.items() if _differs(tree, target, content)]
    reason = _reason(result)
    if not reason and changed:
        reason = "files of the oracle were changed while it ran"
    if not reason and proof.strip() != nonce.encode():
        reason = "it exited 0 without proof that it finished"
    return Verdict(passed=not reason, reason=reason, output="", host_failed=result.state is SandboxState.START_FAILURE)


@contextmanager
def _judged(node: Node, task: Task, prepared: Prepared, change: Change) -> Generator[Layer]:
    room, storage = node.room(task.limits)
    with open_layer(prepared.base, slot=node.slot, room=room, storage=storage) as layer:
        apply_change(change, layer, slot=node.slot)
        yield layer


def _differs(tree: Tree, target: bytes, content: bytes) -> bool:
    try:
        return tree.read_file(target, len(content) + 1) != content
    except OSError:
        return True


def _reason(result: SandboxResult) -> str:
    """Why a command did not simply end with 0; "" when it did."""
    if result.ok:
        return ""
    if result.limit is not None:
        return f"reached its limit of {result.limit}"
    if result.state is SandboxState.EXITED:
        return f"exit status {result.returncode}"
    return f"{result.state}: {result.detail}"
