"""What passed on the wire and what the store holds, each read from its own source."""

import pytest

from fairtrial.evidence.publication import Delivery, ServerTruth
from fairtrial.loop.observe import read_delivery, server_truth
from fairtrial.loop.truth import Expectation
from fairtrial.model.loop import Reading, Truth
from fairtrial.wire import ledger

HEAD, OTHER = "a" * 40, "b" * 40
EXPECTED = Expectation(branch="work/case-0", head=HEAD, content=b"exact\n")
PUSH = "POST /store/push"


def request(method: str, target: str, delivery: ledger.Delivery) -> ledger.RequestRecord:
    return ledger.RequestRecord(
        connection=1,
        method=method,
        target=target,
        started_ms=0.0,
        elapsed_ms=1.0,
        request_declared_bytes=4,
        request_head_bytes=10,
        request_body_bytes=4,
        request_wire_bytes=14,
        request_complete=True,
        delivery=delivery,
        status=200,
        reply_head_bytes=10,
        reply_body_bytes=4,
        reply_wire_bytes=14,
        reply_complete=True,
        client_status=200,
        client_gone=False,
        fault=None,
        fault_fired=False,
        error=None,
    )


def push(delivery: ledger.Delivery) -> ledger.RequestRecord:
    return request("POST", "/store/push", delivery)


QUESTION = request("GET", "/store/push", ledger.Delivery.COMPLETE)


@pytest.mark.parametrize(
    ("reached", "delivery"),
    [
        ([], Delivery.NOT_SENT),
        ([ledger.Delivery.NOT_SENT], Delivery.NOT_SENT),
        ([ledger.Delivery.PARTIAL], Delivery.PARTIAL),
        ([ledger.Delivery.COMPLETE], Delivery.COMPLETE),
        ([ledger.Delivery.NOT_SENT, ledger.Delivery.COMPLETE], Delivery.REPLAYED),
        ([ledger.Delivery.COMPLETE, ledger.Delivery.COMPLETE], Delivery.REPLAYED),
    ],
)
def test_delivery_is_read_from_publishing_requests_alone(reached: list[ledger.Delivery], delivery: Delivery) -> None:
    seen = read_delivery([QUESTION, *map(push, reached), QUESTION], PUSH, n_usual=1)
    assert (seen.delivery, seen.n_mutations, seen.n_replays) == (delivery, len(reached), max(0, len(reached) - 1))


def test_what_an_undisturbed_publication_sends_twice_is_no_replay() -> None:
    two = [push(ledger.Delivery.COMPLETE)] * 2
    assert read_delivery(two, PUSH, n_usual=2).delivery is Delivery.COMPLETE


def truth(store: str | None, wire: str | None, content: bytes | None = b"exact\n") -> Truth:
    readings = [
        Reading(source="store", head=store, content=content),
        Reading(source="wire", head=wire, content=content),
    ]
    return Truth(readings=tuple(readings), integrity=True)


@pytest.mark.parametrize(
    ("at_exit", "after", "expected"),
    [
        (HEAD, truth(HEAD, HEAD), ServerTruth.DURABLE),
        (None, truth(HEAD, HEAD), ServerTruth.DURABLE_LATE),
        (OTHER, truth(HEAD, HEAD), ServerTruth.DURABLE_LATE),
        (None, truth(None, None, None), ServerTruth.ABSENT),
        (HEAD, truth(None, None, None), ServerTruth.ABSENT),
        (HEAD, truth(OTHER, OTHER), ServerTruth.OTHER_HEAD),
        (HEAD, truth(HEAD, None, None), ServerTruth.OTHER_HEAD),
        (HEAD, truth(HEAD, HEAD, b"other\n"), ServerTruth.OTHER_HEAD),
        (HEAD, truth(HEAD, HEAD, None), None),
    ],
)
def test_the_servers_truth_is_what_both_readings_say(
    at_exit: str | None, after: Truth, expected: ServerTruth | None
) -> None:
    found, failures = server_truth(EXPECTED, at_exit, after)
    assert found is expected
    assert bool(failures) is (expected not in {ServerTruth.DURABLE, ServerTruth.DURABLE_LATE})


@pytest.mark.parametrize("store", [HEAD, OTHER, None])
def test_a_reading_that_failed_is_no_fact_about_the_server(store: str | None) -> None:
    first, _ = truth(store, None, None if store is None else b"exact\n").readings
    refused = Reading(source="wire", head=None, content=None, detail="connection refused", failed=True)
    found, failures = server_truth(EXPECTED, HEAD, Truth(readings=(first, refused), integrity=True))
    assert found is None
    assert "wire: could not be read (connection refused)" in failures


def test_an_unsound_store_is_a_fact_of_its_own() -> None:
    damaged = Truth(readings=truth(HEAD, HEAD).readings, integrity=False, integrity_detail="broken")
    assert server_truth(EXPECTED, HEAD, damaged) == (ServerTruth.DURABLE, ())


def test_without_a_head_there_is_no_truth_to_tell() -> None:
    unknown = Expectation(branch="work/case-0", head=None, content=b"exact\n")
    assert server_truth(unknown, HEAD, truth(HEAD, HEAD))[0] is None
