"""What is fixed about a candidate before its sweep spends anything, and stands in `sweep.json` from then on.

The rows are chained to that file, so nothing of this can be chosen after the results are known: not the policy, not the
candidate's bytes, not the files that it was measured against.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from fairtrial.errors import UsageError
from fairtrial.evidence.admit import MAX_AGE_DAYS
from fairtrial.evidence.gate import METRIC_WARNINGS, GatePolicy
from fairtrial.evidence.resample import MIN_RESAMPLES
from fairtrial.model.bench import Arm
from fairtrial.promote.base import read_base
from fairtrial.workspace.overlay import Overlay, incumbent_of, require_pairs
from fairtrial.workspace.skill_layout import SkillLayout

__all__ = [
    "QUALITY_RULE",
    "REVIEW_QUALITY_RULE",
    "Binding",
    "BoundArm",
    "BoundFile",
    "BoundPlugin",
    "BoundPolicy",
    "Origin",
    "bind_arm",
    "bind_candidate",
    "policy_of",
]

QUALITY_RULE: Final = (
    "every valid run of the candidate resolves, in each task where the incumbent resolves at least once or a run of"
    " either arm ended skill-not-invoked"
)
REVIEW_QUALITY_RULE: Final = (
    "the candidate's verdict is right in every valid run, and neither blocker recall nor weighted F1 drops in a task,"
    " nor does it lose a clean control; cost is not asked for"
)


class Origin(StrEnum):
    """Who wrote a candidate."""

    MANUAL = "manual-overlay"
    PROPOSER = "model-proposer"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundFile:
    """One file of a candidate.

    Attributes:
        path: Its canonical place below the project.
        sha256: Digest of its bytes, in hex.
        size: Its length in bytes.
    """

    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPlugin:
    """The plugin of the agent that an arm works with.

    Attributes:
        name: What its manifest calls it.
        version: Its exact version.
        manifest_digest: Over path, digest, size and executable bit of each of its files, in hex.
    """

    name: str
    version: str
    manifest_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundArm:
    """An arm that is measured.

    Attributes:
        name: Its name.
        digest: Over all that it is, in hex; every row of it says the same.
        effort: How hard its model thinks, in the agent's word, or None.
        plugin: The plugin that it works with, or None.
    """

    name: str
    digest: str
    effort: str | None = None
    plugin: BoundPlugin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPolicy:
    """The gate's policy, but for the arms.

    Attributes:
        metric: What is to get less.
        metric_warning: What the metric leaves out, or None.
        min_runs: Valid runs that each side of each task needs.
        min_improvement_pct: Median improvement from which a candidate is promoted.
        max_task_regression_pct: How much worse the metric of a task may get.
        quality_rule: The quality floor, in words: `QUALITY_RULE`, or `REVIEW_QUALITY_RULE` for arms that review.
        max_age_days: Days after which the evidence is too old.
        seed: Of the resamples.
        n_resamples: How many.
        rehearsal: A script may play the model; then the promotion is a rehearsal, and says so.
        provisional: Another sweep, the final gate, decides after this one; nothing of this one is applied.
    """

    metric: str = "cost_usd"
    metric_warning: str | None = None
    min_runs: int = 3
    min_improvement_pct: float = 5.0
    max_task_regression_pct: float = 20.0
    quality_rule: str = QUALITY_RULE
    max_age_days: int = MAX_AGE_DAYS
    seed: int = 20260908
    n_resamples: int = MIN_RESAMPLES
    rehearsal: bool = False
    provisional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Everything that is fixed about a candidate before its sweep.

    Attributes:
        benchmark_model: The model that the arms run with.
        proposer_model: The model that wrote the candidate, or None.
        candidate_origin: Who wrote it.
        candidate_overlay: Where its frozen bytes lie, below the results directory.
        candidate_overlay_digest: SHA-256 over path and bytes of each file, in hex.
        candidate_files: Its files, by path.
        layout: Where the project keeps skills.
        base_commit: The project's commit.
        target_base_digests: Of every file that it would replace, mirrors included, by path: what it holds now.
        required_candidate_arms: The candidate arms that must be promoted, in order.
        arms: All arms of its sweep, in order: each candidate arm behind its incumbent.
        policy: By which they are judged.
    """

    benchmark_model: str
    proposer_model: str | None
    candidate_origin: Origin
    candidate_overlay: str
    candidate_overlay_digest: str
    candidate_files: tuple[BoundFile, ...]
    layout: SkillLayout
    base_commit: str
    target_base_digests: dict[str, str]
    required_candidate_arms: tuple[str, ...]
    arms: tuple[BoundArm, ...]
    policy: BoundPolicy

    def as_json(self) -> dict[str, object]:
        """As `sweep.json` and `promotion.json` hold it."""
        return asdict(self)


