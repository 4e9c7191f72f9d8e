from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fairtrial.evidence.admit import MAX_AGE_DAYS, REQUIRED_LIMITS, Admission, Reason, ReasonKind, admit
from fairtrial.evidence.gate import GatePolicy
from fairtrial.evidence.rows import Row

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
POLICY = GatePolicy(incumbent_arm="old", candidate_arm="new", model="m-1")
FIT = Admission(sealed=True, n_uncounted=0, now=NOW)


def row(arm: str = "old", task: str = "t", **fields: object) -> dict[str, object]:
    return {
        "task": task,
        "arm": arm,
        "error_kind": None,
        "sandboxed": True,
        "sandbox_backend": "bubblewrap",
        "limits_enforced": dict.fromkeys(REQUIRED_LIMITS, "cgroup"),
        "isolation": "shared",
        "controls": "held",
        "usage_source": "wire",
        "usage_is_lower_bound": False,
        "model": "m-1",
        "benchmark_model": "m-1",
        "agent": "bash-agent",
        "agent_version": "1",
        "effort": None,
        "scripted_model": False,
        "integrity_flags": [],
        "source": "fairtrial 1",
        "host": "h",
        "price_table": "p 1",
        "task_base_sha": f"base of {task}",
        "sanitized_task_sha": f"sha of {task}",
        "task_prompt_digest": f"prompt of {task}",
        "setup_digest": "",
        "verify_digest": f"check of {task}",
        "oracle_digest": f"oracle of {task}",
        "oracle_command_digest": "c",
        "oracle_manifest_digest": "m",
        "setup_layer_digest": None,
        "environment_undeclared": {},
        "arm_digest": f"digest of {arm}",
        "candidate_overlay_digest": "o" if arm == "new" else None,
        "recorded_at": "2026-11-28T12:00:00.000000Z",
        **fields,
    }


ROWS = [row("old"), row("new"), row("old", "u"), row("new", "u"), row("other", model="m-9", sandboxed=False)]


def kinds(rows: list[dict[str, object]], admission: Admission = FIT, policy: GatePolicy = POLICY) -> list[ReasonKind]:
    return [reason.kind for reason in admit(rows, policy, admission)]


def without(name: str) -> dict[str, object]:
    return {key: value for key, value in row("new").items() if key != name}


def test_rows_that_fit_together_may_be_used_whatever_other_arms_did() -> None:
    assert admit(ROWS, POLICY, FIT) == ()


def test_models_of_the_candidates_own_may_be_what_won_and_those_of_both_arms_may_not() -> None:
    def asking(old: list[str], new: list[str]) -> list[Reason]:
        rows = [row("old", wire={"other_models": old}), row("new", wire={"other_models": new})]
        return list(admit(rows, POLICY, FIT))

    (found,) = asking(["small"], ["small", "large", "huge"])
    assert found.kind is ReasonKind.OTHER_MODEL
    assert "the candidate asked huge, large too, which the incumbent never did" in found.detail
    assert asking(["small", "large"], ["small"]) == []
    (many,) = asking([], [f"m{number}" for number in range(9)])
    assert "m0, m1, m2, m3 and more" in many.detail
    assert admit([row("old", wire=None), row("new", wire={"other_models": None})], POLICY, FIT) == ()


@pytest.mark.parametrize("metric", ["cost_usd", "output_tokens"])
def test_a_saving_is_none_where_nobody_saw_all_that_the_candidate_used(metric: str) -> None:
    policy = replace(POLICY, metric=metric)
    (found,) = admit([*ROWS, row("new", usage_is_lower_bound=True)], policy, FIT)
    assert found.kind is ReasonKind.LOWER_BOUND
    assert found.detail.startswith(f"1 of 5 rows are of the candidate and tell only a lower bound of its {metric}")
    assert kinds([*ROWS, without("usage_is_lower_bound")], policy=policy) == [ReasonKind.LOWER_BOUND]
    assert kinds([*ROWS, row("new", usage_is_lower_bound=None)], policy=policy) == [ReasonKind.LOWER_BOUND]
    assert kinds([*ROWS, row("old", usage_is_lower_bound=True)], policy=policy) == [], "it used more than is shown"
    assert kinds([*ROWS, row("new", usage_is_lower_bound=True, error_kind="infra-error")], policy=policy) == []


