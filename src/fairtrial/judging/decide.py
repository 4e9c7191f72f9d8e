"""From how a judge's sandbox ended to a verdict. Pure.

Void is only what happened outside the sandbox; whatever went wrong inside counts against the arm.
"""

from fairtrial.evidence.endings import EndingKind
from fairtrial.judging.commands import NO_PROGRAM, NOT_CLOSED
from fairtrial.judging.proof import Proved
from fairtrial.judging.values import CheckVerdict, Counts, OracleSpec, OracleVerdict, Proof
from fairtrial.model.sandbox import SandboxResult, SandboxState

__all__ = ["decide_check", "decide_oracle"]

_UNPROVEN = "it exited with 0 but did not prove that it finished"


def decide_oracle(
    oracle: OracleSpec,
    result: SandboxResult,
    proved: Proved,
    *,
    intact: bool,
    available: bool,
    restored: tuple[str, ...],
) -> OracleVerdict:
    """Decide what an oracle's run says.

    Args:
        oracle: The oracle.
        result: How its sandbox ended.
        proved: What came out of its proof channel.
        intact: Its staged files are what they were.
        available: Its captured files are what they were.
        restored: What it ran without.
    """
    kind, reason = _why_not_run(result)
    if kind is None and not available:
        kind, reason = EndingKind.ORACLE_UNAVAILABLE, "its captured files have changed, outside every sandbox"
    if kind is None and _is_our_fault(oracle, result):
        kind, reason = EndingKind.INFRA_ERROR, _explain_fault(oracle, result)
    if kind is None:
        reason = _why_failed(oracle, result, proved, intact=intact)
        kind = EndingKind.ORACLE_FAILED if reason else None
    return OracleVerdict(
        passed=kind is None,
        kind=kind,
        reason=reason,
        proof=proved.proof,
        counts=proved.counts if oracle.runner is not None else None,
        restored=restored,
        state=result.state,
        returncode=result.returncode,
        limit=result.limit,
        elapsed_ms=result.elapsed_ms,
        enforced=result.enforced,
    )


def decide_check(result: SandboxResult, *, output: str) -> CheckVerdict:
    """Decide what an authored check's run says."""
    kind, reason = _why_not_run(result)
    if kind is None:
        reason = _why_not_ended(result) or _why_status(result)
        kind = EndingKind.VERIFY_FAILED if reason else None
    return CheckVerdict(
        passed=kind is None,
        kind=kind,
        reason=reason,
        output=output,
        state=result.state,
        returncode=result.returncode,
        limit=result.limit,
        elapsed_ms=result.elapsed_ms,
        enforced=result.enforced,
    )


def _why_not_run(result: SandboxResult) -> tuple[EndingKind | None, str]:
    if result.state is SandboxState.START_FAILURE:
        return EndingKind.INFRA_ERROR, f"its sandbox could not be made: {result.detail}"
    if result.state is SandboxState.STOPPED:
        return EndingKind.CANCELLED, "it was stopped by us"
    return None, ""


def _is_our_fault(oracle: OracleSpec, result: SandboxResult) -> bool:
    """Tell whether a runner ended before it started anything; these exit codes are its own."""
    return oracle.runner is not None and result.returncode in {NOT_CLOSED, NO_PROGRAM}


def _explain_fault(oracle: OracleSpec, result: SandboxResult) -> str:
    if result.returncode == NO_PROGRAM:
        return f"the program that runs {oracle.runner} tests is not on PATH in the sandbox; name it in toolchains"
    return "the kernel does not close a process to others of the same user"


def _why_failed(oracle: OracleSpec, result: SandboxResult, proved: Proved, *, intact: bool) -> str:
    if not intact:
        return "its staged files were changed by what ran in its sandbox"
    if ended := _why_not_ended(result):
        return ended
    counts = proved.counts if proved.proof is Proof.PROVEN else None
    if oracle.runner is not None and counts is None:
        return "its tests left no report that can be believed: " + (
            _UNPROVEN if result.returncode == 0 else "they did not finish"
        )
    if oracle.runner is not None and counts is not None and (lacking := _why_counts(oracle, counts)):
        return lacking
    if status := _why_status(result):
        return status
    if proved.proof is Proof.PROVEN:
        return ""
    return _UNPROVEN if proved.proof is Proof.MISSING else f"{_UNPROVEN}: what it wrote is not the run's nonce"


def _why_not_ended(result: SandboxResult) -> str:
    """Explain what ended it; a state that this does not know is no good end either."""
    if result.state is SandboxState.EXITED:
        return ""
    if result.state is SandboxState.LIMIT:
        return f"it reached its limit of {result.limit}"
    if result.state is SandboxState.BROKEN:
        return "its sandbox was destroyed from inside, or its tree cannot be used"
    return f"it did not end in time: {result.detail}"


def _why_status(result: SandboxResult) -> str:
    return "" if result.returncode == 0 else f"it ended with exit status {result.returncode}"


def _why_counts(oracle: OracleSpec, counts: Counts) -> str:
    """Check a runner's counts again, whatever it made of them itself."""
    if counts.n_failed:
        return f"{counts.n_failed} test{'s' if counts.n_failed != 1 else ''} failed"
    if oracle.expect_tests is not None:
        enough = counts.n_passed >= oracle.expect_tests
        return "" if enough else f"{counts.n_passed} of {oracle.expect_tests} expected tests ran and passed"
    if counts.n_skipped:
        return f"{counts.n_skipped} tests were skipped, and the oracle does not say how many are expected"
    return "" if counts.n_passed else "no test of the oracle's own files ran"
