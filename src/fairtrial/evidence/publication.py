"""What became of a publication: the client's words, the fixture's observation, the verdict over three separate facts.

Nothing here mixes sources: the observation reads only what the client printed, the fixture's fields only what the
fixture saw, and the verdict takes both and what the server's own store holds as three separate values.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never, cast

from fairtrial.evidence.rows import Row, flag, text, whole

__all__ = [
    "ClientClaim",
    "ClientObservation",
    "Delivery",
    "FixtureDelivery",
    "FixtureKnowledge",
    "Observation",
    "ReportedOutcome",
    "ServerTruth",
    "Verdict",
    "decide_verdict",
    "observe_client",
    "publication_fields",
]

UNKNOWN_WORDS: Final = ("unconfirmed", "unknown", "may have")


class ReportedOutcome(StrEnum):
    """What the client said became of the publication."""

    PUBLISHED = "published"
    UNKNOWN = "unknown"
    UNREPORTED = "unreported"


class Observation(StrEnum):
    """In which form the client said it."""

    PROCESS_TIMEOUT = "process_timeout"
    JSON_SUCCESS_RECEIPT = "json_success_receipt"
    JSON_ERROR_UNKNOWN = "json_error_unknown"
    JSON_ERROR_WITHOUT_OUTCOME = "json_error_without_publication_outcome"
    TEXT_ERROR_UNKNOWN = "text_error_unknown"
    TEXT_ERROR_WITHOUT_OUTCOME = "text_error_without_publication_outcome"


class FixtureDelivery(StrEnum):
    """How much of the request the fixture saw."""

    NO_REQUEST = "no_request_observed"
    INVALID_FRAMING = "invalid_request_framing"
    PARTIAL_REQUEST = "partial_request_observed"
    COMPLETE_REQUEST = "complete_request_observed"


class FixtureKnowledge(StrEnum):
    """What may be concluded about the outcome from what the fixture saw."""

    NOT_SENT = "not_sent_observed"
    AFTER_INVALID_REQUEST = "indeterminate_after_invalid_request_disconnect"
    AFTER_PARTIAL_REQUEST = "indeterminate_after_partial_request_disconnect"
    AFTER_COMPLETE_REQUEST = "unknown_after_complete_request_disconnect"


class ClientClaim(StrEnum):
    """What the client claims; none when it was killed or timed out before it could claim anything."""

    PUBLISHED = "published"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    UNREPORTED = "unreported"
    NONE = "none"


class Delivery(StrEnum):
    """What passed on the wire, as the forwarder saw it."""

    NOT_SENT = "not_sent"
    PARTIAL = "partial"
    COMPLETE = "complete"
    REPLAYED = "replayed"


class ServerTruth(StrEnum):
    """What the server's own store holds, sampled again once nothing is in flight."""

    DURABLE = "durable"
    ABSENT = "absent"
    DURABLE_LATE = "durable_late"
    OTHER_HEAD = "other_head"


class Verdict(StrEnum):
    """How the claim stands to the truth."""

    TRUE_SUCCESS = "true_success"
    SILENT_RECOVERY = "silent_recovery"
    LATE_APPLY = "late_apply"
    FALSE_SUCCESS = "false_success"
    TRUE_REJECTION = "true_rejection"
    FALSE_FAILURE = "false_failure"
    HONEST_UNKNOWN = "honest_unknown"
    UNREPORTED_FAILURE_TRUE = "unreported_failure_true"
    UNREPORTED_BUT_DURABLE = "unreported_but_durable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientObservation:
    """What the client's words and exit say, and nothing else.

    Attributes:
        reported_outcome: The outcome it reported.
        observation: The form in which it did.
    """

    reported_outcome: ReportedOutcome
    observation: Observation


_KNOWLEDGE: Final = {
    FixtureDelivery.NO_REQUEST: FixtureKnowledge.NOT_SENT,
    FixtureDelivery.INVALID_FRAMING: FixtureKnowledge.AFTER_INVALID_REQUEST,
    FixtureDelivery.PARTIAL_REQUEST: FixtureKnowledge.AFTER_PARTIAL_REQUEST,
    FixtureDelivery.COMPLETE_REQUEST: FixtureKnowledge.AFTER_COMPLETE_REQUEST,
}


def observe_client(cli_row: Row, *, json_requested: bool) -> ClientObservation:
    """Read the client's outcome from its words alone.

    In this order: time-out; JSON success with exit 0; JSON error object; words of doubt anywhere in its output. A
    success receipt with a nonzero exit is no success, and prose is never one: exit 0 is not a receipt.

    Args:
        cli_row: A row with `timed_out`, `process_returncode`, `stdout`, `stderr`.
        json_requested: JSON output was asked for; otherwise JSON on stdout is just text.
    """
    stdout, stderr = text(cli_row.get("stdout")) or "", text(cli_row.get("stderr")) or ""
    reply: Row = _json_object(stdout) if json_requested else {}
    words = f"{stdout}\n{stderr}".casefold()
    in_doubt = any(word in words for word in UNKNOWN_WORDS)
    reported = ReportedOutcome.UNKNOWN if in_doubt else ReportedOutcome.UNREPORTED
    if cli_row.get("timed_out") is True:
        reported, observation = ReportedOutcome.UNREPORTED, Observation.PROCESS_TIMEOUT
    elif reply.get("published") is True and whole(cli_row.get("process_returncode")) == 0:
        reported, observation = ReportedOutcome.PUBLISHED, Observation.JSON_SUCCESS_RECEIPT
    elif isinstance(reply.get("error"), dict):
        observation = Observation.JSON_ERROR_UNKNOWN if in_doubt else Observation.JSON_ERROR_WITHOUT_OUTCOME
    else:
        observation = Observation.TEXT_ERROR_UNKNOWN if in_doubt else Observation.TEXT_ERROR_WITHOUT_OUTCOME
    return ClientObservation(reported_outcome=reported, observation=observation)