@pytest.mark.parametrize("metric", ["duration_s", "num_turns"])
def test_what_a_lower_bound_leaves_out_does_not_matter_to_other_metrics(metric: str) -> None:
    assert kinds([*ROWS, row("new", usage_is_lower_bound=True)], policy=replace(POLICY, metric=metric)) == []


def test_unsealed_rows_may_not_be_used() -> None:
    assert admit(ROWS, POLICY, replace(FIT, sealed=False, n_uncounted=None)) == (
        Reason(kind=ReasonKind.UNSEALED, detail="no seal covers the rows: name the results directory of a sweep."),
    )


def test_planned_trials_that_do_not_count_are_a_reason() -> None:
    assert kinds(ROWS, replace(FIT, n_uncounted=2)) == [ReasonKind.INCOMPLETE]
    assert kinds(ROWS, replace(FIT, other_policy=("--min-runs 5, not 3",))) == [ReasonKind.OTHER_POLICY]
    assert kinds(ROWS, replace(FIT, provisional=True)) == [ReasonKind.PROVISIONAL]


def test_no_row_of_either_arm_is_a_reason() -> None:
    assert kinds([row("other")]) == [ReasonKind.NO_ROWS]
    assert kinds([row("old", error_kind="infra-error", model=None)]) == [ReasonKind.NO_ROWS]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"sandboxed": False}, ReasonKind.UNCONTAINED),
        ({"sandboxed": 1}, ReasonKind.UNCONTAINED),
        ({"sandboxed": None}, ReasonKind.UNCONTAINED),
        ({"isolation": "trust"}, ReasonKind.UNPROVEN_ISOLATION),
        ({"isolation": None}, ReasonKind.UNPROVEN_ISOLATION),
        ({"controls": "failed"}, ReasonKind.UNCONTROLLED),
        ({"controls": "stale"}, ReasonKind.UNCONTROLLED),
        ({"controls": "missing"}, ReasonKind.UNCONTROLLED),
        ({"controls": None}, ReasonKind.UNCONTROLLED),
        ({"usage_source": "cli"}, ReasonKind.UNMETERED),
        ({"usage_source": None}, ReasonKind.UNMETERED),
        ({"model": "m-2", "benchmark_model": "m-2"}, ReasonKind.OTHER_MODEL),
        ({"benchmark_model": "m-2"}, ReasonKind.OTHER_MODEL),
        ({"integrity_flags": ["plan: usage", "work: other model"]}, ReasonKind.OTHER_MODEL),
        ({"integrity_flags": "work: other model"}, ReasonKind.OTHER_MODEL),
        ({"integrity_flags": None}, ReasonKind.OTHER_MODEL),
        ({"agent": "codex"}, ReasonKind.MIXED_AGENT),
        ({"agent_version": "2"}, ReasonKind.MIXED_AGENT),
        ({"agent_version": None}, ReasonKind.MIXED_AGENT),
        ({"effort": "high"}, ReasonKind.MIXED_AGENT),
        ({"sandbox_backend": "other"}, ReasonKind.MIXED_SANDBOX),
        ({"source": "fairtrial 2"}, ReasonKind.MIXED_HARNESS),
        ({"price_table": "p 2"}, ReasonKind.MIXED_PRICES),
        ({"task_base_sha": "x"}, ReasonKind.MIXED_TASK),
        ({"sanitized_task_sha": "x"}, ReasonKind.MIXED_TASK),
        ({"task_prompt_digest": "x"}, ReasonKind.MIXED_TASK),
        ({"setup_digest": "x"}, ReasonKind.MIXED_TASK),
        ({"verify_digest": "x"}, ReasonKind.MIXED_TASK),
        ({"oracle_digest": "x"}, ReasonKind.MIXED_TASK),
        ({"oracle_command_digest": "x"}, ReasonKind.MIXED_TASK),
        ({"oracle_manifest_digest": "x"}, ReasonKind.MIXED_TASK),
        ({"toolchain_digests": {"/opt/go": "x"}}, ReasonKind.MIXED_TASK),
        ({"environment_undeclared": None}, ReasonKind.MIXED_ENVIRONMENT),
        ({"environment_undeclared": ["hooks"]}, ReasonKind.MIXED_ENVIRONMENT),
        ({"arm_digest": "x"}, ReasonKind.MIXED_ARM),
        ({"candidate_overlay_digest": "x"}, ReasonKind.MIXED_ARM),
        ({"recorded_at": "yesterday"}, ReasonKind.UNDATED),
        ({"recorded_at": "2026-11-28T12:00:00"}, ReasonKind.UNDATED),
        ({"recorded_at": 7}, ReasonKind.UNDATED),
    ],
)
def test_one_row_that_does_not_fit_spoils_the_evidence(change: dict[str, object], kind: ReasonKind) -> None:
    (reason,) = admit([*ROWS, row("new", **change)], POLICY, FIT)
    assert reason.kind is kind
    assert kinds([*ROWS, row("other", **change)]) == []
    assert kinds([*ROWS, row("new", error_kind="session-error", **change)]) == []


