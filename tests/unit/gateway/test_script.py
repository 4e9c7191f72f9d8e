"""The scripted model: what a file may say, and that every request is answered by what its own conversation tells."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.errors import ConfigError
from fairtrial.gateway.dialect import Call, Dialect, ToolCall
from fairtrial.gateway.dialects import DIALECTS, find_route
from fairtrial.gateway.play import NoTurn, Selection, expected_usage, select_reply
from fairtrial.gateway.script import Script, read_script
from fairtrial.model.usage import TokenUsage
from fairtrial.wire.faults import FaultKind

NAMES = list(DIALECTS)

SCRIPT = """\
schema: script/1
usage: {uncached_input: 1, output: 1}
agents:
  - name: title
    match: {tools: none}
    beyond: repeat
    turns: [{text: A title}]
  - name: helper
    match: {claimed: subagent, prompt_contains: find the file}
    turns:
      - calls: [{tool: sh, input: {cmd: ls}}]
        usage: {uncached_input: 2003, cache_write: 6003, cache_read: 8003, output: 4003, reasoning: 3}
      - text: It is here.
        tells_usage: false
  - name: main
    turns:
      - text: Looking.
        calls:
          - {tool: sh, input: {cmd: make test}, only: [anthropic-messages, openai-chat, gemini]}
          - {tool: exec_command, input: {cmd: make test}, only: [openai-responses]}
        usage: {uncached_input: 10, cache_write: 20, cache_read: 30, output: 40}
      - text: It passed.
        delay_s: 0.5
        fault: {kind: status, parameter: 529, retry_after_s: 2}
        cases:
          - when: {contains: FAILED}
            text: Not yet.
            calls: [{tool: sh, input: {cmd: fix}}]
          - when: {matches: "^exit [1-9]"}
            text: Odd.
      - text: Done.
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def to_file(text: str) -> Path:
        path = tmp_path / "script.yaml"
        path.write_text(text)
        return path

    return to_file


@pytest.fixture
def script(write: Callable[[str], Path]) -> Script:
    return read_script(write(SCRIPT))


class Session:
    """A client that keeps its history as real ones do, in one dialect; what it is answered comes over the wire."""

    def __init__(self, name: str, script: Script, prompt: str, *, tools: bool = True, agent: str | None = None) -> None:
        self.dialect: Dialect = DIALECTS[name]
        self.script = script
        self.has_tools = tools
        self.headers = {"x-claude-code-agent-id": agent} if agent else {}
        if agent:
            self.headers |= {"x-session-id": agent, "x-parent-session-id": "p"}
        key = {"gemini": "parts", "openai-responses": "content"}.get(name, "content")
        first = [{"text": prompt}] if name == "gemini" else prompt
        self.history: list[dict[str, Any]] = [{"role": "user", key: first}]

    def call(self) -> Call:
        name = self.dialect.name
        target = {
            "anthropic-messages": "/v1/messages",
            "openai-chat": "/v1/chat/completions",
            "openai-responses": "/v1/responses",
            "gemini": "/v1beta/models/m:generateContent",
        }[name]
        found = find_route("POST", target)
        assert found is not None
        tool = {"type": "function", "name": "sh", "function": {"name": "sh"}, "functionDeclarations": [{"name": "sh"}]}
        key = {"gemini": "contents", "openai-responses": "input"}.get(name, "messages")
        body: dict[str, Any] = {"model": "m", key: self.history, "tools": [tool] if self.has_tools else []}
        return self.dialect.read_request(found[1], self.headers, json.loads(json.dumps(body)))

    def ask(self) -> Selection:
        found = select_reply(self.script, self.call(), self.dialect.name)
        assert isinstance(found, Selection), found
        return found

    def take(self, found: Selection, result: str = "ok") -> tuple[ToolCall, ...]:
        """Append a reply as it came over the wire, and the results of its calls; the calls with their ids."""
        call = self.call()
        rendered = self.dialect.render(found.reply, call)
        meter = self.dialect.meter(rendered.headers["content-type"])
        meter.feed(rendered.body)
        reading = meter.finish(body_ended=True)
        body: dict[str, Any] = json.loads(rendered.body)
        match self.dialect.name:
            case "anthropic-messages":
                self.history.append({"role": "assistant", "content": body["content"]})
                results = [{"type": "tool_result", "tool_use_id": c.id, "content": result} for c in reading.tool_calls]
                self.history.append({"role": "user", "content": results or "go on"})
            case "openai-chat":
                self.history.append(body["choices"][0]["message"])
                self.history.extend(
                    {"role": "tool", "tool_call_id": c.id, "content": result} for c in reading.tool_calls
                )
                if not reading.tool_calls:
                    self.history.append({"role": "user", "content": "go on"})
            case "openai-responses":
                # Some clients put each result right after its call.
                for item in body["output"]:
                    self.history.append(item)
                    if "call_id" in item:
                        self.history.append(
                            {"type": "function_call_output", "call_id": item["call_id"], "output": result}
                        )
                if not reading.tool_calls:
                    self.history.append({"role": "user", "content": "go on"})
            case _:
                self.history.append(body["candidates"][0]["content"])
                parts = [
                    {"functionResponse": {"id": c.id, "name": c.name, "response": {"output": result}}}
                    for c in reading.tool_calls
                ]
                self.history.append({"role": "user", "parts": parts or [{"text": "go on"}]})
        return reading.tool_calls