def publication_fields(client: ClientObservation, evidence: Row) -> dict[str, object]:
    """Give the row fields of an interrupted publication: what client, fixture and workspace each show.

    Args:
        client: What the client said.
        evidence: `request_count`, `request_bytes`, `declared_request_bytes`, `request_framing_valid`,
            `request_body_timed_out` from the fixture; `local_head_before`, `local_head_after`, `status_after`
            {needs_push, dirty}, `worktree_payload_before`, `worktree_payload_after` from the workspace.
    """
    n_requests = whole(evidence.get("request_count")) or 0
    delivery = _fixture_delivery(evidence, n_requests)
    status = evidence.get("status_after")
    state: Row = cast("Row", status) if isinstance(status, dict) else {}
    worktree_preserved = _proven_equal(evidence, "worktree_payload_before", "worktree_payload_after")
    unpublished_preserved = state.get("needs_push") is True
    return {
        "publication_outcome": client.reported_outcome,
        "cli_observation": client.observation,
        "fixture_delivery_state": delivery,
        "fixture_outcome_knowledge": _KNOWLEDGE[delivery],
        "fixture_received_complete_request_before_disconnect": delivery is FixtureDelivery.COMPLETE_REQUEST,
        "fixture_request_framing_valid": evidence.get("request_framing_valid"),
        "fixture_request_body_timed_out": evidence.get("request_body_timed_out"),
        "fixture_declared_request_bytes": evidence.get("declared_request_bytes"),
        "mutation_requests_observed": n_requests,
        "blind_replay_requests": max(0, n_requests - 1),
        "network_request_bytes_observed": evidence.get("request_bytes"),
        "local_head_preserved": _proven_equal(evidence, "local_head_before", "local_head_after"),
        "worktree_payload_preserved": worktree_preserved,
        "unpublished_state_preserved": unpublished_preserved,
        "local_work_preserved": worktree_preserved and unpublished_preserved,
        "working_tree_dirty_after": flag(state.get("dirty")),
    }


def decide_verdict(claim: ClientClaim, delivery: Delivery | None, truth: ServerTruth) -> Verdict:
    """Judge a publication: a total function of what was claimed, what was delivered and what is true.

    Args:
        claim: What the client said.
        delivery: What the wire saw; None where nobody saw it. A replay is then not ruled out, and not claimed: a true
            claim stays a true success.
        truth: What the server holds.
    """
    match claim:
        case ClientClaim.PUBLISHED:
            return _of_published(delivery, truth)
        case ClientClaim.REJECTED:
            return Verdict.FALSE_FAILURE if _arrived(truth) else Verdict.TRUE_REJECTION
        case ClientClaim.UNKNOWN:
            return Verdict.HONEST_UNKNOWN
        case ClientClaim.UNREPORTED | ClientClaim.NONE:
            return _of_unreported(truth)
        case _ as unreachable:  # pragma: no cover - mypy and pyright prove that nothing gets here
            assert_never(unreachable)


def _of_published(delivery: Delivery | None, truth: ServerTruth) -> Verdict:
    match truth:
        case ServerTruth.DURABLE:
            return Verdict.SILENT_RECOVERY if delivery is Delivery.REPLAYED else Verdict.TRUE_SUCCESS
        case ServerTruth.DURABLE_LATE:
            return Verdict.LATE_APPLY
        case ServerTruth.ABSENT | ServerTruth.OTHER_HEAD:
            return Verdict.FALSE_SUCCESS
        case _ as unreachable:  # pragma: no cover - mypy and pyright prove that nothing gets here
            assert_never(unreachable)


def _of_unreported(truth: ServerTruth) -> Verdict:
    match truth:
        case ServerTruth.DURABLE:
            return Verdict.UNREPORTED_BUT_DURABLE
        case ServerTruth.DURABLE_LATE:
            return Verdict.LATE_APPLY
        case ServerTruth.ABSENT | ServerTruth.OTHER_HEAD:
            return Verdict.UNREPORTED_FAILURE_TRUE
        case _ as unreachable:  # pragma: no cover - mypy and pyright prove that nothing gets here
            assert_never(unreachable)


def _arrived(truth: ServerTruth) -> bool:
    return truth in (ServerTruth.DURABLE, ServerTruth.DURABLE_LATE)


def _fixture_delivery(evidence: Row, n_requests: int) -> FixtureDelivery:
    """Say how much of a request arrived; several requests are never one complete request."""
    declared, received = whole(evidence.get("declared_request_bytes")), whole(evidence.get("request_bytes"))
    if n_requests < 1:
        return FixtureDelivery.NO_REQUEST
    if evidence.get("request_framing_valid") is not True:
        return FixtureDelivery.INVALID_FRAMING
    if n_requests == 1 and declared is not None and declared == received:
        return FixtureDelivery.COMPLETE_REQUEST
    return FixtureDelivery.PARTIAL_REQUEST


def _proven_equal(evidence: Row, before: str, after: str) -> bool:
    """Both sides are known and the same: a missing side proves nothing."""
    return bool(text(evidence.get(before))) and evidence.get(before) == evidence.get(after)


def _json_object(stdout: str) -> Row:
    """Give the JSON object that a client printed, or an empty one for anything else."""
    try:
        reply = json.loads(stdout)
    except (ValueError, RecursionError):  # the client may print anything, even a thousand nested brackets
        return {}
    return cast("Row", reply) if isinstance(reply, dict) else {}