@pytest.mark.parametrize(
    "name",
    [
        "sandboxed",
        "limits_enforced",
        "isolation",
        "controls",
        "usage_source",
        "model",
        "integrity_flags",
        "agent",
        "agent_version",
        "scripted_model",
        "sandbox_backend",
        "source",
        "price_table",
        "task_base_sha",
        "sanitized_task_sha",
        "task_prompt_digest",
        "setup_digest",
        "verify_digest",
        "oracle_digest",
        "oracle_command_digest",
        "oracle_manifest_digest",
        "setup_layer_digest",
        "environment_undeclared",
        "arm_digest",
        "recorded_at",
    ],
)
def test_a_field_that_no_row_has_is_a_reason(name: str) -> None:
    bare: list[dict[str, object]] = [{**without(name), "arm": arm} for arm in ("old", "new")]
    assert kinds(bare)


def test_what_an_agent_says_otherwise_than_the_wire_is_no_reason() -> None:
    assert kinds([*ROWS, row("new", integrity_flags=["work: usage", "work: skill acme-work"])]) == []


def test_arms_of_one_block_begin_with_one_setup() -> None:
    def pair(*digests: str | None) -> list[dict[str, object]]:
        return [
            row(arm, block="t/0", setup_layer_digest=each) for arm, each in zip(("old", "new"), digests, strict=True)
        ]

    assert kinds(pair("a", "a")) == []
    assert kinds(pair(None, None)) == []
    (reason,) = admit(pair("a", "b"), POLICY, FIT)
    assert reason == Reason(kind=ReasonKind.MIXED_SETUP, detail="block t/0: setup_layer_digest has 2 values: a, b.")
    assert (
        kinds([*pair("a", "a"), *(each | {"block": "t/1", "setup_layer_digest": "b"} for each in pair("a", "a"))]) == []
    )


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("setup_layer_digest", ReasonKind.MIXED_SETUP, "what they began with is not known"),
        ("environment_undeclared", ReasonKind.MIXED_ENVIRONMENT, "what their sessions saw is not known"),
    ],
)
def test_a_row_that_does_not_say_what_it_began_with_or_saw_is_not_known_to_be_alike(
    name: str, kind: ReasonKind, words: str
) -> None:
    (reason,) = admit([*ROWS, without(name)], POLICY, FIT)
    assert reason == Reason(kind=kind, detail=f"1 of 5 rows are without {name}: {words}.")


