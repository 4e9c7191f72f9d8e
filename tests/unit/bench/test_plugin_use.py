"""What the wire shows of a plugin: listed in the first request of the main loop, loaded by the body of its skill."""

from fairtrial.bench.plugin_use import is_from_plugin, listed_offers, loaded_skills_of, markers_of, plugin_seen
from fairtrial.gateway.ledger import Ending, WireRow
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


def test_a_skill_is_loaded_when_its_body_comes_from_the_plugins_directory() -> None:
    rows = [row_of(""), row_of(r"Base directory for this skill: /opt/plugin/skills/work\n\nDo it.")]
    assert loaded_skills_of(rows, PLUGIN) == ("work",)
    assert is_from_plugin(rows, "work", PLUGIN)
    assert not is_from_plugin(rows, "work-more", PLUGIN), "the one's directory begins like the other's"
    assert plugin_seen("plan", rows, PLUGIN) == {"phase": "plan", "listed": [], "loaded": ["work"]}


def test_a_skill_of_the_same_name_from_elsewhere_is_not_the_plugins() -> None:
    rows = [row_of(r"Base directory for this skill: /workspace/.claude/skills/work\n\nDo it.")]
    assert not is_from_plugin(rows, "work", PLUGIN)
    assert is_from_plugin(rows, "another", PLUGIN), "the plugin has none of this name"
    assert is_from_plugin(rows, "work", None)


def test_without_a_plugin_nothing_is_looked_for() -> None:
    assert markers_of(None) == ()
