"""What passes, what is counted, and what is refused: one trial, one real server as the provider."""

import gzip
import http.client
import json
import subprocess
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from fairtrial.gateway.control import TrialClosed
from fairtrial.gateway.ledger import Ending
from fairtrial.gateway.policy import BudgetKind, Limits, ServedModel, UnnamedModel
from fairtrial.gateway.sse import MAX_EVENT_BYTES
from fairtrial.model.usage import TokenUsage
from fairtrial.wire.faults import Fault, FaultKind

Scene = Any
Provider = Any
Trial = Any
Handler = Any
MakeStream = Any
MakeAnswer = Callable[..., object]
RssBytes = Callable[[int], int]
BUCKETS = TokenUsage(uncached_input=10, cache_write=2, cache_read=3, output=4, cache_write_1h=None)


def _buckets(usage: TokenUsage | None) -> tuple[int | None, ...]:
    assert usage is not None
    return usage.uncached_input, usage.cache_write, usage.cache_read, usage.output


def test_a_request_passes_with_the_providers_key_and_is_counted(scene: Scene, provider: Provider, key: str) -> None:
    trial = scene.open()
    reply = trial.ask(headers={"anthropic-version": "2023-06-01", "x-claude-code-session-id": "s-1", "cookie": "a=b"})
    assert (reply.status, reply.json["content"][0]["text"]) == (200, "hello")
    (seen,) = provider.seen
    assert seen.path == "/v1/messages"
    assert seen.headers["x-api-key"] == key
    assert seen.headers["anthropic-version"] == "2023-06-01"
    assert seen.headers["accept-encoding"] == "identity"
    assert "cookie" not in seen.headers
    assert trial.token not in json.dumps(seen.headers)
    closed = trial.open.close()
    (row,) = trial.rows
    assert (row.ending, row.status, row.client_status, row.attempt) == (Ending.ANSWERED, 200, 200, 1)
    assert (row.session_claim, row.agent_claim, row.served_as) == ("s-1", None, ServedModel.SAME)
    assert _buckets(row.usage) == (10, 2, 3, 4)
    assert row.cost_usd is not None
    assert row.price_table is not None
    assert row.price_table.startswith("genai-prices ")
    assert closed.totals.requests == 1
    assert _buckets(closed.totals.spend.usage) == (10, 2, 3, 4)
    assert closed.internal_error is None


def test_a_stream_passes_event_by_event_and_is_counted(
    scene: Scene, provider: Provider, make_stream: MakeStream
) -> None:
    trial = scene.open()
    go_on = threading.Event()
    provider.then(make_stream(3, then=lambda handler: (go_on.wait(30), make_stream.rest(handler, 3))))
    client = trial.connect()
    body = json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True, "messages": []})
    client.request("POST", "/v1/messages", body, {"x-api-key": trial.token, "content-type": "application/json"})
    reply = client.getresponse()
    first = reply.read1(100_000)
    assert b"message_start" in first  # the provider has not sent its end yet
    go_on.set()
    assert b"message_stop" in reply.read()
    client.close()
    (row,) = trial.wait_rows(1)
    assert (row.ending, row.stream, row.stop_reason) == (Ending.ANSWERED, True, "end_turn")
    assert _buckets(row.usage) == (10, 2, 3, 4)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_reply_that_is_coded_all_the_same_passes_as_it_is_and_is_counted(
    scene: Scene, provider: Provider, make_answer: MakeAnswer, plain_message: bytes, coding: str
) -> None:
    trial = scene.open()
    coded = gzip.compress(plain_message) if coding == "gzip" else zlib.compress(plain_message)
    provider.then(make_answer(200, coded, {"content-encoding": coding}))
    reply = trial.ask()
    assert (reply.headers["content-encoding"], reply.body) == (coding, coded)
    assert _buckets(trial.wait_rows(1)[0].usage) == (10, 2, 3, 4)


def test_an_error_that_is_coded_is_read_for_what_it_quotes_of_our_key(
    scene: Scene, provider: Provider, make_answer: MakeAnswer, key: str
) -> None:
    trial = scene.open()
    quoting, bomb = f"bad key {key}".encode(), bytes(8 << 20)
    provider.then(*(make_answer(401, gzip.compress(body), {"content-encoding": "gzip"}) for body in (quoting, bomb)))
    replies = [trial.ask() for _ in range(2)]
    assert [(reply.status, reply.headers.get("content-encoding")) for reply in replies] == [(401, None)] * 2
    assert replies[0].body == b"bad key [redacted:secret]"
    assert replies[1].body == bomb[: 1 << 20]


