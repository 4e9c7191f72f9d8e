"""What holds for one dialect holds for all four: each plays a script, can be garbled, and passes a provider's no on."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from fairtrial.gateway.client import ask_status
from fairtrial.gateway.control import ProviderState
from fairtrial.gateway.ledger import Ending
from fairtrial.wire.faults import Fault, FaultKind

Scene = Any
Provider = Any
Trial = Any
Handler = Any
Reply = Any
MakeAnswer = Callable[..., object]

SCRIPT = """
schema: script/1
agents:
  - name: all
    beyond: repeat
    turns:
      - text: "%s"
        usage: {uncached_input: 10, cache_write: 2, cache_read: 3, output: 4}
""" % ("0123456789" * 100)
ASKED: dict[str, tuple[str, dict[str, object]]] = {
    "anthropic-messages": ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}),
    "openai-chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "openai-responses": ("/v1/responses", {"input": "hi", "store": False}),
    "gemini": ("/v1beta/models/claude-sonnet-4-5", {"contents": [{"parts": [{"text": "hi"}]}]}),
}


def ask(trial: Trial, name: str, *, stream: bool) -> Reply:
    path, body = ASKED[name]
    if name == "gemini":
        path += ":streamGenerateContent?alt=sse" if stream else ":generateContent"
        return trial.ask(body, path=path, headers={"x-goog-api-key": trial.token})
    headers = {} if name == "anthropic-messages" else {"authorization": f"Bearer {trial.token}"}
    return trial.ask({**body, "model": "claude-sonnet-4-5", "stream": stream}, path=path, headers=headers)


def read_events(body: bytes) -> list[object]:
    """The data of a stream's events; a client that reads them so falls over what is no JSON."""
    data = [line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: ")]
    return [json.loads(each) for each in data if each != b"[DONE]"]


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("stream", [False, True])
def test_each_dialect_plays_the_script_and_is_counted_alike(scene: Scene, name: str, stream: bool) -> None:
    trial = scene.open(script_text=SCRIPT, include_usage=True)
    reply = ask(trial, name, stream=stream)
    assert reply.status == 200, reply.body
    usage = trial.open.close().totals.spend.usage
    # Chat Completions, Responses and Gemini have no place for what was written to a cache: it is input there.
    assert (usage.uncached_input or 0) + (usage.cache_write or 0) == 12
    assert (usage.cache_read, usage.output) == (3, 4)


def test_a_scripted_model_takes_its_time(scene: Scene) -> None:
    trial = scene.open(script_text=SCRIPT.replace("usage:", "delay_s: 0.2\n        usage:"))
    assert ask(trial, "anthropic-messages", stream=True).status == 200
    assert trial.rows[0].provider_ms >= 200


@pytest.mark.parametrize("name", ASKED)
def test_a_garbled_stream_breaks_the_client_and_not_the_framing(scene: Scene, name: str) -> None:
    garbled = Fault(match="POST", nth=1, kind=FaultKind.GARBLE_REPLY, parameter=100)
    trial = scene.open(script_text=SCRIPT, include_usage=True, faults=(garbled,))
    broken, whole = (ask(trial, name, stream=True) for _ in range(2))
    assert (broken.status, broken.body.count(b"\xff{garbled")) == (200, 1)
    with pytest.raises(ValueError, match=r"decode|Expecting|Invalid|Unterminated"):
        read_events(broken.body)
    assert read_events(whole.body)
    assert [row.usage.output for row in trial.rows] == [4, 4]  # what the model said is paid for, whoever spoilt it
    assert [(row.fault, row.fault_fired) for row in trial.rows] == [("garble_reply", True), (None, False)]
    assert [row.ending for row in trial.rows] == [Ending.BROKEN, Ending.ANSWERED]
    assert trial.open.close().faults_as_planned


@pytest.mark.parametrize("name", ASKED)
def test_a_malformed_stream_of_a_provider_passes_as_it_is_and_is_named(
    scene: Scene, provider: Provider, name: str
) -> None:
    trial = scene.open()

    def send_nonsense(handler: Handler) -> None:
        handler.begin_stream()
        handler.chunk(b"data: \xff{garbled\n\ndata: []\n\n")
        handler.chunk(b"")

    provider.then(send_nonsense)
    assert ask(trial, name, stream=True).body == b"data: \xff{garbled\n\ndata: []\n\n"
    (row,) = trial.rows
    assert (row.ending, row.usage, row.cost_usd) == (Ending.BROKEN, None, None)
    assert row.usage_problem == "an event whose data is no JSON object"


def test_a_limit_reaches_the_agent_and_is_counted_in_every_dialect(
    own_scene: Scene, own_provider: Provider, make_answer: MakeAnswer
) -> None:
    """429 is everybody's, 529 Anthropic's, and whoever stands before a model of theirs passes it on."""
    trial = own_scene.open()
    cases = [(name, status) for name in ASKED for status in (429, 529)]
    for n_before, (name, status) in enumerate(cases):
        own_provider.then(make_answer(status, b'{"error":{}}', {"retry-after": "0"}))
        reply = ask(trial, name, stream=False)
        assert (reply.status, reply.headers["retry-after"]) == (status, "0")
        (provider,) = ask_status(own_scene.control).providers
        assert provider.state is ProviderState.LIMITED
        assert (provider.reason, provider.n_limited) == (f"status {status}", n_before + 1)
    assert [row.status for row in trial.rows] == [status for _, status in cases]
    closed = trial.open.close()
    assert (closed.totals.limited_requests, closed.provider_fault) == (len(cases), "status 529")
