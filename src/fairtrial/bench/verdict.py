"""How a session, a phase and a trial ended, by the closed table of endings. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairtrial.bench.judge import Judgement
from fairtrial.bench.review import JudgedReview, Left
from fairtrial.bench.session import Session
from fairtrial.evidence.endings import EndingKind
from fairtrial.gateway.ledger import WireRow
from fairtrial.gateway.totals import provider_fault
from fairtrial.judging.values import CheckVerdict
from fairtrial.model.sandbox import Limit, SandboxResult, SandboxState

__all__ = ["PHASE_KINDS", "Ended", "end_of_judgement", "end_of_review", "end_of_session", "evidence_kind"]

PHASE_KINDS: Final[Mapping[str, EndingKind]] = {
    "plan": EndingKind.PLAN_EVIDENCE_INVALID,
    "review": EndingKind.REVIEW_EVIDENCE_INVALID,
}
TAIL_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Why something ended otherwise than well.

    Attributes:
        kind: The ending.
        detail: One line or a few for people.
    """

    kind: EndingKind
    detail: str


def evidence_kind(phase: str) -> EndingKind:
    """The kind of a phase whose evidence is not what it must be."""
    return PHASE_KINDS.get(phase, EndingKind.IMPLEMENTATION_EVIDENCE_INVALID)


def end_of_session(session: Session) -> Ended | None:
    """Say how a session ended; None when it ended well.

    What the wire, the kernel or our own code shows of a cause outside comes first; everything else is the arm's.
    """
    result, closed = session.result, session.closed
    if result.state is SandboxState.START_FAILURE:
        return Ended(kind=EndingKind.INFRA_ERROR, detail=f"the sandbox could not be built: {result.detail}")
    if session.gateway_gone:
        return Ended(kind=EndingKind.SESSION_ERROR, detail="the gateway died")
    if closed is not None and closed.internal_error is not None:
        return Ended(kind=EndingKind.SESSION_ERROR, detail=f"the gateway failed: {closed.internal_error}")
    how = _end_of_process(session)
    if (
        closed is not None
        and closed.provider_fault is not None
        and (how is not None or _took_a_fault_for_the_end(session))
    ):
        return Ended(kind=EndingKind.SESSION_ERROR, detail=f"the provider failed: {closed.provider_fault}")
    if closed is not None and closed.budget_exhausted is not None:
        return Ended(
            kind=EndingKind.BUDGET_EXHAUSTED, detail=f"the trial's budget of {closed.budget_exhausted} is spent"
        )
    if how is not None and (refusal := _last_refusal(session.rows)) is not None:
        return Ended(kind=how.kind, detail=f"the gateway refused its last request: {refusal}; {how.detail}")
    return how


def _last_refusal(rows: Sequence[WireRow]) -> str | None:
    """What the gateway said to the last request, if it refused it: among what a CLI prints it may be hard to find."""
    last = rows[-1] if rows else None
    return None if last is None or last.refusal is None else last.detail


def end_of_judgement(said: Judgement, *, changed: bool) -> Ended | None:
    """Say how a judged trial ended whose sessions were all good; None when it is resolved."""
    for name, verdict in (("authored check", said.authored), ("oracle", said.oracle)):
        if verdict.kind is not None:
            return Ended(kind=verdict.kind, detail=f"{name}: {verdict.reason}")
    if not changed:
        return Ended(kind=EndingKind.NO_WORK_PRODUCED, detail="the repository was not changed")
    return None


def end_of_review(judged: JudgedReview, left: Left, authored: CheckVerdict) -> Ended | None:
    """Say how a trial ended whose session was good and whose review was scored; None when it is resolved."""
    if left.problem is not None:
        return Ended(kind=EndingKind.REVIEW_EVIDENCE_INVALID, detail=left.problem)
    if judged.problem is not None:
        return Ended(kind=EndingKind.REVIEW_EVIDENCE_INVALID, detail=f"{judged.problem}: {judged.detail}")
    if authored.kind is not None:
        return Ended(kind=authored.kind, detail=f"authored check: {authored.reason}")
    score = judged.score
    if score.is_perfect:
        return None
    detail = (
        f"{score.false_negatives} defects were not found, {score.false_positives} findings are false,"
        f" and the verdict {score.verdict} is {'right' if score.verdict_correct else 'wrong'}"
    )
    return Ended(kind=EndingKind.ORACLE_FAILED, detail=detail)


def _took_a_fault_for_the_end(session: Session) -> bool:
    """The main loop's last reply is one that the provider broke: gemini-cli ends on it and says that all went well.

    A side call, which offers no tools, may fail behind the main loop's end; that is no fault of the session.
    """
    return provider_fault(row for row in session.rows if row.n_tools) is not None


def _end_of_process(session: Session) -> Ended | None:
    result, report = session.result, session.report
    match result.state:
        case SandboxState.BROKEN:
            return Ended(
                kind=EndingKind.SANDBOX_BROKEN, detail=f"the sandbox was destroyed from inside; {_tail(result)}"
            )
        case SandboxState.STOPPED:
            return Ended(kind=EndingKind.CANCELLED, detail="the session was stopped")
        case SandboxState.TIMEOUT | SandboxState.FORCED_KILL:
            return Ended(kind=EndingKind.AGENT_TIMEOUT, detail=result.detail)
        case SandboxState.LIMIT:
            if result.limit is Limit.WALL:
                return Ended(kind=EndingKind.AGENT_TIMEOUT, detail=result.detail)
            return Ended(kind=EndingKind.LIMIT_EXCEEDED, detail=f"reached its limit of {result.limit}; {_tail(result)}")
        case SandboxState.EXITED | SandboxState.START_FAILURE:
            pass
    if session.out_of_time:
        return Ended(kind=EndingKind.AGENT_TIMEOUT, detail=f"took {result.elapsed_ms / 1000:.1f} s")
    if result.returncode != 0:
        return Ended(kind=EndingKind.AGENT_CRASH, detail=f"exit status {result.returncode}; {_tail(result)}")
    if report is None:
        return None
    if report.problem is not None:
        return Ended(kind=EndingKind.AGENT_CRASH, detail=f"its output is garbled: {report.problem}")
    if not report.ended:
        return Ended(kind=EndingKind.AGENT_CRASH, detail="its output has no end")
    if report.is_error:
        return Ended(kind=EndingKind.AGENT_CRASH, detail=f"it says that it failed: {report.error_text}")
    return None


def _tail(result: SandboxResult) -> str:
    said = result.stderr.tail.decode("utf-8", "backslashreplace").strip()
    return f"stderr: {said[-TAIL_CHARACTERS:]}" if said else "stderr: empty"