def test_an_unreadable_coding_is_unknown_and_not_zero(
    scene: Scene, provider: Provider, make_answer: MakeAnswer
) -> None:
    trial = scene.open()
    provider.then(make_answer(200, b"\x1b\x00", {"content-encoding": "br"}))
    assert trial.ask().status == 200
    closed = trial.open.close()
    (row,) = trial.rows
    assert (row.usage, row.cost_usd) == (None, None)
    assert row.usage_problem == "content-encoding 'br'"
    assert closed.totals.spend.usage.output == 0  # it is among the broken ones
    assert row.ending is Ending.BROKEN


def test_a_reply_without_usage_makes_the_sum_unknown(scene: Scene, provider: Provider, make_answer: MakeAnswer) -> None:
    trial = scene.open()
    provider.then(
        make_answer(200, json.dumps({"id": "m", "type": "message", "role": "assistant", "content": []}).encode())
    )
    trial.ask()
    trial.ask()
    closed = trial.open.close()
    assert closed.totals.spend.usage.output is None
    assert closed.totals.unmeasured_requests == 1


def test_a_whole_reply_that_is_too_large_for_us_is_nobodys_fault_and_of_unknown_cost(
    scene: Scene, provider: Provider, make_stream: MakeStream
) -> None:
    """Else a session could make its trial void by asking for one."""
    trial = scene.open()

    def end_too_large(handler: Handler) -> None:
        handler.chunk(b"data: " + b" " * MAX_EVENT_BYTES + b'{"type":"message_stop"}\n\n')
        handler.chunk(b"")

    provider.then(make_stream(3, then=end_too_large))
    trial.ask({"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True, "messages": []})
    closed = trial.open.close()
    (row,) = trial.rows
    assert (row.ending, row.usage, row.cost_usd) == (Ending.ANSWERED, None, None)
    assert row.usage_problem == f"an event of more than {MAX_EVENT_BYTES} bytes"
    assert (closed.provider_fault, closed.totals.unmeasured_requests) == (None, 1)
    assert closed.totals.spend.cost_usd is None


def test_a_broken_stream_is_a_lower_bound_beside_the_sum(
    scene: Scene, provider: Provider, make_stream: MakeStream
) -> None:
    trial = scene.open()
    provider.then(make_stream(3, then=lambda handler: handler.break_off()))
    client = trial.connect()
    body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True, "messages": []}
    with pytest.raises(http.client.IncompleteRead):
        trial.ask(body, client=client)
    client.close()
    trial.ask({**body, "stream": False})
    closed = trial.open.close()
    broken, whole = trial.rows
    assert (broken.ending, broken.usage and broken.usage.is_lower_bound) == (Ending.BROKEN, True)
    assert (whole.attempt, closed.totals.retries) == (2, 1)  # the non-streaming fallback is the second try
    assert _buckets(closed.totals.broken_spend.usage) == (10, 2, 3, 1)
    assert _buckets(closed.totals.spend.usage) == (10, 2, 3, 4)
    assert closed.provider_fault is None  # the last one ended well


def test_a_wrong_token_gets_nothing_past_the_gateway(scene: Scene, provider: Provider) -> None:
    trial, other = scene.open(), scene.open()
    assert trial.ask(headers={"x-api-key": other.token}).status == 401
    assert trial.ask(headers={"x-api-key": ""}).status == 401
    assert provider.seen == []
    assert [row.refusal for row in trial.rows] == ["token", "token"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/files"),
        ("GET", "/v1/files/file_1/content"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/messages/../files"),
        ("POST", "//v1/messages"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("GET", "/latest/meta-data/"),
        ("DELETE", "/v1/messages"),
        ("POST", "http://169.254.169.254/v1/messages"),
    ],
)
def test_only_model_paths_are_passed_on(scene: Scene, provider: Provider, method: str, path: str) -> None:
    trial = scene.open()
    assert trial.ask(method=method, path=path).status == 404
    assert provider.seen == []
    (row,) = trial.rows
    assert (row.ending, row.refusal, row.path) == (Ending.REFUSED, "path", path.partition("?")[0])


def test_a_dialect_that_the_trial_does_not_speak_is_refused_in_its_own_words(scene: Scene, provider: Provider) -> None:
    trial = scene.open(dialects=("openai-chat",))
    reply = trial.ask()
    assert (reply.status, reply.json["type"]) == (404, "error")
    assert trial.rows[0].refusal == "dialect"
    assert provider.seen == []


def test_the_gateway_answers_probes_and_model_lists_itself(scene: Scene, provider: Provider) -> None:
    trial = scene.open()
    assert trial.ask(b"", method="HEAD", path="/").status == 200
    listed = trial.ask(b"", method="GET", path="/v1/models")
    assert "claude-sonnet-4-5" in listed.body.decode()
    assert [row.ending for row in trial.rows] == [Ending.LOCAL, Ending.LOCAL]
    assert provider.seen == []


def test_another_model_is_refused_or_recorded_as_the_arm_wants(scene: Scene, provider: Provider) -> None:
    strict, loose = scene.open(), scene.open(unnamed_model=UnnamedModel.RECORD)
    body = {"model": "claude-opus-4-8", "max_tokens": 9, "messages": []}
    assert strict.ask(body).status == 404
    assert provider.seen == []
    assert loose.ask(body).status == 200
    closed: TrialClosed = loose.open.close()
    (row,) = loose.rows
    assert (row.model_allowed, row.served_as) == (False, ServedModel.OTHER)
    assert closed.totals.other_models == ("claude-opus-4-8", "claude-sonnet-4-5")


@pytest.mark.parametrize(
    ("limits", "kind", "n_passed"),
    [
        (Limits(requests=2), BudgetKind.REQUESTS, 2),
        (Limits(tokens=20), BudgetKind.TOKENS, 2),
        (Limits(cost_usd=0.00001), BudgetKind.COST, 1),
        (Limits(seconds=0.0), BudgetKind.SECONDS, 0),
    ],
)
def test_a_used_up_budget_lets_no_request_out(
    scene: Scene, provider: Provider, limits: Limits, kind: BudgetKind, n_passed: int
) -> None:
    trial = scene.open(limits=limits)
    statuses = [trial.ask().status for _ in range(3)]
    assert statuses == [200] * n_passed + [400] * (3 - n_passed)
    assert len(provider.seen) == n_passed
    assert trial.open.close().budget_exhausted is kind
    assert trial.rows[-1].refused == (kind.value,)


def test_an_unpriced_model_breaks_a_budget_of_money_and_costs_null(
    scene: Scene, provider: Provider, make_answer: MakeAnswer, local_message: bytes
) -> None:
    trial = scene.open(limits=Limits(cost_usd=5.0), models=("my-own-model",))
    provider.then(make_answer(200, local_message))
    body = {"model": "my-own-model", "max_tokens": 9, "messages": []}
    assert [trial.ask(body).status for _ in range(2)] == [200, 400]
    closed = trial.open.close()
    assert trial.rows[0].cost_usd is None
    assert (closed.totals.spend.cost_usd, closed.budget_exhausted) == (None, BudgetKind.COST)


BUDGETS: Final = ((Limits(tokens=9999), BudgetKind.TOKENS), (Limits(cost_usd=5.0), BudgetKind.COST))


@pytest.mark.parametrize(("limits", "kind"), BUDGETS)
def test_a_reply_that_does_not_tell_what_it_used_ends_a_budget_that_cannot_be_kept(
    scene: Scene, provider: Provider, make_answer: MakeAnswer, plain_message: bytes, limits: Limits, kind: BudgetKind
) -> None:
    trial = scene.open(limits=limits)
    untold = json.dumps({name: value for name, value in json.loads(plain_message).items() if name != "usage"})
    provider.then(make_answer(200, untold.encode()))
    assert [trial.ask().status for _ in range(2)] == [200, 400]
    assert trial.open.close().budget_exhausted is kind
    answered, refused = trial.rows
    assert (answered.ending, answered.usage, refused.refused) == (Ending.ANSWERED, None, (kind.value,))
    assert "1 replies did not tell what they used, or were left before they did" in refused.detail
    free = scene.open(limits=Limits(requests=5))
    provider.then(make_answer(200, untold.encode()))
    assert [free.ask().status for _ in range(2)] == [200, 200], "what needs no figures goes on"


@pytest.mark.parametrize(("limits", "kind"), BUDGETS)
def test_leaving_a_reply_before_it_tells_what_it_used_stretches_no_budget(
    scene: Scene, provider: Provider, make_stream: MakeStream, limits: Limits, kind: BudgetKind
) -> None:
    trial = scene.open(limits=limits)
    left = threading.Event()
    provider.then(make_stream(3, then=lambda _: left.wait(30)))
    client = trial.connect()
    body = json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True, "messages": []})
    client.request("POST", "/v1/messages", body, _headers(trial))
    assert client.getresponse().read1(100)
    client.close()
    (row,) = trial.wait_rows(1)
    left.set()
    assert row.ending is Ending.CLIENT_GONE
    assert trial.ask().status == 400
    assert trial.open.close().budget_exhausted is kind