def bind_candidate(
    overlay: Overlay,
    *,
    layout: SkillLayout,
    project: Path,
    asked_arms: Sequence[str],
    bound_arms: Sequence[BoundArm],
    arms: Mapping[str, Iterable[str]],
    benchmark_model: str,
    policy: BoundPolicy,
    candidate_overlay: str = "candidate",
    proposer_model: str | None = None,
) -> Binding:
    """Fix everything about a candidate, before any sandbox or model is touched.

    Args:
        overlay: The candidate.
        layout: Where the project keeps skills.
        project: Top of the project's work tree.
        asked_arms: What `--arms` names.
        bound_arms: The arms of these names as they will be measured.
        arms: The skills that each incumbent in use loads, by its name.
        benchmark_model: The model that the arms run with.
        policy: By which the candidate is judged.
        candidate_overlay: Where its frozen bytes lie, below the results directory.
        proposer_model: The model that wrote it; None for a person.

    Raises:
        UsageError: The arms are not exact pairs, the policy means nothing, or the project is not as committed.
        HostError: git cannot read the project.
    """
    required = require_pairs(asked_arms, overlay, arms)
    targets = [target for file in overlay.files for target in layout.targets(file.path)]
    commit, digests = read_base(project, targets)
    unequal = [
        target
        for file in overlay.files
        for target in layout.targets(file.path)
        if digests[target] != digests[file.path]
    ]
    if unequal:
        raise UsageError(
            f"{project}: {', '.join(unequal)}: not equal to its canonical file; make the mirrors equal first"
        )
    if all(digests[file.path] == file.sha256 for file in overlay.files):
        raise UsageError(f"--candidate-overlay makes no difference: {project} holds the same bytes; change a skill")
    policy = replace(policy, metric_warning=METRIC_WARNINGS.get(policy.metric))
    for arm in required:
        policy_of(policy, candidate_arm=arm, model=benchmark_model)
    return Binding(
        benchmark_model=benchmark_model,
        proposer_model=proposer_model,
        candidate_origin=Origin.MANUAL if proposer_model is None else Origin.PROPOSER,
        candidate_overlay=candidate_overlay,
        candidate_overlay_digest=overlay.digest,
        candidate_files=tuple(
            BoundFile(path=file.path, sha256=file.sha256, size=len(file.content)) for file in overlay.files
        ),
        layout=layout,
        base_commit=commit,
        target_base_digests=digests,
        required_candidate_arms=required,
        arms=tuple(bound_arms),
        policy=policy,
    )


def bind_arm(arm: Arm) -> BoundArm:
    """What is fixed about an arm; pure."""
    plugin = arm.plugin
    return BoundArm(
        name=arm.name,
        digest=arm.digest,
        effort=arm.effort,
        plugin=None
        if plugin is None
        else BoundPlugin(name=plugin.name, version=plugin.version, manifest_digest=plugin.manifest_digest),
    )


def policy_of(policy: BoundPolicy, *, candidate_arm: str, model: str) -> GatePolicy:
    """The gate's policy for one candidate arm.

    Raises:
        UsageError: Nothing would mean anything under it.
    """
    return GatePolicy(
        incumbent_arm=incumbent_of(candidate_arm) or "",
        candidate_arm=candidate_arm,
        model=model,
        metric=policy.metric,
        min_runs=policy.min_runs,
        min_improvement_pct=policy.min_improvement_pct,
        max_task_regression_pct=policy.max_task_regression_pct,
    )
