"""Which arms and plugins a candidate is measured with."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.bench.arm_plugin import PluginPlace
from fairtrial.bench.arms import Defaults, read_arms
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.candidate import Candidate, build_arms
from fairtrial.errors import UsageError
from fairtrial.evolve.sweeps import for_pairs
from fairtrial.promote.binding import BoundArm, BoundPlugin, bind_arm
from fairtrial.sweep.bench_plan import BenchOptions, PluginOptions
from fairtrial.workspace.overlay import Overlay, OverlayFile, overlay_digest
from fairtrial.workspace.skill_layout import SkillLayout

ARMS = """\
arms:
  alone:
    phases: [{prompt: "{skill}: {task}", skill: own}]
  plugged:
    plugin: {name: acme}
    phases: [{prompt: "{skill}: {task}", skill: other}]
"""


@pytest.fixture
def options(tmp_path: Path) -> BenchOptions:
    """Two arms, of which one works with a plugin that the operator supplies."""
    for path, text in {
        "arms.yaml": ARMS,
        "acme/.claude-plugin/plugin.json": json.dumps({"name": "acme", "version": "1.2.3"}),
        "acme/skills/other/SKILL.md": "Work.\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return BenchOptions(
        tasks="tasks.yaml",
        arms=("alone", "plugged"),
        model="m-1",
        agent="claude-code",
        arms_file=str(tmp_path / "arms.yaml"),
        plugins={"acme": PluginOptions(version="1.2.3", directory=str(tmp_path / "acme"))},
    )


def places_of(options: BenchOptions) -> dict[str, PluginPlace]:
    return {
        name: PluginPlace(version=each.version, directory=Path(each.directory))
        for name, each in options.plugins.items()
    }


def test_a_candidate_is_measured_with_the_plugins_of_its_own_arms_and_no_other(options: BenchOptions) -> None:
    pairs = for_pairs(options, ("candidate_plugged", "candidate_alone"))
    assert pairs.arms == ("plugged", "candidate_plugged", "alone", "candidate_alone")
    assert pairs.plugins == options.plugins
    one = for_pairs(options, ("candidate_alone",))
    assert one == replace(options, arms=("alone", "candidate_alone"), plugins={})
    assert for_pairs(replace(options, arms_file=None, plugins={}), ("candidate_workflow",)).plugins == {}


def test_the_arms_that_a_change_concerns_can_be_built_when_another_arm_has_a_plugin(
    options: BenchOptions, tmp_path: Path
) -> None:
    files = (OverlayFile(path="skills/own/SKILL.md", content=b"new"),)
    overlay = Overlay(files=files, skills=("own",), digest=overlay_digest(files))
    candidate = Candidate(overlay, SkillLayout(root="skills", mirrors=()))

    def build(asked: BenchOptions) -> list[str]:
        defaults = Defaults(agent=asked.agent, model=asked.model, plugins=places_of(asked))
        blobs = BlobStore(tmp_path / "blobs")
        return [
            arm.name for arm in build_arms(asked.arms, read_arms(tmp_path / "arms.yaml"), defaults, blobs, candidate)
        ]

    measured = for_pairs(options, ("candidate_alone",))
    assert build(measured) == ["alone", "candidate_alone"]
    with pytest.raises(UsageError, match="--plugin acme: no arm of this sweep asks for it"):
        build(replace(measured, plugins=options.plugins))


def test_an_arm_is_bound_as_another_when_its_plugin_or_its_effort_changes(
    options: BenchOptions, tmp_path: Path
) -> None:
    def bound(effort: str | None = None) -> BoundArm:
        defaults = Defaults(agent=options.agent, model=options.model, effort=effort, plugins=places_of(options))
        found = read_arms(tmp_path / "arms.yaml")
        (arm,) = build_arms(("plugged",), found, defaults, BlobStore(tmp_path / "blobs"), None)
        return bind_arm(arm)

    before, harder = bound(), bound("high")
    assert before == bound()
    assert before.plugin is not None
    assert (before.name, before.effort) == ("plugged", None)
    assert before.plugin == BoundPlugin(name="acme", version="1.2.3", manifest_digest=before.plugin.manifest_digest)
    assert (harder.effort, harder.plugin) == ("high", before.plugin)
    (tmp_path / "acme/skills/other/SKILL.md").write_text("Work harder.\n")
    changed = bound()
    assert changed.plugin is not None
    assert changed.plugin.manifest_digest != before.plugin.manifest_digest
    assert len({before.digest, harder.digest, changed.digest}) == 3