def test_a_reply_that_the_provider_broke_off_uses_up_what_was_seen_of_it_alone(
    own_scene: Scene, own_provider: Provider, make_stream: MakeStream
) -> None:
    trial = own_scene.open(limits=Limits(tokens=9999, cost_usd=5.0))
    own_provider.then(make_stream(3, then=lambda handler: handler.break_off()))
    body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True, "messages": []}
    client = trial.connect()
    with suppress(http.client.IncompleteRead):
        trial.ask(body, client=client)
    client.close()
    assert trial.ask().status == 200
    closed = trial.open.close()
    assert trial.rows[0].ending is Ending.BROKEN
    assert closed.budget_exhausted is None


def test_subagents_are_counted_apart_as_the_client_claims(scene: Scene) -> None:
    trial = scene.open()
    trial.ask()
    for agent in ("a", "b", "c"):
        trial.ask(headers={"x-claude-code-agent-id": agent})
    by_agent = trial.open.close().totals.by_agent
    assert {name: spend.usage.output for name, spend in by_agent.items()} == {"main": 4, "subagent": 12}


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"claude-sonnet-4-5","model":"x","messages":[]}',
        b"[]",
        b"{",
        b'{"a":' * 300 + b"1" + b"}" * 300,
        b'{"messages":"\xff"}',
    ],
)
def test_a_body_that_two_readers_could_read_differently_is_refused(
    scene: Scene, provider: Provider, body: bytes
) -> None:
    trial = scene.open()
    assert trial.ask(body).status == 400
    assert provider.seen == []
    assert trial.rows[0].refusal == "body"


