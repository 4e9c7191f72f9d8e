"""What the wire and the server's own log say of a context's tools."""

import json
from dataclasses import replace

import pytest

from fairtrial.bench.tool_server import OTHER, bridge_to, read_log, tool_markers, wire_tools
from fairtrial.gateway.ledger import Ending, SeenCall, WireRow

TOOLS = ("find_symbol", "list-files")


def row(*, calls: tuple[str, ...] = (), **more: object) -> WireRow:
    made = WireRow(n=1, trial="t", begun_utc="", method="POST", path="/v1/messages", ending=Ending.ANSWERED)
    seen = tuple(SeenCall(id="c", name=name, input="{}", is_partial=False) for name in calls)
    return replace(made, tool_calls=seen, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["mcp__ctags__find_symbol", "mcp__ctags.find_symbol", "mcp_ctags_find_symbol", "ctags_find_symbol"]
)
def test_each_agents_name_of_a_tool_is_known(name: str) -> None:
    seen = wire_tools([row(tools=("Bash", name), calls=(name, "Bash"))], "ctags", TOOLS)
    assert (seen.offered, seen.calls) == (("find_symbol",), {"find_symbol": 1})


def test_a_dash_may_be_written_as_an_underscore() -> None:
    assert wire_tools([row(tools=("ctags_list_files",))], "ctags", TOOLS).offered == ("list-files",)


@pytest.mark.parametrize("name", ["find_symbol", "other_find_symbol", "mcp__other__find_symbol", "ctags_find"])
def test_the_tools_of_others_do_not_count(name: str) -> None:
    seen = wire_tools([row(tools=(name,), calls=(name,))], "ctags", TOOLS)
    assert (seen.offered, seen.calls) == ((), {})


def test_a_tool_that_is_kept_back_counts_as_offered_when_it_is_named_before_it_is_called() -> None:
    markers = tool_markers("ctags", TOOLS)
    named = row(markers=markers[:1], calls=("mcp__ctags__find_symbol",))
    assert wire_tools([named, named], "ctags", TOOLS).offered == ("find_symbol",)


def test_a_name_that_only_the_models_own_call_brought_is_no_offer() -> None:
    first = row(calls=("mcp__ctags__find_symbol",))
    later = row(markers=("mcp__ctags__find_symbol",))
    assert wire_tools([first, later], "ctags", TOOLS).offered == ()


def test_calls_of_broken_replies_and_broken_calls_do_not_count() -> None:
    broken = row(calls=("ctags_find_symbol",), ending=Ending.BROKEN)
    (call,) = broken.tool_calls
    partial = replace(row(), tool_calls=(replace(call, is_partial=True),))
    assert wire_tools([broken, partial], "ctags", TOOLS).calls == {}


def test_a_log_is_summed_up_and_its_torn_end_passed_over() -> None:
    events = [
        {"event": "opened", "connection": 1},
        {"event": "listed", "connection": 1, "tools": ["b", "a"]},
        {"event": "called", "connection": 1, "tool": "a", "withheld": False},
        {"event": "answered", "connection": 1, "tool": "a", "is_error": True},
        {"event": "called", "connection": 1, "tool": "rename", "withheld": True},
        {"event": "turned-away", "connection": 17},
    ]
    lines = [*(json.dumps(event).encode() for event in events), b'{"event": "opened"']
    seen = read_log(lines, tools=("a", "b", "rename"), ended="stopped")
    assert (seen.ended, seen.connections, seen.listed) == ("stopped", 1, ("a", "b"))
    assert (seen.calls, seen.failed_calls, seen.refused_calls) == ({"a": 1}, {"a": 1}, {"rename": 1})


def test_names_that_are_no_tool_of_the_server_are_counted_as_one() -> None:
    names = [f"t{number}" for number in range(1000)]
    calls = [{"event": "called", "tool": name, "withheld": name < "t5"} for name in names]
    answers = [{"event": "answered", "tool": name, "is_error": True} for name in (*names, "a")]
    lines = [json.dumps(event).encode() for event in (*calls, *answers, {"event": "listed", "tools": ["a", *names]})]
    seen = read_log(lines, tools=("a",), ended="stopped")
    assert seen.listed == (OTHER, "a")
    assert (seen.calls, seen.refused_calls) == ({OTHER: 555}, {OTHER: 445})
    assert seen.failed_calls == {OTHER: 1000, "a": 1}


def test_an_agent_is_told_of_a_context_by_a_program_without_secrets() -> None:
    server = bridge_to("ctags")
    assert (server.name, server.argv[0], server.env) == ("ctags", "/usr/bin/python3", {})
