"""`promotion.json`: the decision on a candidate with all that it stands on, and the aggregates that give it again."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, cast

from pydantic import TypeAdapter, ValidationError

from fairtrial.errors import IntegrityError
from fairtrial.evidence.admit import CLOCK_SKEW, Admission, recorded_moment
from fairtrial.evidence.bench import ArmAggregate
from fairtrial.evidence.endings import is_void
from fairtrial.evidence.gate import decide, decide_with_voids_as_failures, decision_fields
from fairtrial.evidence.resample import FalsePromotion
from fairtrial.evidence.rows import Row
from fairtrial.evidence.verdict import Verdict, judge_candidate
from fairtrial.host.clock import rfc3339
from fairtrial.promote.binding import Binding, policy_of
from fairtrial.store.documents import parse_document, read_bytes, write_document
from fairtrial.store.layout import Results
from fairtrial.store.rows import read_rows
from fairtrial.store.sweep_file import SweepFile, read_sweep
from fairtrial.sweep.candidate import PROMOTION
from fairtrial.workspace.overlay import incumbent_of

__all__ = [
    "SCHEMA",
    "BoundDecision",
    "BoundSweep",
    "Promotion",
    "RunStatus",
    "conclude",
    "make_promotion",
    "problems_of",
    "read_binding",
    "read_promotion",
    "write_promotion",
]

SCHEMA: Final = "promotion/1"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
TASK_DIGESTS: Final = (
    "prompt_digest",
    "verify_digest",
    "oracle_digest",
    "oracle_command_digest",
    "oracle_manifest_digest",
    "sandbox_dependency_content_digest",
    "sandbox_dependency_manifest_digest",
)


class RunStatus(StrEnum):
    """Whether the sweep came to its end."""

    COMPLETE = "complete"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSweep:
    """The sweep that a promotion stands on.

    Attributes:
        id: Its id.
        sweep_json_sha256: Digest of `sweep.json`, in hex.
    """

    id: str
    sweep_json_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundDecision:
    """The decision on one candidate arm.

    Attributes:
        incumbent_arm: The arm in use.
        candidate_arm: The arm that would replace it.
        promotable: It wins both ways and nothing forbids using the rows.
        decision: The fields of the decision, as `gate --json` prints them.
        as_failures: The same with each superseded void as a failed run.
        inadmissible: Reasons why the rows may not be used.
        false_promotion: How often the policy promotes the incumbent itself.
        aggregates: What the decision was computed from, by task and arm.
    """

    incumbent_arm: str
    candidate_arm: str
    promotable: bool
    decision: dict[str, object]
    as_failures: dict[str, object]
    inadmissible: tuple[dict[str, str], ...]
    false_promotion: FalsePromotion
    aggregates: dict[str, dict[str, ArmAggregate]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """What `promotion.json` holds.

    Attributes:
        schema: `promotion/1`.
        generated_at: When.
        evidence_expires_at: After this it may not be applied: so long after the oldest row that counts.
        run_status: Whether the sweep came to its end; an aborted one is never promotable.
        promotable: Every required arm is promotable.
        rehearsal: A script may have played the model: it is good for trying `apply` out, and for nothing else.
        sweep: What it stands on.
        binding: What was fixed before.
        selected_tasks: The tasks' frozen identities.
        decisions: One for each required arm, in order.
    """

    schema: str
    generated_at: str
    evidence_expires_at: str
    run_status: RunStatus
    promotable: bool
    rehearsal: bool
    sweep: BoundSweep
    binding: Binding
    selected_tasks: tuple[dict[str, object], ...]
    decisions: tuple[BoundDecision, ...]


_PROMOTION: Final = TypeAdapter(Promotion)
_BINDING: Final = TypeAdapter(Binding)


def read_binding(sweep: SweepFile) -> Binding | None:
    """Give what a sweep fixed about its candidate; None for a sweep without one.

    Raises:
        IntegrityError: It is not a binding of this version.
    """
    if sweep.document.get(PROMOTION) is None:
        return None
    try:
        text = TypeAdapter(object).dump_json(sweep.document[PROMOTION])
        return _BINDING.validate_json(text, strict=True, extra="forbid")
    except ValidationError as problem:
        raise IntegrityError(f"sweep {sweep.sweep}: its candidate cannot be read ({_first(problem)})") from problem


def make_promotion(
    sweep: SweepFile,
    binding: Binding,
    read: Callable[[], Iterable[Row]],
    *,
    now: datetime,
    status: RunStatus,
    n_uncounted: int,
) -> Promotion:
    """Decide on every required arm; also after an outage, then never promotable.

    Args:
        sweep: The sweep, which is about to be sealed.
        binding: What it fixed.
        read: Gives its rows.
        now: The moment.
        status: Whether it came to its end.
        n_uncounted: Planned trials without a counting attempt.

    Raises:
        UsageError: The rows are not of the agent lane.
        IntegrityError: A row cannot be believed.
    """
    decisions = tuple(
        _bind(_judge(binding, arm, read, now=now, n_uncounted=n_uncounted)) for arm in binding.required_candidate_arms
    )
    return Promotion(
        schema=SCHEMA,
        generated_at=rfc3339(now),
        evidence_expires_at=rfc3339(_expiry(binding, read, now=now)),
        run_status=status,
        promotable=status is RunStatus.COMPLETE and all(decision.promotable for decision in decisions),
        rehearsal=binding.policy.rehearsal,
        sweep=BoundSweep(id=sweep.sweep, sweep_json_sha256=sweep.digest),
        binding=binding,
        selected_tasks=tuple(_tasks(sweep)),
        decisions=decisions,
    )


def conclude(results: Results, *, now: datetime, status: RunStatus) -> Promotion | None:
    """Write the promotion of a sweep that has ended and is about to be sealed; None for one without a candidate.

    Args:
        results: Its directory.
        now: The moment.
        status: Whether it came to its end.

    Raises:
        IntegrityError: A row cannot be believed, or the binding not be read.
        OSError: The file system refuses.
    """
    sweep = read_sweep(results)
    binding = read_binding(sweep)
    if binding is None:
        return None

    def read() -> Iterator[Row]:
        return read_rows(results.results_jsonl, sweep_id=sweep.sweep)

    counting = {row.get("key") for row in read() if not is_void(row)}
    n_uncounted = len(sweep.plan_keys) - len(counting)
    promotion = make_promotion(sweep, binding, read, now=now, status=status, n_uncounted=n_uncounted)
    write_promotion(results, promotion)
    return promotion


def write_promotion(results: Results, promotion: Promotion) -> None:
    """Write `promotion.json` durably, before the directory is sealed.

    Raises:
        OSError: The file system refuses.
    """
    write_document(results.promotion_json, _PROMOTION.dump_python(promotion, mode="json"))


def read_promotion(results: Results) -> Promotion:
    """Read `promotion.json`.

    Raises:
        FileNotFoundError: There is none.
        IntegrityError: It is damaged, of another schema, or of another shape.
    """
    data = read_bytes(results.promotion_json)
    parse_document(results.promotion_json, data, schema=SCHEMA)
    try:
        return _PROMOTION.validate_json(data, strict=True, extra="forbid")
    except ValidationError as problem:
        raise IntegrityError(f"{results.promotion_json}: {_first(problem)}; it is not what was written") from problem


def problems_of(
    promotion: Promotion,
    sweep: SweepFile,
    binding: Binding,
    read: Callable[[], Iterable[Row]],
    *,
    now: datetime,
    n_uncounted: int,
) -> tuple[str, ...]:
    """Say why a promotion may not be applied; nothing for one that may.

    Every decision is computed again, from the aggregates that it holds and from the rows.

    Args:
        promotion: What `promotion.json` says.
        sweep: The sweep that it lies beside, audited and sealed.
        binding: What that sweep fixed.
        read: Gives its rows.
        now: The moment.
        n_uncounted: Planned trials without a counting attempt.
    """
    return (
        *_problems_of_time(promotion, _expiry(binding, read, now=now), now),
        *_problems_of_binding(promotion, sweep, binding),
        *_problems_of_tasks(promotion.selected_tasks),
        *_problems_of_decisions(promotion, read, now=now, n_uncounted=n_uncounted),
    )


def _expiry(binding: Binding, read: Callable[[], Iterable[Row]], *, now: datetime) -> datetime:
    """When the evidence expires: by its oldest counting row, which in a resumed sweep may be far older than its end."""
    arms = {arm for candidate in binding.required_candidate_arms for arm in (candidate, incumbent_of(candidate))}
    counting = (row for row in read() if row.get("arm") in arms and not is_void(row))
    moments = [moment for row in counting if (moment := recorded_moment(row)) is not None]
    return min([now, *moments]) + timedelta(days=binding.policy.max_age_days)


def _problems_of_time(promotion: Promotion, latest: datetime, now: datetime) -> Iterator[str]:
    moments: list[datetime] = []
    for name, text in (
        ("generated_at", promotion.generated_at),
        ("evidence_expires_at", promotion.evidence_expires_at),
    ):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            yield f"{name} is no moment"
            return
        if moment.tzinfo is None:
            yield f"{name} names no time zone"
            return
        moments.append(moment.astimezone(UTC))
    generated, expires = moments
    if generated > now + CLOCK_SKEW:
        yield "it was generated later than now: a clock is wrong"
    if expires <= generated:
        yield "it expires before it was generated"
    if expires - generated > timedelta(days=promotion.binding.policy.max_age_days):
        yield f"it expires later than {promotion.binding.policy.max_age_days} days after it was generated"
    elif expires > latest:
        yield f"it expires later than {promotion.binding.policy.max_age_days} days after its oldest row"
    if expires <= now:
        yield f"its evidence expired on {promotion.evidence_expires_at}; measure again"


def _problems_of_binding(promotion: Promotion, sweep: SweepFile, binding: Binding) -> Iterator[str]:
    if promotion.sweep != BoundSweep(id=sweep.sweep, sweep_json_sha256=sweep.digest):
        yield "it stands on another sweep"
    bound, found = promotion.binding.as_json(), binding.as_json()
    for name in bound:
        if bound[name] != found[name]:
            yield f"its {name} is not what the sweep fixed"
    if list(promotion.selected_tasks) != _tasks(sweep):
        yield "its tasks are not the sweep's"
    if promotion.rehearsal != binding.policy.rehearsal:
        yield "what it says of being a rehearsal is not what the sweep fixed"
    if promotion.run_status is not RunStatus.COMPLETE:
        yield "its sweep was broken off"


def _problems_of_tasks(tasks: Sequence[Mapping[str, object]]) -> Iterator[str]:
    if not tasks:
        yield "it names no task"
    for task in tasks:
        name = task.get("id")
        for digest in TASK_DIGESTS:
            if not _is_digest(task.get(digest)):
                yield f"task {name}: {digest} is no digest"
        files = task.get("oracle_files")
        if not isinstance(files, list) or not files:
            yield f"task {name}: names no file of its oracle"
            continue
        for file in cast("list[object]", files):
            if not _is_oracle_file(file):
                yield f"task {name}: a file of its oracle is not pinned"


def _is_oracle_file(file: object) -> bool:
    if not isinstance(file, dict):
        return False
    fields = cast("Mapping[str, object]", file)
    target, size = fields.get("target"), fields.get("size")
    is_named = isinstance(target, str) and bool(target)
    return is_named and _is_digest(fields.get("sha256")) and type(size) is int and size >= 0


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _problems_of_decisions(
    promotion: Promotion, read: Callable[[], Iterable[Row]], *, now: datetime, n_uncounted: int
) -> Iterator[str]:
    binding = promotion.binding
    if tuple(each.candidate_arm for each in promotion.decisions) != binding.required_candidate_arms:
        yield "its decisions are not those on the required arms, each once and in order"
        return
    if not promotion.decisions:
        yield "it decides nothing"
    for bound in promotion.decisions:
        arm = bound.candidate_arm
        policy = policy_of(binding.policy, candidate_arm=arm, model=binding.benchmark_model)
        if bound.incumbent_arm != policy.incumbent_arm:
            yield f"{arm}: its incumbent is {policy.incumbent_arm}, not {bound.incumbent_arm}"
        problems = list(_problems_of_aggregates(bound))
        yield from problems
        if problems:
            continue
        again = decide(bound.aggregates, policy)
        both = (decision_fields(again), decision_fields(decide_with_voids_as_failures(again, bound.aggregates, policy)))
        if (bound.decision, bound.as_failures) != tuple(map(_plain, both)):
            yield f"{arm}: its aggregates give another decision than it holds"
        verdict = _judge(binding, arm, read, now=now, n_uncounted=n_uncounted)
        if verdict.aggregates != bound.aggregates:
            yield f"{arm}: its aggregates are not those of the rows"
        if verdict.false_promotion != bound.false_promotion:
            yield f"{arm}: its rate of false promotion is not that of the rows"
        overlays = {row.get("candidate_overlay_digest") for row in read() if row.get("arm") == arm}
        if overlays != {binding.candidate_overlay_digest}:
            yield f"{arm}: its rows were not measured with this candidate"
        yield from _problems_of_arms(binding, (bound.incumbent_arm, arm), read)
        if not verdict.promotable or not bound.promotable:
            reasons = [reason.detail for reason in verdict.inadmissible] or list(verdict.as_failures.reasons)
            yield f"{arm}: is not promotable: {' '.join(reasons)}"
    if promotion.promotable != all(each.promotable for each in promotion.decisions):
        yield "what it says of being promotable is not what its decisions say"


def _problems_of_arms(binding: Binding, names: Sequence[str], read: Callable[[], Iterable[Row]]) -> Iterator[str]:
    """Rows of another arm than was fixed: of another plugin, effort, prompt or skill under the same name."""
    digests = {arm.name: arm.digest for arm in binding.arms}
    for name in names:
        if {row.get("arm_digest") for row in read() if row.get("arm") == name} != {digests.get(name)}:
            yield f"{name}: its rows were not measured with the arm that the sweep fixed"


def _problems_of_aggregates(bound: BoundDecision) -> Iterator[str]:
    for task, arms in bound.aggregates.items():
        for arm, found in arms.items():
            where = f"{bound.candidate_arm}: task {task}: {arm}"
            figures = [*found.medians.values(), *found.spent.values()]
            if any(figure is not None and figure < 0 for figure in figures):
                yield f"{where}: a figure is negative"
            counts = (found.resolved, found.valid_runs, found.excluded_runs, found.voided_attempts)
            kinds = sum(found.error_kinds.values())
            if (
                min(counts) < 0
                or found.valid_runs + found.excluded_runs != found.runs
                or found.resolved > found.valid_runs
                or found.resolved + kinds > found.runs
            ):
                yield f"{where}: its counts do not add up"


def _judge(
    binding: Binding, arm: str, read: Callable[[], Iterable[Row]], *, now: datetime, n_uncounted: int
) -> Verdict:
    policy = policy_of(binding.policy, candidate_arm=arm, model=binding.benchmark_model)
    admission = Admission(
        sealed=True,
        n_uncounted=n_uncounted,
        now=now,
        max_age_days=binding.policy.max_age_days,
        rehearsal=binding.policy.rehearsal,
    )
    return judge_candidate(read, policy, admission, seed=binding.policy.seed, n_resamples=binding.policy.n_resamples)


def _bind(verdict: Verdict) -> BoundDecision:
    return BoundDecision(
        incumbent_arm=verdict.policy.incumbent_arm,
        candidate_arm=verdict.policy.candidate_arm,
        promotable=verdict.promotable,
        decision=_plain(decision_fields(verdict.decision)),
        as_failures=_plain(decision_fields(verdict.as_failures)),
        inadmissible=tuple({"kind": str(each.kind), "detail": each.detail} for each in verdict.inadmissible),
        false_promotion=verdict.false_promotion,
        aggregates={task: dict(arms) for task, arms in verdict.aggregates.items()},
    )


def _plain(fields: Mapping[str, object]) -> dict[str, object]:
    """The same as JSON gives it back."""
    return {name: str(value) if isinstance(value, StrEnum) else value for name, value in fields.items()}


def _tasks(sweep: SweepFile) -> list[dict[str, object]]:
    tasks = sweep.document.get("tasks")
    if not isinstance(tasks, list):
        return []
    return [dict(cast("Mapping[str, object]", task)) for task in cast("list[object]", tasks) if isinstance(task, dict)]


def _first(problem: ValidationError) -> str:
    detail = problem.errors(include_url=False)[0]
    return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
