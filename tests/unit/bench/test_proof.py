"""What the wire proves of a skill."""

import json

from fairtrial.bench.proof import count_tool_calls, count_turns, prove_skill
from fairtrial.gateway.ledger import Ending, SeenCall, SeenResult, WireRow
from fairtrial.model.agent import SkillProof

SKILL = "acme-work"


def row(
    *,
    calls: list[SeenCall] | None = None,
    results: list[SeenResult] | None = None,
    ending: Ending = Ending.ANSWERED,
    markers: tuple[str, ...] = (),
    agent_claim: str | None = None,
) -> WireRow:
    return WireRow(
        n=1,
        trial="t",
        begun_utc="",
        method="POST",
        path="/v1/messages",
        ask="generate",
        ending=ending,
        tool_calls=tuple(calls or ()),
        tool_results=tuple(results or ()),
        markers=markers,
        agent_claim=agent_claim,
    )


def call(skill: str = SKILL, *, name: str = "Skill", id_: str | None = "c1", partial: bool = False) -> SeenCall:
    return SeenCall(id=id_, name=name, input=json.dumps({"skill": skill}), is_partial=partial)


def result(id_: str | None = "c1", *, error: bool | None = None) -> SeenResult:
    return SeenResult(call_id=id_, name=None, is_error=error, n_characters=3)


def proven(*rows: WireRow) -> bool | None:
    return prove_skill(rows, SKILL, SkillProof.TOOL, marker="m", tools=("Skill",))


def test_a_call_with_a_later_result_proves_the_skill() -> None:
    assert proven(row(calls=[call()]), row(results=[result()])) is True
    assert proven(row(calls=[call("/acme-work now")]), row(results=[result()])) is True
    assert proven(row(calls=[call("plug:acme-work", name="skill")]), row(results=[result()])) is True


def test_the_tool_is_the_one_that_the_agent_has_for_skills() -> None:
    rows = [row(calls=[call(name="activate_skill")]), row(results=[result()])]
    assert prove_skill(rows, SKILL, SkillProof.TOOL, marker="m", tools=("activate_skill",)) is True
    assert proven(*rows) is False
    assert prove_skill(rows, SKILL, SkillProof.TOOL, marker="m") is False


def test_prefixes_suffixes_and_mentions_do_not_count() -> None:
    for other in ("acme-work2", "my-acme-work", "other acme-work", "", "acme-work:other"):
        assert proven(row(calls=[call(other)]), row(results=[result()])) is False, other
    assert proven(row(calls=[call(name="Bash")]), row(results=[result()])) is False


def test_a_call_that_is_too_deep_to_be_read_proves_nothing() -> None:
    deep = SeenCall(id="c1", name="Skill", input=f'{{"skill": "{SKILL}", "x": ' + "[" * 1900, is_partial=False)
    assert proven(row(calls=[deep]), row(results=[result()])) is False


def test_a_call_without_a_good_result_proves_nothing() -> None:
    assert proven(row(calls=[call()])) is False
    assert proven(row(calls=[call()]), row(results=[result(error=True)])) is False
    assert proven(row(results=[result()]), row(calls=[call()])) is False
    assert proven(row(calls=[call()], results=[result()])) is False, "the same request cannot bring it"


def test_a_call_of_a_broken_or_partial_reply_proves_nothing() -> None:
    assert proven(row(calls=[call()], ending=Ending.BROKEN), row(results=[result()])) is False
    assert proven(row(calls=[call(partial=True)]), row(results=[result()])) is False


def test_ids_that_are_used_twice_cannot_be_told_apart() -> None:
    assert proven(row(calls=[call()]), row(calls=[call()]), row(results=[result()])) is None
    assert proven(row(calls=[call()]), row(results=[result()]), row(results=[result()])) is None
    assert proven(row(calls=[call(id_=None)])) is None


def test_a_call_without_an_id_is_proven_where_one_call_and_one_result_can_be_meant() -> None:
    def named(*, error: bool = False) -> SeenResult:
        return SeenResult(call_id="of-the-client", name="Skill", is_error=error, n_characters=3)

    asked = row(calls=[call(id_=None)])
    assert proven(asked, row(results=[named()])) is True
    assert proven(asked, row(results=[named(error=True)])) is False
    assert proven(row(results=[named()]), asked) is None
    assert proven(asked, row(calls=[call("other", id_=None)], results=[named()])) is None
    assert proven(asked, row(results=[named(), named()])) is None


def test_a_subagents_use_counts() -> None:
    assert proven(row(calls=[call()], agent_claim="sub"), row(results=[result()], agent_claim="sub")) is True


def test_a_file_is_proven_by_its_marker_and_a_prompt_by_construction() -> None:
    assert prove_skill([row(markers=("m",))], SKILL, SkillProof.FILE, marker="m") is True
    assert prove_skill([row()], SKILL, SkillProof.FILE, marker="m") is False
    assert prove_skill([], SKILL, SkillProof.PROMPT, marker="m") is True
    assert prove_skill([], SKILL, SkillProof.NONE, marker="m") is None


def test_turns_are_whole_replies_of_the_main_loop() -> None:
    rows = [row(calls=[call()]), row(ending=Ending.BROKEN), row(agent_claim="sub"), row()]
    assert count_turns(rows) == 2
    assert count_tool_calls(rows) == {"Skill": 1}
