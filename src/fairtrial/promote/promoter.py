"""Who decides on a sweep's candidate: fixes everything before the first trial, and decides before the seal."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from fairtrial.bench.controls_note import Freshness
from fairtrial.errors import UsageError
from fairtrial.host.clock import utc_now
from fairtrial.host.git import git
from fairtrial.model.bench import Arm, Task
from fairtrial.promote.binding import (
    QUALITY_RULE,
    REVIEW_QUALITY_RULE,
    Binding,
    BoundPolicy,
    bind_arm,
    bind_candidate,
)
from fairtrial.promote.promotion import RunStatus, conclude
from fairtrial.promote.target import sha256_of
from fairtrial.store.layout import Results
from fairtrial.sweep.bench_inputs import BenchInputs
from fairtrial.sweep.candidate import FROZEN
from fairtrial.workspace.overlay import MAX_OVERLAY_BYTES, incumbent_of

__all__ = ["Gate"]


class Gate:
    """The gate as a sweep asks it: see `fairtrial.sweep.candidate.Promoter`."""

    def bind(self, inputs: BenchInputs) -> Mapping[str, object]:
        """Fix the candidate, its policy and what it would replace; refuse a sweep that could decide nothing.

        Raises:
            UsageError: No promotion could come of this sweep, whatever its trials show; the message says why.
            HostError: git cannot read the project.
        """
        options, candidate = inputs.options, inputs.candidate
        asked = options.candidate
        if candidate is None or asked is None:
            raise AssertionError("a sweep without a candidate has nothing to bind")
        policy = BoundPolicy(
            metric=options.metric,
            min_runs=asked.min_runs,
            min_improvement_pct=asked.min_improvement_pct,
            max_task_regression_pct=asked.max_task_regression_pct,
            quality_rule=REVIEW_QUALITY_RULE if any(task.is_review for task in inputs.tasks) else QUALITY_RULE,
            rehearsal=asked.rehearsal,
            provisional=asked.provisional,
        )
        binding = bind_candidate(
            candidate.overlay,
            layout=candidate.layout,
            project=Path(asked.project),
            asked_arms=options.arms,
            bound_arms=tuple(map(bind_arm, inputs.arms)),
            arms=inputs.loaded,
            benchmark_model=options.model,
            policy=policy,
            candidate_overlay=FROZEN,
            proposer_model=asked.proposer_model,
        )
        problems = [*_problems_of_request(inputs), *_problems_of_arms(inputs, binding)]
        if problems:
            raise UsageError(f"--candidate-overlay: nothing could be promoted: {'; '.join(problems)}")
        return binding.as_json()

    def conclude(self, results: Results, *, complete: bool) -> None:
        """Write `promotion.json`, if the sweep has a candidate.

        Raises:
            IntegrityError: A row cannot be believed.
        """
        conclude(results, now=utc_now(), status=RunStatus.COMPLETE if complete else RunStatus.ABORTED)


def _problems_of_request(inputs: BenchInputs) -> Iterator[str]:
    options = inputs.options
    if options.candidate is not None and options.runs < options.candidate.min_runs:
        yield f"--runs {options.runs} is less than --min-runs {options.candidate.min_runs}"
    for name, state in inputs.controls.items():
        if state != Freshness.HELD:
            yield f"the controls of task {name} are {state}: run `fairtrial check {options.tasks}` first"
    for arm in inputs.arms:
        if arm.model != options.model:
            yield f"arm {arm.name} runs with {arm.model}, not with --model {options.model}"


def _problems_of_arms(inputs: BenchInputs, binding: Binding) -> Iterator[str]:
    """Say where an arm in use does not load what the candidate would replace, or its form not the candidate."""
    if inputs.options.candidate is None:
        raise AssertionError("checked by bind")
    project = Path(inputs.options.candidate.project)
    by_name = {arm.name: arm for arm in inputs.arms}
    for name in binding.required_candidate_arms:
        incumbent = by_name[incumbent_of(name) or ""]
        placed = {skill.name for skill in incumbent.skills}
        skills_directory = inputs.skills_directories[incumbent.agent]
        yield from _problems_of_placed(inputs, incumbent, binding)
        touched = _touched(inputs, incumbent)
        in_tree = sorted(touched - placed)
        if in_tree and skills_directory not in (binding.layout.root, *binding.layout.mirrors):
            yield (
                f"agent {incumbent.agent} of arm {incumbent.name} looks for skills in {skills_directory}, which is no"
                f" place of the skill layout; place {in_tree[0]} by --skill or in the arms file"
            )
            continue
        for task in inputs.tasks if in_tree else ():
            yield from _problems_of_tree(task, binding, project, frozenset(in_tree))


def _touched(inputs: BenchInputs, incumbent: Arm) -> frozenset[str]:
    if inputs.candidate is None:
        raise AssertionError("checked by bind")
    return inputs.loaded[incumbent.name] & frozenset(inputs.candidate.overlay.skills)


def _problems_of_placed(inputs: BenchInputs, incumbent: Arm, binding: Binding) -> Iterator[str]:
    """A placed skill that the candidate changes must be the project's in every file, also in those that stay."""
    asked, candidate = inputs.options.candidate, inputs.candidate
    if asked is None or candidate is None:
        raise AssertionError("checked by bind")
    for skill in incumbent.skills:
        if skill.name not in candidate.overlay.skills:
            continue
        below = f"{binding.layout.root}/{skill.name}"
        files = {f"{below}/{blob.name}": blob.sha256 for blob in skill.files}
        committed = _committed(Path(asked.project), binding.base_commit, below)
        for path in sorted(files.keys() | committed.keys()):
            if files.get(path) != committed.get(path):
                yield (
                    f"arm {incumbent.name} is given another {path} than the project holds: name the project's"
                    f" own directory of {skill.name}, and commit what it holds"
                )


def _committed(repository: Path, commit: str, below: str, *, top: str = "./") -> dict[str, str]:
    """Digest of each file of a directory in a commit, by path; `top` is what that path is below, as git writes it."""
    full = () if top else ("--full-tree",)
    listed = git(["ls-tree", "-r", "-z", "--name-only", *full, commit, "--", below], cwd=repository)
    paths = [path.decode(errors="surrogateescape") for path in listed.split(b"\0")[:-1]]
    return {path: sha256_of(_blob(repository, f"{commit}:{top}{path}")) for path in paths}


def _problems_of_tree(task: Task, binding: Binding, project: Path, skills: frozenset[str]) -> Iterator[str]:
    """A skill found in the tree must be the project's in every file and mirror, also in those that stay."""
    places = (binding.layout.root, *binding.layout.mirrors)
    for below in (f"{place}/{skill}" for place in places for skill in sorted(skills)):
        held = _committed(project, binding.base_commit, below)
        shown = {
            path: digest
            for path, digest in _committed(Path(task.repository), task.commit, below, top="").items()
            if not any(f"{path}/".startswith(f"{hidden}/") for hidden in task.hidden)
        }
        for path in sorted(path for path in held.keys() | shown.keys() if held.get(path) != shown.get(path)):
            is_shown = path in shown
            yield (
                f"task {task.id} {'shows its agents another' if is_shown else 'does not show its agents'} {path}"
                f"{' than the project holds' if is_shown else ''}: choose a ref that has the project's, or place the"
                " skill by --skill or in the arms file"
            )


def _blob(repository: Path, name: str) -> bytes:
    """As much of a file of a commit as an overlay could hold, and a byte more."""
    return git(["cat-file", "blob", name], cwd=repository, keep_bytes=MAX_OVERLAY_BYTES + 1)
