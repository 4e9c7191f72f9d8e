"""What is fixed about an evolution before its first step, and stands in `evolve.json` from then on."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.candidate import Candidate
from fairtrial.bench.tasks import binding_changes, read_task_file, select_tasks, task_binding
from fairtrial.errors import IntegrityError, UsageError
from fairtrial.evolve.material import SkillBase, read_skill_base
from fairtrial.evolve.values import EvolveOptions
from fairtrial.model.bench import REVIEW_RUNNER
from fairtrial.promote.promoter import Gate
from fairtrial.store.strict_json import JsonObject
from fairtrial.sweep.bench_inputs import open_inputs, pins_of, private_blobs
from fairtrial.sweep.bench_plan import BenchOptions, CandidateOptions
from fairtrial.sweep.resolve import changed_inputs
from fairtrial.workspace.overlay import Overlay, OverlayFile, candidate_of, incumbent_of, overlay_digest
from fairtrial.workspace.skill_layout import SkillLayout

__all__ = ["Bound", "DriftError", "bind_evolution", "parse_bound", "require_unchanged"]


class DriftError(UsageError):
    """Something that was fixed is not what it was: what is measured now would not be what was asked."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """All that is fixed.

    Attributes:
        options: What was asked.
        learning: Bindings of the learning tasks.
        holdout: Bindings of the holdout tasks, which only the final gate uses.
        held_out: Ids of all tasks that are held out, also of those that are too expensive for this evolution.
        inputs: Versions and digests of the arms, of what their sessions can see, of agents, plugins, contexts and of
            ourselves, by name.
        skills: Skills that the incumbents load and a candidate may change, by incumbent arm.
        base_commit: The project's commit.
        base_digests: Digest of every Markdown file of these skills and of its mirrors, by path.
    """

    options: EvolveOptions
    learning: tuple[dict[str, object], ...]
    holdout: tuple[dict[str, object], ...]
    held_out: tuple[str, ...]
    inputs: dict[str, str]
    skills: dict[str, tuple[str, ...]]
    base_commit: str
    base_digests: dict[str, str]

    @property
    def learning_ids(self) -> tuple[str, ...]:
        """Ids of the learning tasks."""
        return tuple(str(task["id"]) for task in self.learning)

    @property
    def holdout_ids(self) -> tuple[str, ...]:
        """Ids of the holdout tasks."""
        return tuple(str(task["id"]) for task in self.holdout)

    @property
    def reviews(self) -> bool:
        """The tasks are reviews: no arm does both, so all of them are, or none."""
        return any(task["oracle_runner"] == REVIEW_RUNNER for task in self.learning)

    @property
    def layout(self) -> SkillLayout:
        """Where skills lie, with no other skills than those that an incumbent loads."""
        names = tuple(sorted({name for loaded in self.skills.values() for name in loaded}))
        return replace(self.options.candidate.layout, skills=names)

    def as_json(self) -> dict[str, object]:
        """As `evolve.json` holds it."""
        value = asdict(self)
        return {**value, "options": _OPTIONS.dump_python(self.options, mode="json")}


_OPTIONS: Final = TypeAdapter(EvolveOptions)
_BOUND: Final = TypeAdapter(Bound)


def bind_evolution(
    options: EvolveOptions, scratch: Path, *, commits: Mapping[str, str] | None = None
) -> tuple[Bound, SkillBase]:
    """Resolve and fix everything, before any sandbox or model is touched.

    Args:
        options: What was asked.
        scratch: Where captured bytes lie meanwhile.
        commits: Commits that refs were resolved to before, by task id; None for resolving them now.

    Raises:
        UsageError: The request is wrong, or the project is not as it is committed.
        HostError: An agent cannot be used here, or git cannot read the project.
    """
    bench = options.bench
    _, parsed = read_task_file(Path(bench.tasks))
    held_out = tuple(task.id for task in parsed.tasks if task.holdout)
    if strangers := [name for name in bench.only if name in held_out]:
        raise UsageError(f"--only names {strangers[0]!r}, which is held out for the final gate; name learning tasks")
    if candidates := [arm for arm in bench.arms if incumbent_of(arm) is not None]:
        raise UsageError(f"--arms names {candidates[0]!r}; name the arms in use, candidates are added")
    learnable = bench.only or tuple(task.id for task in parsed.tasks if not task.holdout)
    if not learnable:
        raise UsageError(f"{bench.tasks}: every task is held out; leave some to learn from")
    chosen = select_tasks(parsed, only=learnable, include_expensive=bench.include_expensive).selected
    holdout = [task.id for task in parsed.tasks if task.holdout and (bench.include_expensive or not task.expensive)]
    if held_out and not holdout:
        raise UsageError(
            f"{bench.tasks}: all tasks that are held out are expensive, so there would be no final gate; give"
            " --include-expensive, or hold another one out"
        )
    if holdout and not os.access(Path(bench.tasks).parent, os.W_OK):
        raise UsageError(f"{Path(bench.tasks).parent}: cannot be written; uses of holdout tasks are noted there")
    with private_blobs(scratch) as blobs:
        asked = replace(bench, only=(*(task.id for task in chosen), *holdout), candidate=None)
        inputs = open_inputs(asked, blobs, commits=commits or {})
        skills = _changeable(options, inputs.loaded)
        names = {name for loaded in skills.values() for name in loaded}
        base = read_skill_base(Path(options.candidate.project), options.candidate.layout, names)
        _require_decidable(asked, options.candidate, base, blobs, commits or {})
    bindings = {task.id: task_binding(task) for task in inputs.tasks}
    bound = Bound(
        options=options,
        learning=tuple(bindings[task.id] for task in chosen),
        holdout=tuple(bindings[name] for name in holdout),
        held_out=held_out,
        inputs=pins_of(inputs),
        skills=skills,
        base_commit=base.commit,
        base_digests=dict(base.digests),
    )
    return bound, base


def _changeable(options: EvolveOptions, loaded: Mapping[str, frozenset[str]]) -> dict[str, tuple[str, ...]]:
    """The skills that a candidate may change, by the arm that loads them.

    Args:
        options: What was asked.
        loaded: The skills that each known arm loads.

    Raises:
        UsageError: An arm loads none, so that nothing which is proposed could change it; or an arm that is not named
            loads one as well.
    """
    asked, allowed = options.bench.arms, options.candidate.layout.skills
    skills = {arm: tuple(sorted(name for name in loaded[arm] if allowed is None or name in allowed)) for arm in asked}
    if idle := [arm for arm, names in skills.items() if not names]:
        raise UsageError(f"--arms: {idle[0]!r} loads no skill that a candidate may change; leave it out")
    changeable = {name for names in skills.values() for name in names}
    for arm, names in loaded.items():
        if arm not in asked and (shared := sorted(names & changeable)):
            raise UsageError(
                f"--arms: {arm!r} loads {shared[0]!r} as well, so a candidate must be measured there: name it too, or"
                " give the skill to arms of your own by --arms-file"
            )
    return skills


def _require_decidable(
    asked: BenchOptions,
    candidate: CandidateOptions,
    base: SkillBase,
    blobs: BlobStore,
    commits: Mapping[str, str],
) -> None:
    """Refuse tasks and arms on which the gate could never promote, whatever is proposed; nothing is spent by then.

    Raises:
        UsageError: It could not; the message says why.
    """
    changed = [
        OverlayFile(path=path, content=content + b"\n") for path, content in base.files.items() if path.endswith(".md")
    ]
    depth = len(candidate.layout.root.split("/"))
    skills = tuple(sorted({file.path.split("/")[depth] for file in changed}))
    everything = Overlay(files=tuple(changed), skills=skills, digest=overlay_digest(changed))
    pairs = tuple(name for arm in asked.arms for name in (arm, candidate_of(arm)))
    inputs = open_inputs(
        replace(asked, arms=pairs, candidate=candidate),
        blobs,
        commits=commits,
        frozen=Candidate(everything, candidate.layout),
    )
    Gate().bind(inputs)


def parse_bound(document: JsonObject) -> Bound:
    """Read what `evolve.json` fixed.

    Raises:
        IntegrityError: It does not have the form that this version writes.
    """
    try:
        text = TypeAdapter(object).dump_json(document["bound"])
        return _BOUND.validate_json(text, strict=True, extra="forbid")
    except (KeyError, ValidationError) as problem:
        raise IntegrityError(f"evolve.json: not an evolution of this version: {problem}") from problem


def require_unchanged(bound: Bound, scratch: Path) -> SkillBase:
    """Refuse to go on when tasks, arms, other inputs or skills are not what was bound; return the skills.

    Raises:
        DriftError: Something has changed; the message names it.
        HostError: git cannot read the project.
    """
    commits = {str(task["id"]): str(task["resolved_sha"]) for task in (*bound.learning, *bound.holdout)}
    try:
        now, base = bind_evolution(bound.options, scratch, commits=commits)
    except UsageError as problem:
        raise DriftError(f"since this evolution began something has changed: {problem}") from problem
    changed: list[str] = []
    for what, before, found in (
        ("learning tasks", bound.learning, now.learning),
        ("holdout tasks", bound.holdout, now.holdout),
    ):
        if [task["id"] for task in before] != [task["id"] for task in found]:
            changed.append(f"the {what} are others")
            continue
        for old, new in zip(before, found, strict=True):
            changed += binding_changes(old, _plain(new))
    if now.held_out != bound.held_out:
        changed.append("other tasks are held out")
    changed += changed_inputs(bound.inputs, now.inputs)
    if now.skills != bound.skills:
        changed.append("the arms load other skills")
    changed += [
        f"{path} is not what it was"
        for path in sorted(bound.base_digests.keys() | base.digests.keys())
        if bound.base_digests.get(path) != base.digests.get(path)
    ]
    if changed:
        raise DriftError(f"since this evolution began: {'; '.join(changed)}; begin a new one")
    return base


def _plain(binding: Mapping[str, object]) -> dict[str, object]:
    """A binding as JSON gives it back."""
    return TypeAdapter(dict[str, object]).validate_json(TypeAdapter(dict[str, object]).dump_json(dict(binding)))