@pytest.mark.parametrize("name", NAMES)
def test_a_session_is_played_through_turn_by_turn_and_a_retry_replays_its_turn(name: str, script: Script) -> None:
    session = Session(name, script, "Please fix it.")
    texts = []
    for turn in range(3):
        found = session.ask()
        assert session.ask() == found
        assert (found.agent, found.turn) == ("main", turn)
        texts.append(found.reply.text)
        session.take(found)
    assert texts == ["Looking.", "It passed.", "Done."]
    over = select_reply(script, session.call(), name)
    assert over == NoTurn(message="the script of 'main' has 3 turns; this is turn 3")


@pytest.mark.parametrize("name", NAMES)
def test_a_turn_may_depend_on_what_the_last_tool_result_said(name: str, script: Script) -> None:
    for result, text in (("2 FAILED", "Not yet."), ("exit 3", "Odd."), ("exit 0", "It passed.")):
        session = Session(name, script, "Please fix it.")
        session.take(session.ask(), result)
        found = session.ask()
        assert found.reply.text == text
        assert found.reply.first_delay_s == 0.5
        assert found.fault is not None
        assert (found.fault.kind, found.fault.fault().parameter, found.fault.times) == (FaultKind.STATUS, 529, 1)


def test_a_turn_may_depend_on_the_text_beside_the_last_tool_result(script: Script) -> None:
    """Claude Code answers a call of Skill with "Launching skill", and says beside it what the skill holds."""
    session = Session("anthropic-messages", script, "Please fix it. FAILED is no result.")
    assert session.ask().reply.text == "Looking."
    session.take(session.ask(), "Launching skill: mend")
    session.history.append({"role": "user", "content": [{"type": "text", "text": "# Mending\n\n2 FAILED? Mend both."}]})
    assert session.ask().reply.text == "Not yet."


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_may_have_another_name_in_another_dialect(name: str, script: Script) -> None:
    session = Session(name, script, "Please fix it.")
    (call,) = session.take(session.ask())
    assert call.name == ("exec_command" if name == "openai-responses" else "sh")
    assert call.input == {"cmd": "make test"}


@pytest.mark.parametrize("name", ["anthropic-messages", "openai-chat", "openai-responses"])
def test_a_subagent_and_a_side_call_have_scripts_of_their_own(name: str, script: Script) -> None:
    helper = Session(name, script, "Please find the file", agent="a1")
    first = helper.ask()
    assert (first.agent, first.reply.tool_calls[0].input) == ("helper", {"cmd": "ls"})
    helper.take(first)
    last = helper.ask()
    assert (last.reply.text, last.reply.usage) == ("It is here.", None)
    for _ in range(2):
        assert Session(name, script, "Write a title", tools=False).ask().reply.text == "A title"


def test_calls_of_one_reply_that_stand_apart_in_the_history_are_one_turn(write: Callable[[str], Path]) -> None:
    turns = "[{calls: [{tool: x}, {tool: x}, {tool: x}]}, {text: b}, {text: c}]"
    script = read_script(write(f"schema: script/1\nagents: [{{name: a, turns: {turns}}}]"))
    session = Session("openai-responses", script, "go")
    assert len(session.take(session.ask())) == 3
    assert session.ask().reply.text == "b"
    session.take(session.ask())
    assert session.ask().reply.text == "c"


def test_history_that_another_agent_made_does_not_count_for_this_one(write: Callable[[str], Path]) -> None:
    text = """\
schema: script/1
agents:
  - {name: fork, match: {claimed: subagent}, turns: [{text: first}, {text: second}]}
  - {name: main, turns: [{calls: [{tool: sh}]}, {calls: [{tool: sh}]}, {text: end}]}
"""
    script = read_script(write(text))
    main = Session("anthropic-messages", script, "go")
    main.take(main.ask())
    main.take(main.ask())
    fork = Session("anthropic-messages", script, "go", agent="a1")
    fork.history = list(main.history)
    assert (fork.ask().agent, fork.ask().turn) == ("fork", 0)
    fork.take(fork.ask())
    assert fork.ask().reply.text == "second"


def test_ids_of_calls_differ_between_turns_and_between_conversations(script: Script) -> None:
    ids = set()
    for prompt in ("one", "two"):
        session = Session("anthropic-messages", script, prompt)
        ids.update(call.id for call in session.take(session.ask(), "FAILED"))
        ids.update(call.id for call in session.take(session.ask()))
    assert len(ids) == 4
    assert all(each is not None and len(each) <= 64 for each in ids)


