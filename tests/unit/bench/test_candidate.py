"""Candidate forms of arms."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.bench.arms import Defaults, build_arm, capture_skill, loaded_skills, read_arms
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.candidate import Candidate, build_arms, candidate_arm
from fairtrial.errors import ConfigError, UsageError
from fairtrial.workspace.overlay import Overlay, OverlayFile, overlay_digest
from fairtrial.workspace.skill_layout import SkillLayout

LAYOUT = SkillLayout(root="skills", mirrors=("shipped",))


def candidate(*paths: str) -> Candidate:
    files = tuple(OverlayFile(path=f"skills/{path}", content=b"new") for path in paths)
    skills = tuple(sorted({path.split("/")[0] for path in paths}))
    return Candidate(Overlay(files=files, skills=skills, digest=overlay_digest(files)), LAYOUT)


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.fixture
def placed(tmp_path: Path) -> Defaults:
    """Both skills of the presets, from directories of a person's own."""
    for name in ("acme-plan", "acme-work"):
        (tmp_path / name / "more").mkdir(parents=True)
        (tmp_path / name / "SKILL.md").write_text("old")
        (tmp_path / name / "more" / "a.md").write_text("old")
    skills = {"plan": tmp_path / "acme-plan", "work": tmp_path / "acme-work"}
    return Defaults(agent="bash-agent", model="m-1", skills=skills)


def test_a_placed_skill_is_changed_and_the_rest_of_the_arm_is_the_incumbents(
    placed: Defaults, blobs: BlobStore, tmp_path: Path
) -> None:
    incumbent = build_arm(read_arms(None)["workflow"], placed, blobs)
    made = candidate_arm(incumbent, candidate("acme-plan/more/a.md"), blobs)
    plan, work = made.skills
    assert (made.name, made.overlay) == ("candidate_workflow", ())
    assert made.overlay_digest == candidate("acme-plan/more/a.md").overlay.digest
    assert work == incumbent.skills[1]
    assert [(blob.name, blobs.read(blob)) for blob in plan.files] == [("SKILL.md", b"old"), ("more/a.md", b"new")]
    assert replace(made, name="workflow", skills=incumbent.skills, overlay_digest=None, digest="") == replace(
        incumbent, digest=""
    )
    assert made.digest != incumbent.digest
    (tmp_path / "acme-plan" / "more" / "a.md").write_text("new")
    assert capture_skill("acme-plan", tmp_path / "acme-plan", blobs) == plan, "as if it had been captured so"


def test_a_skill_of_the_tree_is_changed_in_every_place(blobs: BlobStore) -> None:
    incumbent = build_arm(read_arms(None)["workflow_direct"], Defaults(agent="bash-agent", model="m-1"), blobs)
    made = candidate_arm(incumbent, candidate("work/SKILL.md"), blobs)
    assert [blob.name for blob in made.overlay] == ["skills/work/SKILL.md", "shipped/work/SKILL.md"]
    assert made.skills == ()


def test_a_skill_that_an_arm_does_not_load_is_no_file_of_its_tree(placed: Defaults, blobs: BlobStore) -> None:
    both = candidate("acme-plan/SKILL.md", "acme-work/SKILL.md")
    found = read_arms(None)
    for name in ("workflow", "workflow_direct"):
        made = candidate_arm(build_arm(found[name], placed, blobs), both, blobs)
        assert made.overlay == (), "all that it loads is placed"
    bare = replace(placed, skills={})
    more = candidate("plan/SKILL.md", "work/SKILL.md")
    made = candidate_arm(build_arm(found["workflow_direct"], bare, blobs), more, blobs)
    assert [blob.name for blob in made.overlay] == ["skills/work/SKILL.md", "shipped/work/SKILL.md"]


def test_another_candidate_is_another_arm(placed: Defaults, blobs: BlobStore) -> None:
    incumbent = build_arm(read_arms(None)["workflow"], placed, blobs)
    digests = {candidate_arm(incumbent, candidate(path), blobs).digest for path in ("acme-plan/a.md", "acme-work/a.md")}
    assert len(digests) == 2


def test_pairs_are_built_in_their_order(placed: Defaults, blobs: BlobStore) -> None:
    names = ("workflow_direct", "candidate_workflow_direct", "workflow", "candidate_workflow")
    built = build_arms(names, read_arms(None), placed, blobs, candidate("acme-work/SKILL.md"))
    assert tuple(arm.name for arm in built) == names
    with pytest.raises(UsageError, match="use --arms workflow,candidate_workflow,workflow_direct,candidate"):
        build_arms(names[2:], read_arms(None), placed, blobs, candidate("acme-work/SKILL.md"))
    with pytest.raises(UsageError, match="name its files by --candidate-overlay"):
        build_arms(names, read_arms(None), placed, blobs, None)


def test_a_persons_own_arm_has_a_candidate_form_and_is_demanded(
    placed: Defaults, blobs: BlobStore, tmp_path: Path
) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text("arms: {mine: {skills: {acme-plan: acme-plan}, phases: [{prompt: '{task}'}]}}\n")
    bare = replace(placed, skills={})
    found = read_arms(path)
    assert loaded_skills(found["mine"], bare) == {"acme-plan"}
    assert loaded_skills(found["workflow"], bare) == {"plan", "work"}
    assert loaded_skills(found["workflow"], placed) == {"acme-plan", "acme-work"}
    built = build_arms(("mine", "candidate_mine"), found, bare, blobs, candidate("acme-plan/SKILL.md"))
    assert [arm.name for arm in built] == ["mine", "candidate_mine"]


def test_the_name_of_a_candidate_form_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "arms.yaml"
    path.write_text("arms: {candidate_mine: {like: workflow}}\n")
    with pytest.raises(ConfigError, match="begins the names of candidate forms"):
        read_arms(path)
