"""Running one judge: an oracle that must prove that it finished, or a task's authored check.

Each gets a tree of its own, no network and fresh namespaces. What an oracle writes is counted and thrown away.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from fairtrial.errors import HostError, UsageError
from fairtrial.evidence.endings import EndingKind
from fairtrial.host.limits import Enforcement
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import Slot
from fairtrial.judging.apart import run_apart
from fairtrial.judging.captured import CaptureLostError, is_unchanged, read_captured
from fairtrial.judging.commands import Command, candidate_host, oracle_environment, runner_command, shell_command
from fairtrial.judging.decide import decide_check, decide_oracle
from fairtrial.judging.placement import place_file
from fairtrial.judging.proof import ProofChannel
from fairtrial.judging.pytest_settings import choose_settings
from fairtrial.judging.stage import clear_mount_points, own_paths, restore_base, stage_oracle
from fairtrial.judging.values import (
    CheckVerdict,
    Isolation,
    JudgedTree,
    OracleSpec,
    OracleVerdict,
    Runner,
    Surroundings,
)
from fairtrial.model.sandbox import WORKSPACE, Access, Bind, SandboxSpec

__all__ = ["judge_oracle", "run_check"]

_OUTPUT_CHARACTERS: Final = 4000
_OUR_VARIABLES: Final = "FAIRTRIAL_"


def judge_oracle(
    oracle: OracleSpec, tree: JudgedTree, surroundings: Surroundings, *, slot: Slot, enforcement: Enforcement
) -> OracleVerdict:
    """Run an oracle on a tree.

    Args:
        oracle: The oracle.
        tree: The tree, in a layer that nothing else uses before or after; no process of the agent is alive.
        surroundings: What is beside it.
        slot: Under which ids.
        enforcement: How limits are enforced.

    Raises:
        HostError: The sandbox or the stage cannot be made or removed.
        UsageError: The oracle's targets or arguments make no sense.
    """
    try:
        contents = read_captured(oracle.files)
    except CaptureLostError as problem:
        return OracleVerdict(passed=False, kind=EndingKind.ORACLE_UNAVAILABLE, reason=str(problem))
    own = own_paths(oracle.files)
    if own and oracle.isolation is Isolation.PROCESS:
        raise UsageError(
            "oracle: with isolation 'process' no file can go into the workspace; put it into the oracle root"
        )
    with ExitStack() as stack:
        try:
            restored = restore_base(tree, own, slot=slot)
            clear_mount_points(tree, surroundings.binds, slot=slot)
        except OSError as problem:
            raise HostError(f"judged tree: {problem}; see the scratch directory's file system") from problem
        stager = slot.judge or slot if oracle.isolation is Isolation.PROCESS else slot
        stage = stack.enter_context(stage_oracle(oracle.files, contents, tree, slot=stager))
        command = _oracle_command(oracle, tree, own, slot=slot)
        channel = stack.enter_context(ProofChannel())
        spec = _spec(command, tree, surroundings, oracle_environment(oracle))
        spec = replace(spec, binds=(*spec.binds, *stage.binds), pass_fds=channel.pass_fds)
        if oracle.isolation is Isolation.PROCESS:
            candidate = _spec(candidate_host(), tree, surroundings, {})
            result = run_apart(spec, candidate, slot=slot, enforcement=enforcement, space=tree.space)
        else:
            result = run_sandbox(spec, slot=slot, enforcement=enforcement, space=tree.space)
        return decide_oracle(
            oracle,
            result,
            channel.read(),
            intact=stage.is_intact(),
            available=is_unchanged(oracle.files),
            restored=restored,
        )


def run_check(
    command: str,
    tree: JudgedTree,
    surroundings: Surroundings,
    *,
    slot: Slot,
    enforcement: Enforcement,
    redact: Callable[[str], str],
) -> CheckVerdict:
    """Run a task's authored check on a tree, the oracle's files not being there. Arguments and errors: `judge_oracle`.

    Args:
        command: A shell command; the shell reads no profile.
        tree: See there.
        surroundings: See there.
        slot: See there.
        enforcement: See there.
        redact: Takes secrets out of what is kept of its output.
    """
    try:
        clear_mount_points(tree, surroundings.binds, slot=slot)
    except OSError as problem:
        raise HostError(f"judged tree: {problem}; see the scratch directory's file system") from problem
    spec = _spec(Command(("/bin/sh", "-c", command), ()), tree, surroundings, {})
    result = run_sandbox(spec, slot=slot, enforcement=enforcement, space=tree.space)
    said = (result.stdout.tail + result.stderr.tail).decode(errors="backslashreplace")
    return decide_check(result, output=redact(said)[-_OUTPUT_CHARACTERS:])


def _oracle_command(oracle: OracleSpec, tree: JudgedTree, own: frozenset[bytes], *, slot: Slot) -> Command:
    if oracle.runner is None:
        return shell_command(oracle.command)
    if oracle.runner is not Runner.PYTEST or oracle.isolation is Isolation.PROCESS:
        return runner_command(oracle, oracle.runner, None)
    settings = choose_settings(tree.merged, {each.path: each for each in tree.change}, own)
    if settings.content is not None:
        place_file(tree.merged, settings.path, settings.content, slot=slot).close()
    return runner_command(oracle, oracle.runner, settings.path)


def _spec(command: Command, tree: JudgedTree, surroundings: Surroundings, variables: Mapping[str, str]) -> SandboxSpec:
    """The sandbox of a judge: no network is what a sandbox has unless another one is asked for."""
    workspace = Bind(source=tree.merged, target=WORKSPACE, access=Access.READ_WRITE)
    env = {name: value for name, value in surroundings.env.items() if not name.startswith(_OUR_VARIABLES)}
    return SandboxSpec(
        argv=command.argv,
        env={**env, **variables},
        binds=(workspace, *surroundings.binds),
        files=command.files,
        limits=surroundings.limits,
    )
