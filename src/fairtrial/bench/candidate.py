"""Candidate forms of arms: the same phases, agent and model as the arm in use, with a candidate's skills in its place.

A skill that is placed for the agent is placed changed. A skill that the agent finds in the tree is changed there, when
the arm demands it: see `candidate_tree`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

from fairtrial.bench.arm_plugin import refuse_unused_plugins
from fairtrial.bench.arms import (
    Defaults,
    FoundArm,
    arm_digest,
    arms_named,
    build_arm,
    loaded_skills,
)
from fairtrial.bench.blobs import BlobStore, framed_digest
from fairtrial.model.bench import Arm, Blob, SkillFiles
from fairtrial.workspace.overlay import Overlay, candidate_of, require_pairs
from fairtrial.workspace.skill_layout import SkillLayout

__all__ = ["Candidate", "build_arms", "candidate_arm"]


class Candidate(NamedTuple):
    """A candidate, and where its project keeps skills."""

    overlay: Overlay
    layout: SkillLayout


def build_arms(
    names: Sequence[str],
    found: Mapping[str, FoundArm],
    defaults: Defaults,
    blobs: BlobStore,
    candidate: Candidate | None,
) -> tuple[Arm, ...]:
    """Build the named arms; with a candidate they must be exactly the pairs that it demands.

    Raises:
        UsageError: They are not, or an arm is unknown.
        ConfigError: A skill is not where it should be.
    """
    loaded = {name: loaded_skills(each, defaults) for name, each in found.items()}
    candidates = require_pairs(names, candidate.overlay if candidate else None, loaded)
    incumbents = [name for name in names if name not in candidates]
    named = arms_named(incumbents, found)
    refuse_unused_plugins((each.entry.plugin for each in named), defaults.plugins)
    built = [build_arm(each, defaults, blobs) for each in named]
    if candidate is None:
        return tuple(built)
    return tuple(arm for each in built for arm in (each, candidate_arm(each, candidate, blobs)))


def candidate_arm(incumbent: Arm, candidate: Candidate, blobs: BlobStore) -> Arm:
    """An arm's candidate form; its digest tells it from the arm."""
    overlay, layout = candidate
    placed = {skill.name for skill in incumbent.skills}
    demanded = {phase.skill for phase in incumbent.phases}
    here = [skill for skill in overlay.skills if skill in demanded and skill not in placed]
    files = [
        blobs.put(target, file.content)
        for file in overlay.files
        if any(file.path.startswith(f"{layout.root}/{skill}/") for skill in here)
        for target in layout.targets(file.path)
    ]
    arm = replace(
        incumbent,
        name=candidate_of(incumbent.name),
        skills=tuple(_changed(skill, overlay.of_skill(skill.name, layout), blobs) for skill in incumbent.skills),
        overlay=tuple(files),
        overlay_digest=overlay.digest,
        digest="",
    )
    return replace(arm, digest=arm_digest(arm))


def _changed(skill: SkillFiles, changes: Mapping[str, bytes], blobs: BlobStore) -> SkillFiles:
    if not changes:
        return skill
    files: dict[str, Blob] = {blob.name: blob for blob in skill.files}
    files |= {path: blobs.put(path, content) for path, content in changes.items()}
    ordered = [files[path] for path in sorted(files, key=PurePosixPath)]  # as `capture_skill` has them
    frames = [frame for blob in ordered for frame in (blob.name.encode(), blobs.read(blob))]
    return SkillFiles(name=skill.name, files=tuple(ordered), digest=framed_digest(frames))
