"""Whether rows may be used to replace an arm: where they come from, not what they say.

`decide` believes its numbers. This module says why they may not be believed, or not be compared: nobody sealed them,
something could reach out of its sandbox, two models took part, a script played the model, nobody saw the task's oracle
fail what it must. A reason here never changes the decision; it makes it useless. A field that a row lacks is a reason
like a wrong one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, cast

from fairtrial.evidence.endings import is_void
from fairtrial.evidence.gate import GatePolicy
from fairtrial.evidence.rows import Row, text

__all__ = [
    "CLOCK_SKEW",
    "MAX_AGE_DAYS",
    "REQUIRED_LIMITS",
    "Admission",
    "Reason",
    "ReasonKind",
    "admit",
    "recorded_moment",
]

MAX_AGE_DAYS: Final = 90
CLOCK_SKEW: Final = timedelta(minutes=5)
REQUIRED_LIMITS: Final = ("processes", "memory", "cpu", "disk", "inodes", "files", "output", "wall")
UNCONTAINED: Final = "none"
CONTROLS_HELD: Final = "held"
OTHER_ANSWERED: Final = ": other model"
"""How the flag ends that a phase leaves in `integrity_flags` when a model answered for another."""
PROVEN_ISOLATIONS: Final = frozenset({"shared", "process"})
MAX_SHOWN: Final = 4
SAME_EVERYWHERE: Final = ("agent", "agent_version", "effort", "scripted_model", "sandbox_backend", "source")
SAME_IN_A_TASK: Final = (
    "task_base_sha",
    "sanitized_task_sha",
    "task_prompt_digest",
    "setup_digest",
    "verify_digest",
    "oracle_digest",
    "oracle_command_digest",
    "oracle_manifest_digest",
    "toolchain_digests",
)
SAME_IN_AN_ARM: Final = ("arm_digest", "candidate_overlay_digest")
ENVIRONMENT: Final = "environment_undeclared"
"""What a session saw of its surroundings that no arm asked for, by labels under which all must have seen the same."""
SETUP_LAYER: Final = "setup_layer_digest"
"""All arms of a block begin with one set-up; a sweep that was resumed ran it again, and need not have got the same."""
MAY_BE_NULL: Final = ("effort", "candidate_overlay_digest", "toolchain_digests", SETUP_LAYER)


class ReasonKind(StrEnum):
    """Every reason why rows may not be used."""

    UNSEALED = "unsealed"
    INCOMPLETE = "incomplete"
    NO_ROWS = "no-rows"
    UNCONTAINED = "uncontained"
    UNENFORCED_LIMIT = "unenforced-limit"
    UNPROVEN_ISOLATION = "unproven-isolation"
    UNMETERED = "unmetered"
    LOWER_BOUND = "lower-bound"
    SCRIPTED = "scripted"
    UNCONTROLLED = "uncontrolled"
    OTHER_MODEL = "other-model"
    MIXED_AGENT = "mixed-agent"
    MIXED_SANDBOX = "mixed-sandbox"
    MIXED_HARNESS = "mixed-harness"
    MIXED_MACHINE = "mixed-machine"
    MIXED_PRICES = "mixed-prices"
    MIXED_TASK = "mixed-task"
    MIXED_SETUP = "mixed-setup"
    MIXED_ARM = "mixed-arm"
    MIXED_ENVIRONMENT = "mixed-environment"
    TOO_OLD = "too-old"
    FROM_THE_FUTURE = "from-the-future"
    UNDATED = "undated"
    OTHER_POLICY = "other-policy"
    PROVISIONAL = "provisional"


KINDS: Final = {
    "agent": ReasonKind.MIXED_AGENT,
    "agent_version": ReasonKind.MIXED_AGENT,
    "effort": ReasonKind.MIXED_AGENT,
    "scripted_model": ReasonKind.MIXED_AGENT,
    "sandbox_backend": ReasonKind.MIXED_SANDBOX,
    "source": ReasonKind.MIXED_HARNESS,
    "host": ReasonKind.MIXED_MACHINE,
    "price_table": ReasonKind.MIXED_PRICES,
    SETUP_LAYER: ReasonKind.MIXED_SETUP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why rows may not be used.

    Attributes:
        kind: What is wrong.
        detail: A sentence for people: where, and what was found.
    """

    kind: ReasonKind
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What is known of a file of rows beside the rows, and the moment at which they are to be used.

    Attributes:
        sealed: They come from a directory that an audit found intact and sealed.
        n_uncounted: Planned trials without a counting attempt; None for a bare file, which has no plan.
        now: The present moment.
        max_age_days: Days after which a row is too old.
        rehearsal: Rows for which a script played the model may be used, to try the machinery out; see decision 0008.
        other_policy: What the sweep fixed before its first trial and the policy has otherwise; empty where it has not.
        provisional: The sweep fixed that another one, the final gate, decides after it.
    """

    sealed: bool
    n_uncounted: int | None
    now: datetime
    max_age_days: int = MAX_AGE_DAYS
    rehearsal: bool = False
    other_policy: tuple[str, ...] = ()
    provisional: bool = False


@dataclass(slots=True)
class _Seen:
    """The values of one field, in the order in which they came; None for a missing one."""

    values: dict[str | None, None] = field(default_factory=dict[str | None, None])

    def add(self, value: str | None) -> None:
        self.values[value] = None

    def problem(self, *, nullable: bool) -> str | None:
        shown = ["nothing" if value is None else f"{value:.80}" for value in self.values]
        if len(shown) > 1:
            more = f" and {len(shown) - MAX_SHOWN} more" if len(shown) > MAX_SHOWN else ""
            return f"has {len(shown)} values: {', '.join(shown[:MAX_SHOWN])}{more}"
        return "is not recorded" if None in self.values and not nullable else None


@dataclass(slots=True)
class _Fold:
    """What is kept of rows while they go by.

    Attributes:
        policy: The arms and the model that matter.
        seen: Values by scope (task, block, arm, or ""), then field.
        counted: How many rows have each defect, and the first of them.
        environments: By task and label, what sessions saw that no arm asked for.
        others: Models that answered for themselves and that the arm does not name, by arm.
        n_rows: Rows of either arm that are no void.
    """

    policy: GatePolicy
    seen: dict[tuple[str, str], _Seen] = field(default_factory=dict[tuple[str, str], _Seen])
    counted: dict[tuple[ReasonKind, str], int] = field(default_factory=dict[tuple[ReasonKind, str], int])
    environments: dict[tuple[str, str], set[str]] = field(default_factory=dict[tuple[str, str], set[str]])
    others: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    n_rows: int = 0

    def note(self, scope: str, name: str, row: Row) -> None:
        value = row.get(name)
        shown = value if isinstance(value, str) else None if value is None else str(value)
        self.seen.setdefault((scope, name), _Seen()).add(shown)

    def count(self, kind: ReasonKind, what: str) -> None:
        self.counted[kind, what] = self.counted.get((kind, what), 0) + 1


def admit(rows: Iterable[Row], policy: GatePolicy, admission: Admission) -> tuple[Reason, ...]:
    """List the reasons why the rows of the policy's two arms may not be used; none for rows that may.

    Void rows are no evidence and are not looked at, nor are rows of other arms.

    Raises:
        UsageError: A row's `error_kind` is neither text nor null.
    """
    fold = _Fold(policy=policy)
    for row in rows:
        if row.get("arm") in (policy.incumbent_arm, policy.candidate_arm) and not is_void(row):
            _look_at(row, fold, admission)
    return (*_of_the_file(fold, admission), *_counted(fold), *_others(fold), *_mixed(fold), *_surrounded(fold))


def _look_at(row: Row, fold: _Fold, admission: Admission) -> None:
    fold.n_rows += 1
    policy = fold.policy
    _look_at_its_containment(row, fold)
    _look_at_its_truth(row, fold, admission)
    _look_at_its_model(row, fold)
    for name in SAME_EVERYWHERE:
        fold.note("", name, row)
    match policy.metric:
        case "cost_usd":
            fold.note("", "price_table", row)
            _look_at_its_usage(row, fold)
        case "output_tokens":
            _look_at_its_usage(row, fold)
        case "duration_s":
            fold.note("", "host", row)
        case _:
            pass
    for name in SAME_IN_A_TASK:
        fold.note(f"task {row.get('task')}", name, row)
    if SETUP_LAYER in row:
        fold.note(f"block {row.get('block')}", SETUP_LAYER, row)
    else:
        fold.count(ReasonKind.MIXED_SETUP, f"without {SETUP_LAYER}: what they began with is not known")
    for name in SAME_IN_AN_ARM:
        fold.note(f"arm {row.get('arm')}", name, row)
    _look_at_its_surroundings(row, fold)
    _look_at_its_age(row, fold, admission)


def _look_at_its_surroundings(row: Row, fold: _Fold) -> None:
    seen: object = row.get(ENVIRONMENT)
    if not isinstance(seen, dict):
        fold.count(ReasonKind.MIXED_ENVIRONMENT, f"without {ENVIRONMENT}: what their sessions saw is not known")
        return
    for label, value in cast("dict[str, object]", seen).items():
        fold.environments.setdefault((str(row.get("task")), label), set()).add(repr(value))


def _look_at_its_containment(row: Row, fold: _Fold) -> None:
    if row.get("sandboxed") is not True or row.get("sandbox_backend") in (None, UNCONTAINED):
        fold.count(ReasonKind.UNCONTAINED, "not run in a sandbox")
    enforced = row.get("limits_enforced")
    for limit in REQUIRED_LIMITS:
        if not isinstance(enforced, dict) or limit not in enforced:
            fold.count(ReasonKind.UNENFORCED_LIMIT, f"without an enforced limit of {limit}")


def _look_at_its_truth(row: Row, fold: _Fold, admission: Admission) -> None:
    if row.get("isolation") not in PROVEN_ISOLATIONS:
        shown = row.get("isolation")
        fold.count(ReasonKind.UNPROVEN_ISOLATION, f"judged with isolation {shown!r:.80}, for which nobody vouches yet")
    if row.get("usage_source") != "wire":
        fold.count(ReasonKind.UNMETERED, "not metered on the wire")
    if not admission.rehearsal and row.get("scripted_model") is not False:
        fold.count(ReasonKind.SCRIPTED, "not known to be a model's: a script may have played its part")
    if row.get("controls") != CONTROLS_HELD:
        shown = row.get("controls")
        fold.count(
            ReasonKind.UNCONTROLLED,
            f"of task {row.get('task')!r:.80}, whose controls are {shown!r:.80}; run `fairtrial check`, then measure",
        )


def _look_at_its_usage(row: Row, fold: _Fold) -> None:
    """What nobody saw of the incumbent makes a saving larger than it is shown; of the candidate, smaller."""
    if row.get("arm") != fold.policy.candidate_arm:
        return
    match row.get("usage_is_lower_bound"):
        case False:
            pass
        case True:
            fold.count(
                ReasonKind.LOWER_BOUND,
                f"of the candidate and tell only a lower bound of its {fold.policy.metric}: replies broke off, so that"
                " its saving may be what nobody saw",
            )
        case _:
            fold.count(ReasonKind.LOWER_BOUND, "of the candidate and do not say whether replies broke off")


def _look_at_its_model(row: Row, fold: _Fold) -> None:
    policy = fold.policy
    if row.get("model") != policy.model:
        fold.count(ReasonKind.OTHER_MODEL, f"of model {row.get('model')!r:.80}, not {policy.model!r:.80}")
    if row.get("benchmark_model", row.get("model")) != row.get("model"):
        fold.count(ReasonKind.OTHER_MODEL, f"whose sweep names model {row.get('benchmark_model')!r:.80}")
    flags: object = row.get("integrity_flags")
    if not isinstance(flags, list):
        fold.count(ReasonKind.OTHER_MODEL, "without integrity_flags: which model answered is not known")
    elif any(str(each).endswith(OTHER_ANSWERED) for each in cast("list[object]", flags)):
        fold.count(ReasonKind.OTHER_MODEL, f"answered by a model that was not asked, in place of {policy.model!r:.80}")
    else:
        _note_others(row, fold)


def _note_others(row: Row, fold: _Fold) -> None:
    """Models that the arm asked beside its own, which `unnamed_models: record` lets it."""
    wire: object = row.get("wire")
    others: object = cast("dict[str, object]", wire).get("other_models") if isinstance(wire, dict) else None
    if isinstance(others, list):
        fold.others.setdefault(str(row.get("arm")), set()).update(map(str, cast("list[object]", others)))


def recorded_moment(row: Row) -> datetime | None:
    """When a row was recorded; None when it does not say so, or not with its time zone."""
    try:
        moment = datetime.fromisoformat(text(row.get("recorded_at")) or "")
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment


def _look_at_its_age(row: Row, fold: _Fold, admission: Admission) -> None:
    moment = recorded_moment(row)
    if moment is None:
        fold.count(ReasonKind.UNDATED, "without a moment of recording")
    elif moment > admission.now + CLOCK_SKEW:
        fold.count(ReasonKind.FROM_THE_FUTURE, "recorded later than now: a clock is wrong")
    elif admission.now.astimezone(UTC) - moment > timedelta(days=admission.max_age_days):
        fold.count(ReasonKind.TOO_OLD, f"older than {admission.max_age_days} days")


def _of_the_file(fold: _Fold, admission: Admission) -> Iterator[Reason]:
    if not admission.sealed:
        yield Reason(kind=ReasonKind.UNSEALED, detail="no seal covers the rows: name the results directory of a sweep.")
    if admission.n_uncounted:
        yield Reason(
            kind=ReasonKind.INCOMPLETE,
            detail=f"{admission.n_uncounted} planned trials have no counting attempt; resume the sweep.",
        )
    if not fold.n_rows:
        yield Reason(kind=ReasonKind.NO_ROWS, detail="no row of either arm is evidence.")
    if admission.other_policy:
        yield Reason(
            kind=ReasonKind.OTHER_POLICY,
            detail=f"before its first trial the sweep fixed {', '.join(admission.other_policy)}; ask with that.",
        )
    if admission.provisional:
        yield Reason(
            kind=ReasonKind.PROVISIONAL,
            detail="before its first trial the sweep fixed that a final gate decides after it: look at that one.",
        )


def _counted(fold: _Fold) -> Iterator[Reason]:
    for (kind, what), n_rows in fold.counted.items():
        yield Reason(kind=kind, detail=f"{n_rows} of {fold.n_rows} rows are {what}.")


def _others(fold: _Fold) -> Iterator[Reason]:
    """A gain may be that of another model; one that the incumbent asks as well is a part of both arms."""
    old, new = (fold.others.get(arm, set()) for arm in (fold.policy.incumbent_arm, fold.policy.candidate_arm))
    if own := sorted(new - old):
        shown = f"{', '.join(f'{name:.80}' for name in own[:MAX_SHOWN])}{' and more' if len(own) > MAX_SHOWN else ''}"
        yield Reason(
            kind=ReasonKind.OTHER_MODEL,
            detail=f"the candidate asked {shown} too, which the incumbent never did: its gain may be theirs.",
        )


def _mixed(fold: _Fold) -> Iterator[Reason]:
    for (scope, name), seen in fold.seen.items():
        problem = seen.problem(nullable=name in MAY_BE_NULL)
        if problem is not None:
            kind = KINDS.get(name)
            if kind is None:
                kind = ReasonKind.MIXED_TASK if name in SAME_IN_A_TASK else ReasonKind.MIXED_ARM
            yield Reason(kind=kind, detail=f"{f'{scope}: ' if scope else ''}{name} {problem}.")


def _surrounded(fold: _Fold) -> Iterator[Reason]:
    for (task, label), values in fold.environments.items():
        if len(values) > 1:
            yield Reason(
                kind=ReasonKind.MIXED_ENVIRONMENT,
                detail=f"task {task}: sessions saw {len(values)} values of {label:.80}, and no arm asks for that.",
            )
