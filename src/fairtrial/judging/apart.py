"""Two sandboxes for one oracle: its own, with nothing of the tree, and the candidate's, with nothing of the oracle.

Between them is one unix socket, on which the oracle has commands run. The candidate's sandbox ends with the oracle's.
Where the slot has a second uid the oracle runs under that one: whatever came out of the candidate's sandbox could then
neither signal the oracle's processes, nor look into them, nor write a file of theirs.
"""

import os
import secrets
from contextlib import ExitStack
from dataclasses import replace

from fairtrial.errors import HostError
from fairtrial.host.limits import Enforcement, Space
from fairtrial.host.listener import listen_unix
from fairtrial.host.sandbox import start_sandbox
from fairtrial.host.slot import Slot
from fairtrial.judging.commands import CANDIDATE_SOCKET, candidate_client
from fairtrial.judging.stage import ORACLE_ROOT
from fairtrial.model.sandbox import WORKSPACE, Bind, SandboxResult, SandboxSpec, SandboxState

__all__ = ["run_apart"]


def run_apart(
    oracle: SandboxSpec, candidate: SandboxSpec, *, slot: Slot, enforcement: Enforcement, space: Space | None
) -> SandboxResult:
    """Run an oracle's sandbox to its end beside a candidate's.

    Args:
        oracle: The oracle's; what it has of the workspace is taken away.
        candidate: The candidate's.
        slot: Under which ids they run: the candidate under its own, the oracle under its judge's, if it has one.
        enforcement: How limits are enforced.
        space: What the candidate writes to.

    Returns:
        How the oracle's ended; where only the candidate's could not start, that.

    Raises:
        HostError: The socket or a sandbox cannot be made.
    """
    judge_slot = slot.judge or slot
    path = judge_slot.root / f"k{secrets.token_hex(6)}"
    with ExitStack() as stack:
        try:
            listener = listen_unix(path)
        except OSError as problem:
            raise HostError(f"{path}: {problem.strerror}; name a shorter place with --scratch DIR") from problem
        stack.callback(path.unlink)
        kept = [
            bind for bind in oracle.binds if bind.target != WORKSPACE and not bind.target.startswith(f"{WORKSPACE}/")
        ]
        oracle = replace(
            oracle,
            cwd=ORACLE_ROOT,
            binds=(*kept, Bind(source=path, target=CANDIDATE_SOCKET)),
            files=(*oracle.files, candidate_client()),
        )
        candidate = replace(candidate, pass_fds=(listener,))
        try:
            beside = stack.enter_context(start_sandbox(candidate, slot=slot, enforcement=enforcement, space=space))
        finally:
            os.close(listener)  # with the candidate's own it is gone, and whoever calls is told so
        judge = stack.enter_context(start_sandbox(oracle, slot=judge_slot, enforcement=enforcement))
        result = judge.wait(beside=(beside,))
        ended = beside.stop()
    if ended.state is SandboxState.START_FAILURE and result.state is not SandboxState.START_FAILURE:
        # The oracle's could be made, so the host is able, and it is the tree that keeps the other from starting.
        return replace(ended, state=SandboxState.BROKEN)
    return result
