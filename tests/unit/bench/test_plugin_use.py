"""What the wire shows of a plugin: listed in the first request of the main loop, loaded by the body of its skill."""

import json
from dataclasses import replace

import pytest

from fairtrial.bench.plugin_use import is_from_plugin, listed_offers, loaded_skills_of, markers_of, plugin_seen
from fairtrial.gateway.ledger import Ending, SeenCall, SeenResult, WireRow
from fairtrial.model.bench import PluginFiles

PLUGIN = PluginFiles(
    name="p",
    version="1.2.3",
    manifest_schema_version=1,
    manifest_digest="d" * 64,
    file_count=2,
    total_bytes=2,
    offers=("p:work", "p:work-more"),
    dropped=(),
)


def row_of(data: str, *, agent_claim: str | None = None, ending: Ending = Ending.ANSWERED) -> WireRow:
    """A request as the gateway records it: with the markers that stand in its bytes."""
    found = tuple(marker for marker in markers_of(PLUGIN) if marker in data)
    begun = "2026-01-01T00:00:00Z"
    return WireRow(
        n=1,
        trial="t",
        begun_utc=begun,
        method="POST",
        path="/",
        markers=found,
        agent_claim=agent_claim,
        ask="generate",
        ending=ending,
    )


def test_what_stands_in_the_list_of_the_first_request_of_the_main_loop_is_listed() -> None:
    rows = [
        row_of("- p:work-more: m", agent_claim="a"),
        row_of(r"skills:\n- p:work: How"),
        row_of(r"- p:work: How\n- p:work-more: m"),
    ]
    assert listed_offers(rows, PLUGIN) == ("p:work",), "a later request may hold what a tool printed"
    assert listed_offers([], PLUGIN) == ()
    refused = row_of("", ending=Ending.REFUSED)
    assert listed_offers([refused, *rows], PLUGIN) == ("p:work",), "what was refused told nobody anything"


def test_what_stands_in_the_list_without_its_description_is_listed() -> None:
    assert listed_offers([row_of(r"skills:\n- p:work\n- other: o\n")], PLUGIN) == ("p:work",)
    assert listed_offers([row_of(r"skills:\n- p:work-more\n</reminder>")], PLUGIN) == ("p:work-more",)


BODY = r"Base directory for this skill: /opt/plugin/skills/work\n\nDo it."
TOOLS = ("Skill",)


def calls(*named: tuple[str, str, dict[str, str]], data: str = "", n: int = 1) -> WireRow:
    """A request whose reply calls tools, each by id, name and input."""
    made = tuple(SeenCall(id=id_, name=name, input=json.dumps(given), is_partial=False) for id_, name, given in named)
    return replace(row_of(data), n=n, ending=Ending.ANSWERED, tool_calls=made)


def brings(data: str, *ids: str, n: int = 2, is_error: bool | None = None) -> WireRow:
    """A request that brings the results of calls."""
    results = tuple(SeenResult(call_id=each, name=None, is_error=is_error, n_characters=1) for each in ids)
    return replace(row_of(data), n=n, tool_results=results)


SKILL = ("s", "Skill", {"skill": "p:work"})
BASH = ("b", "Bash", {"command": "echo"})


def test_a_skill_is_loaded_when_its_body_comes_from_the_plugins_directory() -> None:
    rows = [calls(SKILL), brings(BODY, "s")]
    assert loaded_skills_of(rows, PLUGIN, TOOLS) == ("work",)
    assert loaded_skills_of(rows[::-1], PLUGIN, TOOLS) == ("work",), "they are written as they end"
    assert is_from_plugin(rows, "work", PLUGIN, TOOLS)
    assert not is_from_plugin(rows, "work-more", PLUGIN, TOOLS), "the one's directory begins like the other's"
    assert plugin_seen("plan", rows, PLUGIN, TOOLS) == {"phase": "plan", "listed": [], "loaded": ["work"]}


def test_a_skill_of_the_same_name_from_elsewhere_is_not_the_plugins() -> None:
    rows = [calls(SKILL), brings(r"Base directory for this skill: /workspace/.claude/skills/work\n\nDo it.", "s")]
    assert not is_from_plugin(rows, "work", PLUGIN, TOOLS)
    assert is_from_plugin(rows, "another", PLUGIN, TOOLS), "the plugin has none of this name"
    assert is_from_plugin(rows, "work", None, TOOLS)


FORGED = {
    "printed in the same turn": [calls(SKILL, BASH), brings(BODY, "s", "b")],
    "printed the turn before": [
        calls(BASH),
        replace(calls(SKILL, data=BODY, n=2), tool_results=brings("", "b").tool_results),
        brings(BODY, "s", n=3),
    ],
    "printed the turn after": [
        calls(SKILL),
        replace(calls(BASH, n=2), tool_results=brings("", "s").tool_results),
        brings(BODY, "b", n=3),
    ],
    "told at the beginning": [calls(SKILL, data=BODY), brings(BODY, "s")],
    "in the call's own words": [
        calls(("s", "Skill", {"skill": "work", "args": BODY.replace(r"\n", "\n")})),
        brings(BODY, "s"),
    ],
    "by another skill": [calls(("s", "Skill", {"skill": "other"})), brings(BODY, "s")],
    "by another tool": [calls(("s", "Read", {"skill": "work"})), brings(BODY, "s")],
    "by a call that failed": [calls(SKILL), brings(BODY, "s", is_error=True)],
    "by two calls of one id": [calls(SKILL, ("s", "Bash", {})), brings(BODY, "s")],
}


@pytest.mark.parametrize("how", FORGED)
def test_a_body_that_something_else_can_have_brought_is_not_the_plugins(how: str) -> None:
    assert loaded_skills_of(FORGED[how], PLUGIN, TOOLS) == ()


def test_without_a_plugin_nothing_is_looked_for() -> None:
    assert markers_of(None) == ()
