"""Arms are data: presets, a person's own, prompts and skills."""

from pathlib import Path

import pytest

from fairtrial.agents.bash_agent import BashAgent
from fairtrial.agents.codex import Codex
from fairtrial.agents.mini_swe_agent import MiniSweAgent
from fairtrial.agents.nop import Nop
from fairtrial.bench.arm_plugin import PluginPlace, refuse_unused_plugins
from fairtrial.bench.arms import (
    Defaults,
    arms_named,
    build_arm,
    fill_prompt,
    read_arms,
    require_provable,
)
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.environment import describe_arm
from fairtrial.cli.options import plugin_places
from fairtrial.errors import ConfigError, UsageError
from fairtrial.model.agent import Installation, Tool
from fairtrial.model.bench import Arm, Phase
from fairtrial.protocols import Agent

MODEL = "claude-sonnet-4-5"


def skill(root: Path, name: str, text: str = "Do it well.") -> Path:
    directory = root / name
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(f"---\nname: {name}\n---\n{text}\n")
    return directory


def build(tmp_path: Path, blobs: BlobStore, name: str, text: str | None = None, **skills: Path) -> Arm:
    path = None
    if text is not None:
        path = tmp_path / "arms.yaml"
        path.write_text(text)
    (found,) = arms_named([name], read_arms(path))
    return build_arm(found, Defaults(agent="bash-agent", model=MODEL, skills=skills), blobs)


def test_the_presets_are_those_of_the_specification() -> None:
    presets = {"workflow", "workflow_direct", "ce_workflow", "ce_workflow_direct", "baseline"}
    assert presets <= read_arms(None).keys()


def test_a_preset_takes_a_persons_skills(tmp_path: Path, blobs: BlobStore) -> None:
    plan, work = skill(tmp_path, "acme-plan"), skill(tmp_path, "acme-work")
    arm = build(tmp_path, blobs, "workflow", plan=plan, work=work)
    assert [(phase.name, phase.skill, phase.produces) for phase in arm.phases] == [
        ("plan", "acme-plan", "docs/plans/*.md"),
        ("work", "acme-work", None),
    ]
    assert [each.name for each in arm.skills] == ["acme-plan", "acme-work"]
    direct = build(tmp_path, blobs, "workflow_direct", plan=plan, work=work)
    assert [each.name for each in direct.skills] == ["acme-work"], "it has no use for the other"
    baseline = build(tmp_path, blobs, "baseline", plan=plan, work=work)
    assert baseline.skills == ()
    assert baseline.phases[0].prompt == "{task}"
    assert Tool.SKILL not in (baseline.phases[0].tools or ())


def test_a_skills_bytes_are_in_the_arms_digest(tmp_path: Path, blobs: BlobStore) -> None:
    work = skill(tmp_path, "acme-work")
    before = build(tmp_path, blobs, "workflow_direct", work=work)
    assert build(tmp_path, blobs, "workflow_direct", work=work) == before
    (work / "SKILL.md").write_text("Other.\n")
    after = build(tmp_path, blobs, "workflow_direct", work=work)
    assert after.digest != before.digest
    assert after.skills[0].digest != before.skills[0].digest


def test_an_arm_of_ones_own(tmp_path: Path, blobs: BlobStore) -> None:
    skill(tmp_path / "skills", "acme-plan")
    text = """arms:
  two-steps:
    skills: {acme-plan: skills/acme-plan}
    phases:
      - {name: plan, prompt: "Plan {task} with {skill}.", skill: acme-plan, produces: "docs/plans/*.md"}
      - {prompt: "Carry out {plan}.", tools: [shell, read, search, edit], deny: [EDIT]}
"""
    arm = build(tmp_path, blobs, "two-steps", text)
    assert arm.phases[1].tools == frozenset({Tool.SHELL, Tool.READ, Tool.SEARCH})
    assert fill_prompt(arm.phases[1], task="T", artifacts={"plan": "docs/plans/a.md"}) == "Carry out docs/plans/a.md."