def test_bytes_that_are_no_http_get_a_row_and_an_answer(scene: Scene) -> None:
    trial = scene.open()
    client = trial.connect()
    client.connect()
    client.sock.sendall(b"GET / HTTP/1.1\nHost: x\n\n")
    assert client.sock.recv(1000).startswith(b"HTTP/1.1 400 ")
    client.close()
    (row,) = trial.wait_rows(1)
    assert (row.refusal, row.client_status) == ("http", 400)


def test_the_client_may_leave_and_the_provider_notices(
    scene: Scene, provider: Provider, make_stream: MakeStream
) -> None:
    trial = scene.open()
    noticed = threading.Event()

    def go_on(handler: Handler) -> None:
        try:
            while True:
                handler.chunk(b"event: ping\ndata: {}\n\n" * 1000)
        except OSError:
            noticed.set()
            handler.close_connection = True

    provider.then(make_stream(2, then=go_on))
    client = trial.connect()
    body = json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True, "messages": []})
    client.request("POST", "/v1/messages", body, {"x-api-key": trial.token, "content-type": "application/json"})
    client.getresponse().read1(100)
    client.close()
    assert noticed.wait(30)
    (row,) = trial.wait_rows(1)
    assert row.ending is Ending.CLIENT_GONE
    assert row.usage is not None
    assert row.usage.is_lower_bound


def test_a_client_that_leaves_on_planned_nonsense_has_met_a_broken_reply(
    scene: Scene, provider: Provider, make_stream: MakeStream
) -> None:
    trial = scene.open(faults=(Fault(match="POST", nth=1, kind=FaultKind.GARBLE_REPLY, parameter=10),))
    left = threading.Event()
    provider.then(make_stream(2, then=lambda _: left.wait(30)))
    client = trial.connect()
    body = json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True, "messages": []})
    client.request("POST", "/v1/messages", body, _headers(trial))
    assert b"\xff{garbled" in client.getresponse().read1(100)
    client.close()
    (row,) = trial.wait_rows(1)
    left.set()
    assert (row.ending, row.detail, row.fault_fired) == (Ending.BROKEN, "planned fault: the reply was spoilt", True)
    assert trial.open.close().faults_as_planned


def test_a_client_that_leaves_before_the_reply_is_noticed_too(scene: Scene, provider: Provider) -> None:
    trial = scene.open()
    arrived, over = threading.Event(), threading.Event()

    def wait(handler: Handler) -> None:
        arrived.set()
        assert handler.rfile.read(1) == b""  # the gateway breaks the connection off
        over.set()
        handler.close_connection = True

    provider.then(wait)
    client = trial.connect()
    client.request("POST", "/v1/messages", b'{"model":"claude-sonnet-4-5","messages":[]}', _headers(trial))
    assert arrived.wait(30)
    client.close()
    assert over.wait(30)
    assert trial.wait_rows(1)[0].ending is Ending.CLIENT_GONE


def _headers(trial: Trial) -> dict[str, str]:
    return {"x-api-key": trial.token, "content-type": "application/json"}


def test_kept_connections_serve_many_requests_on_both_sides(scene: Scene) -> None:
    trial = scene.open()
    for _ in range(5):
        trial.ask()
    assert [row.reused_connection for row in trial.rows][1:] == [True] * 4


