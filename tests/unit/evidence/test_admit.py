"""Which rows may be used for a promotion."""

from datetime import UTC, datetime, timedelta

import pytest

from fairtrial.evidence.admit import LIMITS, Admission

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def row(**changes: object) -> dict[str, object]:
    return {
        "task": "t",
        "arm": "a",
        "error_kind": None,
        "model": "m",
        "agent": "x",
        "agent_version": "1",
        "sandbox_backend": "bubblewrap",
        "fairtrial": "0.1",
        "sandboxed": True,
        "limits_enforced": dict.fromkeys(LIMITS, "by us"),
        "scripted_model": False,
        "controls": "held",
        "usage_source": "wire",
        "recorded_at": "2026-11-29T11:00:00Z",
        "oracle_digest": "o",
        **changes,
    }


def reasons(*rows: dict[str, object], sealed: bool = True, model: str | None = "m") -> str:
    admission = Admission(arms=("a", "b"), model=model, now=NOW, sealed=sealed)
    for each in rows:
        admission.add(each)
    return " ".join(admission.reasons())


def test_good_rows_may_be_used() -> None:
    assert reasons(row(), row(arm="b")) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sandboxed": False}, "without a sandbox"),
        ({"sandboxed": 1}, "without a sandbox"),
        ({"limits_enforced": {"memory": "cgroup"}}, "limits that were not enforced"),
        ({"limits_enforced": None}, "limits that were not enforced"),
        ({"scripted_model": True}, "scripted model"),
        ({"scripted_model": None}, "scripted model"),
        ({"controls": "stale"}, "without fresh controls"),
        ({"usage_source": "cli"}, "not counted on the wire"),
        ({"recorded_at": None}, "no time"),
        ({"recorded_at": "2026-11-29T11:00:00"}, "no time"),
        ({"recorded_at": (NOW + timedelta(minutes=6)).isoformat()}, "from the future"),
        ({"recorded_at": (NOW - timedelta(days=91)).isoformat()}, "older than 90 days"),
        ({"model": "n"}, "another model than m: n"),
        ({"agent_version": "2"}, "version of the agent"),
        ({"oracle_digest": "p"}, "task t: rows differ in oracle"),
    ],
)
def test_each_doubt_has_its_reason(changes: dict[str, object], words: str) -> None:
    assert words in reasons(row(), row(arm="b", **changes))


def test_unsealed_rows_and_none_at_all_are_told() -> None:
    assert "not sealed" in reasons(row(), sealed=False)
    assert "no row" in reasons()
    assert "no row" in reasons(row(arm="c"))


def test_voids_and_other_arms_raise_no_doubt_here() -> None:
    assert reasons(row(), row(arm="c", sandboxed=False), row(error_kind="infra-error", sandboxed=None)) == ""