def test_like_takes_a_presets_phases_and_names_its_skills(tmp_path: Path, blobs: BlobStore) -> None:
    text = "arms:\n  mine: {like: workflow_direct, names: {work: acme-work}, effort: high}\n"
    arm = build(tmp_path, blobs, "mine", text)
    assert (arm.phases[0].skill, arm.effort, arm.skills) == ("acme-work", "high", ())


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ("baseline: {like: workflow}", "is a preset's name"),
        ("mine: {like: workflw}", "did you mean 'workflow'?"),
        ("mine: {}", "either phases of its own or 'like'"),
        ("mine: {phases: [{prompt: x}], like: workflow}", "either phases of its own or 'like'"),
        ("mine: {phases: [{prompt: '{plan}'}, {name: plan, prompt: y}]}", "produces no file before"),
        ("mine: {phases: [{prompt: 'use {skill}'}]}", "the phase has none"),
        ("mine: {phases: [{prompt: x}, {prompt: y}]}", "named twice"),
        ("mine: {phases: [{prompt: x, tools: everything}]}", "valid: explore, implement"),
        ("mine: {phases: [{prompt: x, deny: [Skil]}]}", "no kind of tool"),
        ("mine: {phases: [{prompt: x, produces: ../y}]}", "no path below the workspace"),
        ("mine: {phases: [{promt: x}]}", "did you mean 'prompt'?"),
        ("mine: {like: workflow, names: {plam: x}}", "no phase of 'mine' uses a skill 'plam'"),
        ("mine: {like: workflow, model: gpt-latest}", "no fixed model"),
        ("mine: {phases: [{prompt: 'use {plugin}'}]}", "names {plugin}, but the arm has none"),
        ("mine: {phases: [{prompt: x, name: plugin}]}", "has a meaning of its own"),
        ("mine: {like: ce_workflow, plugin: {name: a b}}", "must be letters"),
        ("mine: {like: ce_workflow, plugin: {name: p, version: 1.2.3}}", "both 'version' and 'directory'"),
        ("mine: {like: ce_workflow, plugin: {name: p, version: ^1.2.3, directory: d}}", "no exact version"),
        ("mine: {like: ce_workflow, plugin: {name: p, parts: [hooks]}}", "none that is taken"),
    ],
)
def test_what_is_wrong_is_named_at_its_place(tmp_path: Path, arm: str, words: str) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text(f"arms:\n  {arm}\n")
    with pytest.raises((ConfigError, UsageError)) as caught:
        read_arms(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{path}:2:")


def test_a_prompt_is_filled_in_one_pass() -> None:
    phase = Phase(name="work", prompt="{task} / {skill} / {plan} / {other} / {{x}}", skill="s")
    filled = fill_prompt(phase, task="has {skill} and {plan}", artifacts={"plan": "p.md"})
    assert filled == "has {skill} and {plan} / s / p.md / {other} / {{x}}"


def test_a_proof_that_the_agent_cannot_give_is_refused(tmp_path: Path, blobs: BlobStore) -> None:
    arm = build(tmp_path, blobs, "workflow_direct", work=skill(tmp_path, "acme-work"))
    require_provable(arm, BashAgent())
    with pytest.raises(UsageError, match="knows no skills"):
        require_provable(arm, Nop())


@pytest.mark.parametrize("agent", [Codex, MiniSweAgent])
def test_an_agent_whose_proof_is_of_placed_skills_is_refused_a_demand_for_another(
    agent: type[Agent], tmp_path: Path, blobs: BlobStore
) -> None:
    require_provable(build(tmp_path, blobs, "workflow_direct", work=skill(tmp_path, "acme-work")), agent())
    unplaced = build(tmp_path, blobs, "workflow_direct")
    require_provable(unplaced, BashAgent())
    with pytest.raises(UsageError, match="'work', which is not placed for it"):
        require_provable(unplaced, agent())


@pytest.mark.parametrize("agent", [BashAgent, Codex, MiniSweAgent])
def test_a_skill_that_is_demanded_and_withheld_is_refused(agent: type[Agent], tmp_path: Path, blobs: BlobStore) -> None:
    skill(tmp_path, "acme")
    text = "arms: {a: {skills: {acme: acme}, phases: [{prompt: do it, skill: acme, deny: [skill]}]}}"
    arm = build(tmp_path, blobs, "a", text)
    with pytest.raises(UsageError, match="withholds 'skill'"):
        require_provable(arm, agent())


def test_a_skill_with_a_link_is_refused(tmp_path: Path, blobs: BlobStore) -> None:
    work = skill(tmp_path, "acme-work")
    (work / "more.md").symlink_to("SKILL.md")
    with pytest.raises(ConfigError, match="no link"):
        build(tmp_path, blobs, "workflow_direct", work=work)
    with pytest.raises(ConfigError, match=r"has no SKILL\.md"):
        build(tmp_path, blobs, "workflow_direct", work=tmp_path / "none")


@pytest.mark.parametrize(
    ("written", "sweeps", "has"),
    [
        ("", None, None),
        ("", "ctags", "ctags"),
        (", context: ctags", None, "ctags"),
        (", context: other", "ctags", "other"),
        (", context: none", "ctags", None),
    ],
)
def test_an_arms_own_word_on_its_context_goes_before_the_sweeps(
    tmp_path: Path, blobs: BlobStore, written: str, sweeps: str | None, has: str | None
) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text(f"arms: {{own: {{like: baseline{written}}}}}\n")
    (found,) = arms_named(["own"], read_arms(path))
    arm = build_arm(found, Defaults(agent="a", model=MODEL, context=sweeps), blobs)
    plain = build_arm(found, Defaults(agent="a", model=MODEL), blobs)
    assert arm.context == has
    assert (arm.digest == plain.digest) == (arm.context == plain.context)


def test_the_preset_without_tool_servers_has_no_context_whatever_the_sweep_gives(
    tmp_path: Path, blobs: BlobStore
) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text("arms: {like_it: {like: baseline_nomcp}, but: {like: baseline_nomcp, context: ctags}}\n")
    defaults = Defaults(agent="a", model=MODEL, context="ctags")
    found = arms_named(["baseline", "baseline_nomcp", "like_it", "but"], read_arms(path))
    arms = [build_arm(each, defaults, blobs) for each in found]
    assert [arm.context for arm in arms] == ["ctags", None, None, "ctags"]
    assert arms[0].phases == arms[1].phases


def plugin(root: Path, name: str = "compound-engineering", *, lacking: str = "") -> Path:
    skills = [each for each in ("ce-plan", "ce-work", "ce-code-review") if each != lacking]
    for each in skills:
        skill(root / "skills", each)
    (root / ".claude-plugin").mkdir()
    (root / ".claude-plugin" / "plugin.json").write_text(f'{{"name": "{name}", "version": "0.3.1"}}')
    return root


def with_plugin(blobs: BlobStore, arm: str, text: Path | None, places: dict[str, Path]) -> Arm:
    named = {name: PluginPlace(version="0.3.1", directory=directory) for name, directory in places.items()}
    (found,) = arms_named([arm], read_arms(text))
    defaults = Defaults(agent="claude-code", model=MODEL, plugins=named)
    refuse_unused_plugins([found.entry.plugin], defaults.plugins)
    return build_arm(found, defaults, blobs)


def test_the_plugin_presets_take_the_plugin_that_the_operator_supplies(tmp_path: Path, blobs: BlobStore) -> None:
    place = {"compound-engineering": plugin(tmp_path / "ce")}
    arm = with_plugin(blobs, "ce_workflow", None, place)
    assert [phase.skill for phase in arm.phases] == ["ce-plan", "ce-work"]
    assert arm.plugin is not None
    assert arm.plugin.has_skill("ce-code-review")
    direct = with_plugin(blobs, "ce_workflow_direct", None, place)
    assert [phase.skill for phase in direct.phases] == ["ce-work"]
    assert direct.plugin == arm.plugin
    prompt = fill_prompt(direct.phases[0], task="T", artifacts={}, plugin=direct.plugin)
    assert "the ce-work skill of the compound-engineering plugin" in prompt


def test_a_plugins_bytes_are_in_the_arms_digest(tmp_path: Path, blobs: BlobStore) -> None:
    root = plugin(tmp_path / "ce")
    place = {"compound-engineering": root}
    before = with_plugin(blobs, "ce_workflow", None, place)
    (root / "skills" / "ce-code-review" / "SKILL.md").write_text("Other.\n")
    assert with_plugin(blobs, "ce_workflow", None, place).digest != before.digest


def test_a_plugin_arm_without_its_plugin_and_a_plugin_without_an_arm_are_refused(
    tmp_path: Path, blobs: BlobStore
) -> None:
    with pytest.raises(UsageError, match="'ce_workflow' needs the plugin 'compound-engineering'"):
        with_plugin(blobs, "ce_workflow", None, {})
    with pytest.raises(UsageError, match="--plugin compound-engineering: no arm of this sweep asks for it"):
        with_plugin(blobs, "baseline", None, {"compound-engineering": plugin(tmp_path / "ce")})


def test_a_demanded_skill_is_either_placed_or_the_plugins(tmp_path: Path, blobs: BlobStore) -> None:
    plugin(tmp_path / "own", "own")
    for name in ("ce-work", "else"):
        skill(tmp_path, name)
    path = tmp_path / "arms.yaml"
    own = "plugin: {name: own, version: 0.3.1, directory: own}"
    text = "arms: {mine: {phases: [{prompt: x, skill: %s}], skills: {%s: %s}, " + own + "}}"
    path.write_text(text % ("ce-work", "ce-work", "ce-work"))
    with pytest.raises(ConfigError, match="'ce-work', which is placed for it and which plugin 'own' has too"):
        with_plugin(blobs, "mine", path, {})
    for words in (("ce-work", "else", "else"), ("else", "else", "else")):
        path.write_text(text % words)
        assert with_plugin(blobs, "mine", path, {}).phases[0].skill == words[0]


def test_a_preset_demands_all_of_its_plugins_skills(tmp_path: Path, blobs: BlobStore) -> None:
    with pytest.raises(UsageError, match=r"has no skills/ce-code-review/SKILL\.md"):
        with_plugin(
            blobs, "ce_workflow", None, {"compound-engineering": plugin(tmp_path / "ce", lacking="ce-code-review")}
        )


def test_a_file_may_say_which_plugin_a_presets_phases_work_with(tmp_path: Path, blobs: BlobStore) -> None:
    plugin(tmp_path / "own", "own")
    path = tmp_path / "arms.yaml"
    path.write_text("arms: {mine: {like: ce_workflow, plugin: {name: own, version: 0.3.1, directory: own}}}\n")
    arm = with_plugin(blobs, "mine", path, {})
    assert arm.plugin is not None
    assert (arm.plugin.name, arm.plugin.version) == ("own", "0.3.1")


def test_an_agent_that_loads_no_plugins_is_refused_before_anything_is_spent(tmp_path: Path, blobs: BlobStore) -> None:
    arm = with_plugin(blobs, "ce_workflow", None, {"compound-engineering": plugin(tmp_path / "ce")})
    with pytest.raises(UsageError, match="bash-agent loads no plugins"):
        describe_arm(BashAgent(), Installation(argv=("x",)), arm, blobs)


@pytest.mark.parametrize("given", ["p=d", "p@=d", "@1.2.3=d", "p@1.2.3", "p@1.2.3=", "p@latest=d", "p@^1.2.3=d"])
def test_a_plugin_is_named_with_its_exact_version_and_its_directory(given: str) -> None:
    with pytest.raises(UsageError, match="is not NAME@VERSION=DIRECTORY"):
        plugin_places((given,))


def test_a_plugin_is_named_once() -> None:
    (place,) = plugin_places(("p@1.2.3=plugins/p",)).values()
    assert (place.version, Path(place.directory)) == ("1.2.3", Path("plugins/p").absolute())
    with pytest.raises(UsageError, match="given twice"):
        plugin_places(("p@1.2.3=a", "p@1.2.4=b"))
