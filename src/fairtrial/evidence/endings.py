"""How a trial ends, as one closed table: what each kind counts as, and which kinds point at an outage.

A void needs proof of a cause outside the sandbox; whatever else goes wrong is the arm's failure. So a kind that this
table does not know counts as a failure: an arm must not be able to erase its losses by ending in a new way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from fairtrial.errors import UsageError
from fairtrial.evidence.rows import Row

__all__ = ["ENDINGS", "VOID_MEMBERS", "CountsAs", "EndingKind", "EndingRule", "is_systemic", "is_void", "kind_of"]


class EndingKind(StrEnum):
    """Every way a trial can end other than being judged."""

    VERIFY_FAILED = "verify-failed"
    ORACLE_FAILED = "oracle-failed"
    NO_WORK_PRODUCED = "no-work-produced"
    SKILL_NOT_INVOKED = "skill-not-invoked"
    PLAN_EVIDENCE_INVALID = "plan-evidence-invalid"
    REVIEW_EVIDENCE_INVALID = "review-evidence-invalid"
    IMPLEMENTATION_EVIDENCE_INVALID = "implementation-evidence-invalid"
    AGENT_TIMEOUT = "agent-timeout"
    AGENT_CRASH = "agent-crash"
    LIMIT_EXCEEDED = "limit-exceeded"
    BUDGET_EXHAUSTED = "budget-exhausted"
    SANDBOX_BROKEN = "sandbox-broken"
    SESSION_ERROR = "session-error"
    INFRA_ERROR = "infra-error"
    CLEANUP_FAILURE = "cleanup-failure"
    EVIDENCE_UNVERIFIED = "evidence-unverified"
    ORACLE_UNAVAILABLE = "oracle-unavailable"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class CountsAs(StrEnum):
    """What an ending is worth as evidence."""

    FAILURE = "failure"
    VOID = "void"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingRule:
    """One line of the table.

    Attributes:
        counts_as: Whether the trial is evidence against the arm, or no evidence.
        systemic: Several in a row mean an outage: the breaker counts these.
        when: The cause, as a sentence for people.
    """

    counts_as: CountsAs
    systemic: bool
    when: str


def _failure(when: str) -> EndingRule:
    return EndingRule(counts_as=CountsAs.FAILURE, systemic=False, when=when)


def _void(when: str) -> EndingRule:
    return EndingRule(counts_as=CountsAs.VOID, systemic=False, when=when)


def _outage(when: str) -> EndingRule:
    return EndingRule(counts_as=CountsAs.VOID, systemic=True, when=when)


ENDINGS: Final[Mapping[EndingKind, EndingRule]] = MappingProxyType(
    {
        EndingKind.VERIFY_FAILED: _failure("the task's authored check did not pass, or did not finish"),
        EndingKind.ORACLE_FAILED: _failure("the hidden oracle did not pass, or did not prove that it finished"),
        EndingKind.NO_WORK_PRODUCED: _failure("the checks passed on an unchanged tree"),
        EndingKind.SKILL_NOT_INVOKED: _failure("a phase that must use a skill did not use it"),
        EndingKind.PLAN_EVIDENCE_INVALID: _failure("the plan phase changed something other than its one plan"),
        EndingKind.REVIEW_EVIDENCE_INVALID: _failure(
            "the review phase left no review, or something other than its artifact"
        ),
        EndingKind.IMPLEMENTATION_EVIDENCE_INVALID: _failure("the work phase changed the skill under test"),
        EndingKind.AGENT_TIMEOUT: _failure("the session ran out of time"),
        EndingKind.AGENT_CRASH: _failure(
            "the agent's program died or garbled its stream while the wire shows no provider fault"
        ),
        EndingKind.LIMIT_EXCEEDED: _failure("the trial hit a limit of memory, processes, disk or output"),
        EndingKind.BUDGET_EXHAUSTED: _failure("the trial used up its own budget"),
        EndingKind.SANDBOX_BROKEN: _failure("the trial destroyed its sandbox"),
        EndingKind.SESSION_ERROR: _outage("the gateway or the provider failed, as the wire shows"),
        EndingKind.INFRA_ERROR: _outage("the host or our own set-up failed"),
        EndingKind.CLEANUP_FAILURE: _outage("our clean-up failed"),
        EndingKind.EVIDENCE_UNVERIFIED: _void("our capture failed"),
        EndingKind.ORACLE_UNAVAILABLE: _void("our captured oracle source is missing or changed"),
        EndingKind.INTERRUPTED: _void("the harness was killed"),
        EndingKind.CANCELLED: _void("the harness was stopped"),
        EndingKind.UNKNOWN: _void("our own code raised"),
    }
)

_VOID: Final = frozenset(str(kind) for kind, rule in ENDINGS.items() if rule.counts_as is CountsAs.VOID)
_SYSTEMIC: Final = frozenset(str(kind) for kind, rule in ENDINGS.items() if rule.systemic)


def kind_of(row: Row) -> str | None:
    """Give the row's `error_kind`; None when the trial was judged.

    Raises:
        UsageError: The field holds neither a string nor null.
    """
    kind = row.get("error_kind")
    if kind is not None and not isinstance(kind, str):
        message = f"'error_kind' must be a string or null, not {kind!r:.60}; is this a file of rows?"
        raise UsageError(message)
    return kind


VOID_MEMBERS: Final = ("error_kind",)
"""The members of a row that `is_void` looks at."""


def is_void(row: Row) -> bool:
    """Tell whether the trial is no evidence at all."""
    return kind_of(row) in _VOID


def is_systemic(row: Row) -> bool:
    """Tell whether the ending is one that an outage causes."""
    return kind_of(row) in _SYSTEMIC