def test_a_hundred_megabytes_pass_in_bounded_memory(scene: Scene, provider: Provider, rss_bytes: RssBytes) -> None:
    trial = scene.open()
    trial.ask()
    before = rss_bytes(scene.process.pid)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 100_000_000}}
    body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": [image]}]}
    assert trial.ask(body).status == 200
    assert len(provider.seen[-1].body) > 100_000_000
    assert trial.rows[-1].request_bytes == len(provider.seen[-1].body)
    assert rss_bytes(scene.process.pid) - before < 40_000_000  # what it took meanwhile it has given back


def test_a_body_beyond_the_limit_is_refused_without_being_kept(scene: Scene, provider: Provider) -> None:
    trial = scene.open()
    client = trial.connect()
    client.putrequest("POST", "/v1/messages")
    for name, value in {**_headers(trial), "content-length": str(200 << 20)}.items():
        client.putheader(name, value)
    client.endheaders()
    try:
        for _ in range(200):
            client.send(b" " * (1 << 20))
    except (BrokenPipeError, ConnectionResetError):
        pass  # it was refused before all of it was sent
    (row,) = trial.wait_rows(1)
    client.close()
    assert (row.refusal, row.client_status) == ("body", 413)
    assert provider.seen == []


@pytest.mark.root
def test_a_body_that_the_disk_has_no_room_for_is_refused_and_ends_no_trial(
    own_scene: Scene, own_provider: Provider
) -> None:
    spool = own_scene.control.parent / "spool"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(spool)], check=True)
    try:
        trial = own_scene.open()
        large = {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "x" * (4 << 20)}]}
        client = trial.connect()
        with suppress(BrokenPipeError, ConnectionResetError):  # it may be refused before all of it was sent
            client.request("POST", "/v1/messages", json.dumps(large).encode(), _headers(trial))
        (row,) = trial.wait_rows(1)
        client.close()
        assert (row.ending, row.refusal, row.client_status) == (Ending.REFUSED, "body", 413)
        assert "No space left" in row.detail
        assert trial.ask().status == 200
        assert trial.open.close().internal_error is None
        assert len(own_provider.seen) == 1
    finally:
        subprocess.run(["umount", str(spool)], check=True)


def test_sixty_four_streams_pass_at_once(scene: Scene, provider: Provider, make_stream: MakeStream) -> None:
    trial = scene.open()
    together = threading.Barrier(64, timeout=60)

    def meet(handler: Handler) -> None:
        together.wait()  # none ends before all have begun
        make_stream.rest(handler, 2)

    provider.then(*[make_stream(2, then=meet) for _ in range(64)])
    bodies: list[bytes] = []

    def read() -> None:
        client = trial.connect()
        body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True, "messages": []}
        bodies.append(trial.ask(body, client=client).body)
        client.close()

    threads = [threading.Thread(target=read) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(b"message_stop" in body for body in bodies) == 64
    assert _buckets(trial.open.close().totals.spend.usage) == (640, 128, 192, 256)


@pytest.mark.parametrize("own_settings", [{"max_refused": 20}])
def test_a_flood_of_what_is_refused_ends_its_trial_and_nothing_else(own_scene: Scene, own_provider: Provider) -> None:
    """Rows without end would fill disk and memory, and the gateway's end would make a lost trial a void one."""
    flooding, other = own_scene.open(), own_scene.open()
    fetching = {"tools": [{"type": "web_search_20250305", "name": "web_search"}] * 9}
    asked = [{"path": "/v1/files"}, {"body": b"{"}, {"body": {"model": "m" * 10_000, "messages": [], **fetching}}]
    for n in range(20):
        assert flooding.ask(**asked[n % 3]).status in {400, 404}
    for _ in range(30):
        with pytest.raises(ConnectionError):  # closed before it was asked, or while it was
            flooding.ask()
        flooding.client.close()
    assert other.ask().status == 200
    closed = flooding.open.close()
    *rows, last = flooding.wait_rows(21)
    assert [row.refusal for row in rows] == ["path", "body", "egress"] * 6 + ["path", "body"]
    assert (last.refusal, last.refused) == ("budget", ("requests",))
    assert last.detail == "this and 29 more requests were turned away unread: too many were refused"
    assert closed.budget_exhausted == "requests"
    assert closed.internal_error is None
    assert closed.egress_refused == tuple(f"web-search tools[{n}]" for n in range(9)) * 6
    assert {len(row.requested_model) for row in rows if row.requested_model} == {500}
    assert len(own_provider.seen) == 1