def test_what_no_arm_asks_for_must_have_been_seen_alike() -> None:
    def pair(old: dict[str, object], new: dict[str, object]) -> list[dict[str, object]]:
        return [row("old", environment_undeclared=old), row("new", environment_undeclared=new)]

    assert kinds(pair({"a hooks": {"h": "1"}}, {"a hooks": {"h": "1"}})) == []
    assert (
        kinds(pair({"a arguments with the same skills (1)": "x"}, {"a arguments with the same skills (2)": "y"})) == []
    )
    (reason,) = admit(pair({"a hooks": {"h": "1"}, "a version": "2"}, {"a hooks": {}, "a version": "2"}), POLICY, FIT)
    assert reason == Reason(
        kind=ReasonKind.MIXED_ENVIRONMENT,
        detail="task t: sessions saw 2 values of a hooks, and no arm asks for that.",
    )


@pytest.mark.parametrize("limit", REQUIRED_LIMITS)
def test_every_limit_must_have_been_enforced(limit: str) -> None:
    enforced = {name: "cgroup" for name in REQUIRED_LIMITS if name != limit}
    (reason,) = admit([*ROWS, row("new", limits_enforced=enforced)], POLICY, FIT)
    assert reason.kind is ReasonKind.UNENFORCED_LIMIT
    assert reason.detail == f"1 of 5 rows are without an enforced limit of {limit}."


def test_unsafe_rows_without_a_sandbox_say_so_and_are_refused() -> None:
    assert ReasonKind.UNCONTAINED in kinds([row("old"), row("new", sandbox_backend="none")])


def scripted(*values: object) -> list[dict[str, object]]:
    return [row(arm, scripted_model=value) for arm, value in zip(("old", "new"), values, strict=True)]


def test_rows_of_a_scripted_model_promote_nothing() -> None:
    (reason,) = admit(scripted(True, True), POLICY, FIT)
    assert reason.kind is ReasonKind.SCRIPTED
    assert kinds(scripted(None, None)) == [ReasonKind.SCRIPTED, ReasonKind.MIXED_AGENT]
    assert kinds(scripted(0, 0)) == [ReasonKind.SCRIPTED]
    assert kinds(scripted(False, False)) == []


def test_a_rehearsal_lets_a_script_play_the_model_on_both_sides_and_forgives_nothing_else() -> None:
    rehearsal = replace(FIT, rehearsal=True)
    assert kinds(scripted(True, True), rehearsal) == []
    assert kinds(scripted(True, False), rehearsal) == [ReasonKind.MIXED_AGENT]
    assert kinds([row(arm, scripted_model=True, controls="missing") for arm in ("old", "new")], rehearsal) == [
        ReasonKind.UNCONTROLLED
    ]


def test_a_task_whose_controls_did_not_hold_is_named() -> None:
    (reason,) = admit([*ROWS, row("new", "u", controls="stale")], POLICY, FIT)
    assert reason.detail == (
        "1 of 5 rows are of task 'u', whose controls are 'stale'; run `fairtrial check`, then measure."
    )


def test_prices_matter_only_to_cost_and_machines_only_to_time() -> None:
    rows = [*ROWS, row("new", price_table=None, host="h2")]
    assert kinds(rows) == [ReasonKind.MIXED_PRICES]
    assert kinds(rows, policy=replace(POLICY, metric="duration_s")) == [ReasonKind.MIXED_MACHINE]
    assert kinds(rows, policy=replace(POLICY, metric="num_turns")) == []


def test_age_is_counted_to_the_second() -> None:
    oldest = NOW - timedelta(days=MAX_AGE_DAYS)
    latest = NOW + timedelta(minutes=5)
    for moment, found in (
        (oldest, []),
        (oldest - timedelta(seconds=1), [ReasonKind.TOO_OLD]),
        (latest, []),
        (latest + timedelta(seconds=1), [ReasonKind.FROM_THE_FUTURE]),
    ):
        assert kinds([*ROWS, row("new", recorded_at=moment.isoformat())]) == found


def test_a_long_list_of_values_is_cut() -> None:
    rows: list[Row] = [row("new", agent_version=str(number)) for number in range(9)]
    (reason,) = admit(rows, POLICY, FIT)
    assert reason.detail == "agent_version has 9 values: 0, 1, 2, 3 and 5 more."
