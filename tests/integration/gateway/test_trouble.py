"""A provider in trouble: the agent sees it, the sweep slows down, nothing is burnt, and faults play it on purpose."""

import http.client
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fairtrial.gateway.client import ask_status
from fairtrial.gateway.control import ProviderState
from fairtrial.gateway.ledger import Ending
from fairtrial.model.usage import NOTHING_USED
from fairtrial.wire.faults import Fault, FaultKind

Scene = Any
Provider = Any
Handler = Any
Trial = Any
MakeStream = Any
MakeAnswer = Callable[..., object]
Eventually = Callable[..., None]

RETRY_AFTER_S = 3
"""Longer than a busy machine lets the test stand still between a refusal and the next request."""

ERROR = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'


def test_retry_after_reaches_the_agent_and_holds_every_trial_back(
    own_scene: Scene, own_provider: Provider, make_answer: MakeAnswer
) -> None:
    """B44."""
    first, second = own_scene.open(), own_scene.open()
    limited_s: list[float] = []
    answered_s: list[float] = []

    def answer_noting_when(handler: Handler) -> None:
        answered_s.append(time.monotonic())
        make_answer()(handler)

    def limit_noting_when(handler: Handler) -> None:
        limited_s.append(time.monotonic())
        make_answer(429, ERROR, {"retry-after": str(RETRY_AFTER_S)})(handler)

    own_provider.then(limit_noting_when, answer_noting_when)
    refused = first.ask()
    assert (refused.status, refused.headers["retry-after"]) == (429, str(RETRY_AFTER_S))
    (status,) = ask_status(own_scene.control).providers
    assert (status.state, status.reason, status.n_limited) == (ProviderState.LIMITED, "status 429", 1)
    assert 0 < status.retry_in_s <= RETRY_AFTER_S
    assert second.ask().status == 200
    assert answered_s[0] - limited_s[0] >= RETRY_AFTER_S
    closed = second.open.close()
    assert closed.waited_ms > 0
    assert closed.provider_fault is None
    assert first.open.close().provider_fault == "status 429"
    assert ask_status(own_scene.control).providers[0].state is ProviderState.UP


@pytest.mark.parametrize("who_ends_it", ["client", "trial"])
def test_a_retry_that_ends_while_it_is_held_back_never_went_out_and_hides_no_fault(
    own_scene: Scene, own_provider: Provider, make_answer: MakeAnswer, who_ends_it: str
) -> None:
    trial = own_scene.open()
    own_provider.then(make_answer(429, ERROR, {"retry-after": "600"}))
    body = b'{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[]}'
    assert trial.ask(body).status == 429
    client = trial.connect()
    client.request("POST", "/v1/messages", body, {"x-api-key": trial.token, "content-type": "application/json"})
    if who_ends_it == "client":
        client.close()
        assert trial.wait_rows(2)[1].ending is Ending.CLIENT_GONE
    else:
        for _ in range(10):  # with each answer its event loop has turned: it has the request by now
            ask_status(own_scene.control)
    closed = trial.open.close()
    client.close()
    assert [row.went_out for row in trial.wait_rows(2)] == [True, False]
    assert (closed.provider_fault, closed.totals.requests) == ("status 429", 1)
    assert closed.totals.broken_spend.usage == NOTHING_USED


def test_a_provider_that_is_down_is_said_to_be(
    own_scene: Scene, own_provider: Provider, make_answer: MakeAnswer
) -> None:
    trial = own_scene.open()
    last = make_answer(500, ERROR, {"retry-after": str(RETRY_AFTER_S)})
    own_provider.then(make_answer(529, ERROR), *[make_answer(500, ERROR)] * 2, last)
    assert [trial.ask().status for _ in range(4)] == [529, *[500] * 3]
    (status,) = ask_status(own_scene.control).providers
    assert (status.state, status.reason) == (ProviderState.DOWN, "status 500")
    assert status.retry_in_s > 0
    assert trial.ask().status == 200  # it was tried again after the pause
    assert ask_status(own_scene.control).providers[0].state is not ProviderState.DOWN


def test_a_provider_that_hangs_up_is_a_broken_connection(own_scene: Scene, own_provider: Provider) -> None:
    trial = own_scene.open()
    own_provider.then(lambda handler: handler.break_off())
    reply = trial.ask()
    assert (reply.status, reply.json["type"]) == (502, "error")
    closed = trial.open.close()
    assert closed.provider_fault is not None
    assert closed.provider_fault.startswith("broken connection")
    assert trial.rows[0].ending is Ending.BROKEN


