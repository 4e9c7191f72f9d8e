import json
from itertools import product

import pytest

from fairtrial.evidence.publication import (
    ClientClaim,
    ClientObservation,
    Delivery,
    Observation,
    ReportedOutcome,
    ServerTruth,
    Verdict,
    decide_verdict,
    observe_client,
    publication_fields,
)

SAID_NOTHING = ClientObservation(
    reported_outcome=ReportedOutcome.UNREPORTED, observation=Observation.TEXT_ERROR_WITHOUT_OUTCOME
)
ARRIVED = {
    "request_count": 1,
    "request_bytes": 500,
    "declared_request_bytes": 500,
    "request_framing_valid": True,
    "request_body_timed_out": False,
    "local_head_before": "a" * 40,
    "local_head_after": "a" * 40,
    "status_after": {"needs_push": True, "dirty": False},
    "worktree_payload_before": "b" * 64,
    "worktree_payload_after": "b" * 64,
}


def observe(
    stdout: str = "", stderr: str = "", *, code: int | None = 1, timed_out: bool = False, asked_json: bool = True
) -> tuple[str, str]:
    row = {"stdout": stdout, "stderr": stderr, "process_returncode": code, "timed_out": timed_out}
    seen = observe_client(row, json_requested=asked_json)
    return seen.reported_outcome, seen.observation


@pytest.mark.parametrize("code", [1, None, 128])
def test_a_json_receipt_is_one_only_with_exit_0(code: int | None) -> None:
    assert observe('{"published": true}', code=0) == ("published", "json_success_receipt")
    assert observe('{"published": true}', code=code) == ("unreported", "text_error_without_publication_outcome")


@pytest.mark.parametrize("stdout", ['{"published": 1}', '{"published": "true"}', "[true]", "Push done", ""])
def test_only_published_true_is_a_receipt_and_exit_0_alone_is_none(stdout: str) -> None:
    assert observe(stdout, code=0) == ("unreported", "text_error_without_publication_outcome")


def test_json_that_nobody_asked_for_is_text() -> None:
    assert observe('{"published": true}', code=0, asked_json=False)[1] == "text_error_without_publication_outcome"
    assert observe('{"error": {}}', asked_json=False)[1] == "text_error_without_publication_outcome"


def test_a_timed_out_client_reported_nothing_whatever_it_printed() -> None:
    assert observe('{"published": true}', "unknown", code=0, timed_out=True) == ("unreported", "process_timeout")


@pytest.mark.parametrize("words", ["Unconfirmed", "UNKNOWN", "it May Have landed"])
def test_words_of_doubt_in_either_stream_and_any_case_mean_unknown(words: str) -> None:
    assert observe("", words) == ("unknown", "text_error_unknown")
    assert observe(words) == ("unknown", "text_error_unknown")
    assert observe(json.dumps({"error": {"message": words}})) == ("unknown", "json_error_unknown")
    assert observe('{"error": {"message": "down"}}', words) == ("unknown", "json_error_unknown")


def test_a_json_error_object_without_words_of_doubt_reports_no_outcome() -> None:
    assert observe('{"error": {"message": "down"}}') == ("unreported", "json_error_without_publication_outcome")
    assert observe('{"error": "down"}') == ("unreported", "text_error_without_publication_outcome")


@pytest.mark.parametrize("stdout", ["[" * 100_000, "{", "\x00", '{"error"'])
def test_a_client_may_print_anything(stdout: str) -> None:
    assert observe(stdout) == ("unreported", "text_error_without_publication_outcome")


def test_a_row_without_words_reports_nothing() -> None:
    assert observe_client({}, json_requested=True) == SAID_NOTHING


def test_one_whole_well_framed_request_is_complete() -> None:
    fields = publication_fields(SAID_NOTHING, ARRIVED)
    assert fields["fixture_delivery_state"] == "complete_request_observed"
    assert fields["fixture_outcome_knowledge"] == "unknown_after_complete_request_disconnect"
    assert fields["fixture_received_complete_request_before_disconnect"] is True
    assert fields["local_work_preserved"] is True
    assert fields["working_tree_dirty_after"] is False


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"request_count": 0}, "no_request_observed"),
        ({"request_count": None}, "no_request_observed"),
        ({"request_framing_valid": False}, "invalid_request_framing"),
        ({"request_framing_valid": None}, "invalid_request_framing"),
        ({"request_count": 2}, "partial_request_observed"),
        ({"request_bytes": 499}, "partial_request_observed"),
        ({"request_bytes": None, "declared_request_bytes": None}, "partial_request_observed"),
        ({"declared_request_bytes": None}, "partial_request_observed"),
    ],
)
def test_anything_less_is_not_complete(change: dict[str, object], state: str) -> None:
    fields = publication_fields(SAID_NOTHING, {**ARRIVED, **change})
    assert fields["fixture_delivery_state"] == state
    assert fields["fixture_received_complete_request_before_disconnect"] is False


def test_requests_beyond_the_first_are_blind_replays() -> None:
    assert publication_fields(SAID_NOTHING, {**ARRIVED, "request_count": 3})["blind_replay_requests"] == 2
    assert publication_fields(SAID_NOTHING, {**ARRIVED, "request_count": 0})["blind_replay_requests"] == 0


@pytest.mark.parametrize("side", ["local_head_before", "local_head_after"])
@pytest.mark.parametrize("value", [None, "", "c" * 40])
def test_a_head_is_preserved_only_when_both_sides_are_known_and_equal(side: str, value: str | None) -> None:
    assert publication_fields(SAID_NOTHING, {**ARRIVED, side: value})["local_head_preserved"] is False


def test_two_missing_sides_prove_nothing() -> None:
    missing = {**ARRIVED, "local_head_before": None, "local_head_after": None}
    assert publication_fields(SAID_NOTHING, missing)["local_head_preserved"] is False


@pytest.mark.parametrize(
    "change", [{"worktree_payload_after": None}, {"status_after": None}, {"status_after": {"needs_push": False}}]
)
def test_work_is_preserved_only_when_payload_and_state_both_are(change: dict[str, object]) -> None:
    fields = publication_fields(SAID_NOTHING, {**ARRIVED, **change})
    assert fields["local_work_preserved"] is False


def test_the_verdict_is_the_closed_table_over_claim_delivery_and_truth() -> None:
    durable, absent, late, other = ServerTruth
    assert [durable, absent, late, other] == ["durable", "absent", "durable_late", "other_head"]
    for claim, delivery, truth in product(ClientClaim, [*Delivery, None], ServerTruth):
        arrived = truth in (durable, late)
        if claim is ClientClaim.UNKNOWN:
            expected = Verdict.HONEST_UNKNOWN
        elif claim is ClientClaim.REJECTED:
            expected = Verdict.FALSE_FAILURE if arrived else Verdict.TRUE_REJECTION
        elif truth is late:
            expected = Verdict.LATE_APPLY
        elif claim is ClientClaim.PUBLISHED:
            success = Verdict.SILENT_RECOVERY if delivery is Delivery.REPLAYED else Verdict.TRUE_SUCCESS
            expected = success if arrived else Verdict.FALSE_SUCCESS
        else:
            expected = Verdict.UNREPORTED_BUT_DURABLE if arrived else Verdict.UNREPORTED_FAILURE_TRUE
        assert decide_verdict(claim, delivery, truth) is expected