def test_no_agent_for_a_conversation_is_said_and_not_guessed(write: Callable[[str], Path]) -> None:
    script = read_script(
        write("schema: script/1\nagents: [{name: a, match: {prompt_matches: '^x+$'}, turns: [{text: b}]}]")
    )
    call = Session("anthropic-messages", script, "other").call()
    assert isinstance(select_reply(script, call, "anthropic-messages"), NoTurn)
    assert isinstance(
        select_reply(script, Session("anthropic-messages", script, "xxx").call(), "anthropic-messages"), Selection
    )


def test_the_sum_of_a_script_is_known_before_it_is_played(write: Callable[[str], Path]) -> None:
    text = """\
schema: script/1
usage: {uncached_input: 1, output: 2}
agents:
  - {name: main, turns: [{calls: [{tool: sh}]}, {text: end, cases: [{when: {contains: x}, text: other}]}]}
  - {name: helper, match: {claimed: subagent}, turns: [{text: a, usage: {cache_read: 5, output: 1, reasoning: 1}}]}
"""
    script = read_script(write(text))
    assert expected_usage(script) == TokenUsage(uncached_input=2, cache_write=0, cache_read=5, output=5)
    assert expected_usage(script, times={"helper": 3}).cache_read == 15
    assert expected_usage(script, times={"helper": 0}).cache_read == 0


def test_what_gemini_cannot_say_is_not_expected_of_it(write: Callable[[str], Path]) -> None:
    turn = "{text: b, usage: {uncached_input: 1, cache_write: 2, cache_read: 4, output: 8}}"
    script = read_script(write(f"schema: script/1\nagents: [{{name: a, turns: [{turn}]}}]"))
    assert expected_usage(script, dialect="openai-chat").cache_write == 2
    found = expected_usage(script, dialect="gemini")
    assert (found.uncached_input, found.cache_write, found.total) == (3, 0, 15)


def test_a_turn_that_does_not_say_its_usage_makes_the_sum_unknown(script: Script) -> None:
    assert expected_usage(script).total is None


def test_a_turn_whose_cases_cost_differently_has_no_one_sum(write: Callable[[str], Path]) -> None:
    case = "{when: {contains: x}, usage: {output: 9}}"
    script = read_script(write(f"schema: script/1\nagents: [{{name: a, turns: [{{text: b, cases: [{case}]}}]}}]"))
    with pytest.raises(ValueError, match="turn 0 of 'a' costs one thing or another"):
        expected_usage(script)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "schema: script/1\nagents:\n  - name: a\n    turn: []",
            "4:5: unknown key 'turn' in 'agents[0]'; did you mean 'turns'?",
        ),
        ("schema: script/2\nagents: []", "1:1: key 'schema' has unknown value 'script/2'"),
        ("schema: script/1\nagents: []", "a script needs at least one agent"),
        ("schema: script/1\nagents: [{name: a, turns: []}]", "an agent needs at least one turn"),
        (
            "schema: script/1\nagents: [{name: a, turns: [{text: b}]}, {name: a, turns: [{text: b}]}]",
            "two agents are called 'a'",
        ),
        (
            "schema: script/1\nagents: [{name: a, turns: [{text: b, usage: {output: 1, reasoning: 2}}]}]",
            "reasoning is part",
        ),
        ("schema: script/1\nagents: [{name: a, turns: [{text: b, usage: {output: -1}}]}]", "output is -1"),
        ("schema: script/1\nagents: [{name: a, turns: [{text: b, fault: {kind: statsu}}]}]", "did you mean 'status'?"),
        ("schema: script/1\nagents: [{name: a, turns: [{text: b, fault: {kind: status}}]}]", "fault"),
        (
            "schema: script/1\nagents: [{name: a, turns: [{error_event: {kind: overlooded}}]}]",
            "did you mean 'overloaded'?",
        ),
        ("schema: script/1\nagents: [{name: a, turns: [{error_event: {after_bytes: -1}}]}]", "after_bytes is 0"),
        ("schema: script/1\nagents: [{name: a, turns: [{error_event: {times: -1}}]}]", "times is 0"),
        ("schema: script/1\nagents: [{name: a, turns: [{error_event: {}, fault: {kind: stall}}]}]", "and not both"),
        (
            "schema: script/1\nagents: [{name: a, match: {prompt_matches: '('}, turns: [{text: b}]}]",
            "no regular expression",
        ),
        (
            "schema: script/1\nagents: [{name: a, turns: [{calls: [{tool: x, only: [chat]}]}]}]",
            "unknown dialect 'chat'",
        ),
        ("schema: script/1\nagents: [{name: a, turns: [{text: b, delay_s: -1}]}]", "delays are 0 to 3600 seconds"),
        ("schema: script/1\nagents: [{name: a, turns: [{calls: [{tool: x, custom: true}]}]}]", "one argument 'input'"),
        ("schema: script/1\nschema: script/1\nagents: []", "duplicate key"),
    ],
)
def test_what_is_wrong_with_a_script_is_said_with_its_place(
    text: str, message: str, write: Callable[[str], Path]
) -> None:
    with pytest.raises(ConfigError, match=r"script\.yaml:[0-9]+:[0-9]+: ") as error:
        read_script(write(text))
    assert message in str(error.value)