def test_a_provider_that_cannot_be_reached_was_sent_nothing_and_that_is_known(
    own_scene: Scene, own_provider: Provider
) -> None:
    trial = own_scene.open()
    own_provider.stop()
    assert trial.ask().status == 502
    closed = trial.open.close()
    (row,) = trial.rows
    assert (row.ending, row.usage, row.usage_problem) == (Ending.BROKEN, NOTHING_USED, None)
    assert (closed.totals.broken_spend.usage, closed.totals.broken_spend.cost_usd) == (NOTHING_USED, 0.0)


def test_another_4xx_is_the_arms_own(own_scene: Scene, own_provider: Provider, make_answer: MakeAnswer) -> None:
    trial = own_scene.open()
    own_provider.then(make_answer(400, ERROR))
    assert trial.ask().status == 400
    assert trial.open.close().provider_fault is None


def test_an_error_in_the_stream_is_told_from_a_whole_reply(
    own_scene: Scene, own_provider: Provider, make_stream: MakeStream
) -> None:
    trial = own_scene.open()

    def fail(handler: Handler) -> None:
        handler.chunk(b"event: error\ndata: " + ERROR + b"\n\n")
        handler.chunk(b"")

    own_provider.then(make_stream(4, then=fail))
    trial.ask({"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True, "messages": []})
    closed = trial.open.close()
    assert trial.rows[0].ending is Ending.ERROR_EVENT
    assert closed.provider_fault == "error in the stream: Overloaded"
    assert closed.totals.failed_requests == 1


SCRIPT = """
schema: script/1
agents:
  - name: all
    beyond: repeat
    turns:
      - text: "%s"
        usage: {uncached_input: 10, cache_write: 2, cache_read: 3, output: 4}
""" % ("0123456789" * 100)


def _fault(kind: FaultKind, parameter: int | None = None, retry_after_s: int | None = None) -> Fault:
    return Fault(match="POST", nth=1, kind=kind, parameter=parameter, retry_after_s=retry_after_s)


def _exchange(trial: Trial, *, stream: bool, until_stalled: Callable[[bytes], bool] | None = None) -> bytes:
    """All that one request gets, up to the end of its connection, or to silence after it is stalled."""
    body = b'{"model":"claude-sonnet-4-5","max_tokens":9,"stream":%b,"messages":[]}' % (b"true" if stream else b"false")
    head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: {trial.token}\r\n"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(trial.open.opened.socket)
        client.settimeout(60)
        client.sendall(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        got = b""
        while until_stalled is not None and not until_stalled(got):
            if select.select([client], [], [], 0.01)[0]:
                got += client.recv(100_000)
        if until_stalled is not None:
            client.settimeout(0.5)
        try:
            while data := client.recv(100_000):
                got += data
        except TimeoutError:
            got += b"<silence>"
        return got


@pytest.mark.parametrize(
    ("fault", "n_least", "n_most", "ends_with"),
    [
        (_fault(FaultKind.DROP_BEFORE_FORWARD), 0, 0, b""),
        (_fault(FaultKind.RST_CONNECT), 0, 0, b""),
        (_fault(FaultKind.DROP_REPLY), 0, 0, b""),
        (_fault(FaultKind.RST_REPLY), 0, 0, b""),
        (_fault(FaultKind.TRUNCATE_REPLY, 300), 300, 600, b""),
        (_fault(FaultKind.STALL), 0, 9, b"<silence>"),
        (_fault(FaultKind.STALL, 300), 300, 600, b"<silence>"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_planned_fault_breaks_what_it_should_and_says_so(
    scene: Scene, fault: Fault, n_least: int, n_most: int, ends_with: bytes, stream: bool
) -> None:
    trial = scene.open(script_text=SCRIPT, faults=(fault,))

    def is_stalled(got: bytes) -> bool:
        if len(got) < n_least or b'"begun"' not in trial.ledger.read_bytes():
            return False
        for _ in range(10):  # with each answer its event loop has turned, and the fault is only turns away
            ask_status(scene.control)
        return True

    got = _exchange(trial, stream=stream, until_stalled=is_stalled if ends_with == b"<silence>" else None)
    assert n_least <= len(got) <= n_most
    assert got.endswith(ends_with)
    (row,) = trial.wait_rows(1)
    assert (row.fault, row.fault_fired) == (fault.kind.value, True)
    assert row.ending in {Ending.BROKEN, Ending.CLIENT_GONE}
    whole = _exchange(trial, stream=stream)
    assert whole.startswith(b"HTTP/1.1 200 ")
    assert trial.open.close().faults_as_planned


def test_a_planned_status_is_in_the_dialects_words_with_its_retry_after(scene: Scene) -> None:
    trial = scene.open(script_text=SCRIPT, faults=(_fault(FaultKind.STATUS, 503),))
    reply = trial.ask()
    assert (reply.status, reply.json["type"]) == (503, "error")
    assert trial.ask().status == 200
    (failed, repeated) = trial.rows
    assert (failed.attempt, repeated.attempt) == (1, 2)


def test_a_request_is_cut_on_its_way(own_scene: Scene, own_provider: Provider) -> None:
    trial = own_scene.open(faults=(_fault(FaultKind.DROP_MID_REQUEST, 10),))
    assert _exchange(trial, stream=False) == b""
    assert trial.wait_rows(1)[0].fault_fired
    assert all(len(seen.body) <= 10 for seen in own_provider.seen)  # it never had a whole request


def test_a_scripts_own_fault_hits_as_many_tries_as_it_says(scene: Scene) -> None:
    script = SCRIPT.replace("usage:", "fault: {kind: status, parameter: 500, times: 2}\n        usage:")
    trial = scene.open(script_text=script)
    assert [trial.ask().status for _ in range(3)] == [500, 500, 200]
    assert [row.attempt for row in trial.rows] == [1, 2, 3]


@pytest.mark.parametrize("after_bytes", [0, 500])
def test_a_scripts_own_error_ends_a_stream_behind_a_whole_event(scene: Scene, after_bytes: int) -> None:
    event = f"error_event: {{after_bytes: {after_bytes}, times: 1}}"
    trial = scene.open(script_text=SCRIPT.replace("usage:", f"{event}\n        usage:"))
    *before, error, rest = _exchange(trial, stream=True).split(b"\r\n\r\n", 1)[1].split(b"\n\n")
    assert b'"overloaded_error"' in error
    assert b"".join(before).count(b"event: ") == len(before)
    assert (sum(len(each) + 2 for each in before) >= after_bytes, bool(before)) == (True, bool(after_bytes))
    assert rest.strip(b"\r\n0") == b"", "and nothing after it"
    assert b"message_stop" in _exchange(trial, stream=True)
    first, second = trial.wait_rows(2)
    assert (first.ending, first.status, first.detail) == (Ending.ERROR_EVENT, 200, "planned fault: error_event")
    assert second.ending is Ending.ANSWERED


def test_a_reply_in_one_piece_is_that_error_by_its_status(scene: Scene) -> None:
    trial = scene.open(script_text=SCRIPT.replace("usage:", "error_event: {kind: rate-limited}\n        usage:"))
    reply = trial.ask()
    assert (reply.status, reply.json["error"]["type"]) == (429, "rate_limit_error")
    assert trial.ask().status == 200


def _with_fault(fault: str, *, provider: str = "") -> str:
    return SCRIPT.replace("usage:", f"fault: {fault}\n        usage:") + provider


LIMITED = "{kind: status, parameter: 429, retry_after_s: 60, times: 1}"


def test_a_scripts_fault_is_a_test_of_the_agent_and_holds_nobody_back(own_scene: Scene) -> None:
    """Not even its own trial: the client shows what it does by itself with a Retry-After."""
    first = own_scene.open(script_text=_with_fault(LIMITED))
    second = own_scene.open(script_text=_with_fault("{kind: status, parameter: 500, times: 5}"))
    assert (first.ask().status, first.ask().status) == (429, 200)
    assert [second.ask().status for _ in range(6)] == [*[500] * 5, 200]
    assert ask_status(own_scene.control).providers == ()
    closed = first.open.close()
    assert (closed.waited_ms, closed.totals.limited_requests) == (0.0, 1)


def test_a_script_that_names_a_provider_plays_its_trouble_for_all_that_name_it(own_scene: Scene) -> None:
    short = LIMITED.replace("60", str(RETRY_AFTER_S))
    first = own_scene.open(script_text=_with_fault(short, provider="provider: acme"))
    second = own_scene.open(script_text=f"{SCRIPT}provider: acme")
    other = own_scene.open(script_text=f"{SCRIPT}provider: other")
    assert first.ask().status == 429
    (status,) = ask_status(own_scene.control).providers
    assert (status.upstream, status.state) == ("script:acme", ProviderState.LIMITED)
    assert (other.ask().status, second.ask().status) == (200, 200)
    assert other.open.close().waited_ms == 0.0
    assert second.open.close().waited_ms > 0


def test_a_scripted_provider_that_is_down_returns_when_it_is_probed(own_scene: Scene, eventually: Eventually) -> None:
    down = _with_fault("{kind: status, parameter: 500, times: 3}", provider="provider: acme")
    trial = own_scene.open(script_text=down)
    assert [trial.ask().status for _ in range(3)] == [500] * 3
    assert ask_status(own_scene.control).providers[0].state is ProviderState.DOWN
    eventually(lambda: ask_status(own_scene.control).providers[0].state is ProviderState.RETURNING)
    assert trial.ask().status == 200
    assert ask_status(own_scene.control).providers[0].state is ProviderState.UP


def test_a_fault_that_a_trial_planned_says_nothing_of_its_provider(own_scene: Scene, own_provider: Provider) -> None:
    faults = tuple(replace(_fault(FaultKind.STATUS, 500), nth=n) for n in range(1, 6))
    trial = own_scene.open(faults=faults)
    assert [trial.ask().status for _ in range(6)] == [*[500] * 5, 200]
    assert ask_status(own_scene.control).providers[0].state is ProviderState.UP
    assert len(own_provider.seen) == 1


def test_a_run_is_recorded_without_secrets_and_plays_again(
    scene: Scene, provider: Provider, make_answer: MakeAnswer
) -> None:
    path = scene.tmp / "recorded.yaml"
    live = scene.open(record=str(path))
    provider.then(make_answer(500, ERROR), make_answer())
    assert [live.ask().status for _ in range(2)] == [500, 200]
    live.open.close()
    again = scene.open(script=str(path))
    played = [again.ask() for _ in range(2)]
    assert [reply.status for reply in played] == [500, 200]
    assert played[1].json["content"][0]["text"] == "hello"
    assert again.open.close().totals.spend.usage == live.rows[1].usage


def test_a_run_whose_streams_broke_plays_again_with_the_same_breaks(
    own_scene: Scene, own_provider: Provider, make_stream: MakeStream
) -> None:
    """One turn that broke once and was whole then, and one that never came to its end."""
    path = own_scene.tmp / "recorded.yaml"
    live = own_scene.open(record=str(path))
    body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True}
    first = [{"role": "user", "content": "Fix it."}]
    second = [*first, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "More."}]
    own_provider.then(
        make_stream(3, then=lambda handler: handler.break_off()),
        make_stream(),
        *[make_stream(3, then=lambda handler: handler.break_off())] * 2,
    )

    def play(trial: Trial) -> list[bytes]:
        got: list[bytes] = []
        for messages in (first, first, second, second):
            client = trial.connect()
            try:
                got.append(trial.ask({**body, "messages": messages}, client=client).body)
            except http.client.IncompleteRead as error:
                got.append(b"broken " + error.partial)
            client.close()
        return got

    seen = play(live)
    live.wait_rows(4)
    live.open.close()
    again = own_scene.open(script=str(path))
    played = play(again)
    assert [each.startswith(b"broken ") for each in seen] == [True, False, True, True]
    assert [each.startswith(b"broken ") for each in played] == [True, False, True, True]
    assert b"hello" in played[1]
    endings = [row.ending for row in again.wait_rows(4)]
    assert (
        endings == [row.ending for row in live.rows] == [Ending.BROKEN, Ending.ANSWERED, Ending.BROKEN, Ending.BROKEN]
    )
    assert [row.attempt for row in again.rows] == [1, 2, 1, 2]


def test_a_run_whose_provider_was_not_there_plays_again_with_what_its_client_was_told(
    own_scene: Scene, own_provider: Provider
) -> None:
    path = own_scene.tmp / "recorded.yaml"
    live = own_scene.open(record=str(path))
    own_provider.then(lambda handler: handler.break_off())
    assert [live.ask().status for _ in range(2)] == [502, 200]
    live.open.close()
    again = own_scene.open(script=str(path))
    assert [again.ask().status for _ in range(3)] == [502, 200, 200]


def test_usage_is_asked_for_only_where_the_arm_wants_it(scene: Scene, provider: Provider) -> None:
    body = {"model": "claude-sonnet-4-5", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    for include in (False, True):
        trial = scene.open(include_usage=include)
        trial.ask(body, path="/v1/chat/completions", headers={"authorization": f"Bearer {trial.token}"})
        assert trial.rows[0].usage_was_asked_for is include
        assert (b"include_usage" in provider.seen[-1].body) is include


def test_waiting_for_the_provider_is_counted_once_for_overlapping_requests(
    own_scene: Scene, own_provider: Provider, make_answer: MakeAnswer
) -> None:
    trial = own_scene.open()
    own_provider.then(make_answer(429, ERROR, {"retry-after": str(RETRY_AFTER_S)}))
    trial.ask()

    def ask() -> None:
        client = trial.connect()
        trial.ask(client=client)
        client.close()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    begun_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_ms = (time.monotonic() - begun_s) * 1000
    assert 0 < trial.open.close().waited_ms <= took_ms
