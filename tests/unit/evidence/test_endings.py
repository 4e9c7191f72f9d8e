import pytest

from fairtrial.errors import UsageError
from fairtrial.evidence.endings import ENDINGS, CountsAs, EndingKind, is_systemic, is_void, kind_of

VOID = {
    "session-error",
    "infra-error",
    "cleanup-failure",
    "evidence-unverified",
    "oracle-unavailable",
    "interrupted",
    "cancelled",
    "unknown",
}
SYSTEMIC = {"session-error", "infra-error", "cleanup-failure"}


def test_the_table_is_total_and_every_line_says_when() -> None:
    assert set(ENDINGS) == set(EndingKind)
    assert all(rule.when for rule in ENDINGS.values())


@pytest.mark.parametrize("kind", list(EndingKind))
def test_only_causes_outside_the_sandbox_are_void_and_only_outages_are_systemic(kind: EndingKind) -> None:
    row = {"error_kind": str(kind)}
    assert is_void(row) == (kind in VOID)
    assert is_systemic(row) == (kind in SYSTEMIC)
    assert (ENDINGS[kind].counts_as is CountsAs.VOID) == (kind in VOID)


@pytest.mark.parametrize("row", [{}, {"error_kind": None}, {"error_kind": "invented-by-an-arm"}, {"error_kind": ""}])
def test_a_judged_trial_and_an_unknown_kind_are_evidence(row: dict[str, object]) -> None:
    assert not is_void(row)
    assert not is_systemic(row)


def test_an_error_kind_that_is_no_string_is_refused() -> None:
    with pytest.raises(UsageError, match="'error_kind' must be a string or null, not 3"):
        kind_of({"error_kind": 3})
