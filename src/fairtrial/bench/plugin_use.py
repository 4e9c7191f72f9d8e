"""What the wire shows of a plugin: that it was there, and that it was used. Pure.

The gateway looks in each request for the texts by which an agent tells its model of a plugin: each thing that the
plugin offers in the list of the first request, and the directory of a skill with the body of a skill that was loaded. A
skill of the repository that has the same name stands in the list without the plugin's, and comes from elsewhere.
"""

from collections.abc import Sequence
from typing import Final

from fairtrial.bench.plugin_files import PLUGIN_ROOT
from fairtrial.bench.proof import names_skill
from fairtrial.gateway.ledger import Ending, WireRow
from fairtrial.model.bench import PluginFiles

__all__ = ["is_from_plugin", "listed_offers", "loaded_skills_of", "markers_of", "plugin_seen"]

_LOADED: Final = f"Base directory for this skill: {PLUGIN_ROOT}/skills/"
_LINE_END: Final = "\\n"  # as JSON has it, in which the request is


def markers_of(plugin: PluginFiles | None) -> tuple[str, ...]:
    """The texts that the gateway is to look for."""
    if plugin is None:
        return ()
    listed = (text for offer in plugin.offers for text in _listings(offer))
    return (*listed, *map(_loaded, _skills_of(plugin)))


def listed_offers(rows: Sequence[WireRow], plugin: PluginFiles) -> tuple[str, ...]:
    """What of a plugin the model was told before it had said anything: in the first request of the main loop.

    A request that the gateway refused told no model anything, and was not looked through.
    """
    told = (row for row in rows if row.ending is not Ending.REFUSED)
    first = next((row for row in told if row.agent_claim is None and row.ask == "generate"), None)
    if first is None:
        return ()
    return tuple(offer for offer in plugin.offers if not {*first.markers}.isdisjoint(_listings(offer)))


def loaded_skills_of(rows: Sequence[WireRow], plugin: PluginFiles, tools: Sequence[str]) -> tuple[str, ...]:
    """The plugin's own skills whose body a call of theirs brought to the model.

    A request holds all that came before it, and any tool can print the text that tells of a skill's body. So it counts
    in the first request that holds it, and only where that brings one result alone: that of a call of this skill.

    Args:
        rows: The wire, request by request.
        plugin: The plugin.
        tools: What the agent calls its tools for skills, whatever their case.
    """
    names = frozenset(name.casefold() for name in tools)
    ordered = sorted((row for row in rows if row.ask == "generate"), key=lambda row: row.n)
    return tuple(skill for skill in _skills_of(plugin) if _is_brought(ordered, skill, names))


def _is_brought(rows: Sequence[WireRow], skill: str, tools: frozenset[str]) -> bool:
    marker = _loaded(skill)
    place = next((place for place, row in enumerate(rows) if marker in row.markers), None)
    if place is None or len(rows[place].tool_results) != 1:
        return False
    (result,) = rows[place].tool_results
    calls = [call for row in rows[:place] for call in row.tool_calls if call.id == result.call_id]
    if result.call_id is None or result.is_error is True or len(calls) != 1:
        return False
    (call,) = calls
    return names_skill(call, skill, tools) and marker not in (call.input or "")


def plugin_seen(phase: str, rows: Sequence[WireRow], plugin: PluginFiles, tools: Sequence[str]) -> dict[str, object]:
    """One session's part of the row's `plugin_seen`."""
    listed, loaded = listed_offers(rows, plugin), loaded_skills_of(rows, plugin, tools)
    return {"phase": phase, "listed": list(listed), "loaded": list(loaded)}


def is_from_plugin(rows: Sequence[WireRow], skill: str, plugin: PluginFiles | None, tools: Sequence[str]) -> bool:
    """Whether a skill that was loaded is the plugin's, where the plugin has one of this name."""
    return plugin is None or not plugin.has_skill(skill) or skill in loaded_skills_of(rows, plugin, tools)


def _skills_of(plugin: PluginFiles) -> tuple[str, ...]:
    return tuple(each.partition(":")[2] for each in plugin.offers)


def _listings(offer: str) -> tuple[str, str]:
    """How it is listed: with its description, or alone on its line where the descriptions would be too many."""
    return f"- {offer}:", f"- {offer}{_LINE_END}"


def _loaded(skill: str) -> str:
    return f"{_LOADED}{skill}{_LINE_END}"
