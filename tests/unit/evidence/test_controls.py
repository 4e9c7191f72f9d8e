"""Whether controls held."""

from fairtrial.evidence.controls import Held, judge_controls


def row(arm: str, *, passed: bool | None, resolved: bool = False, kind: str | None = None) -> dict[str, object]:
    return {"task": "t", "arm": arm, "oracle_passed": passed, "resolved": resolved, "error_kind": kind}


def held(*rows: dict[str, object]) -> tuple[Held, str]:
    (verdict,) = judge_controls(rows)
    return verdict.held, verdict.reason


def test_doing_nothing_must_not_pass() -> None:
    assert held(row("nop", passed=False, kind="oracle-failed"))[0] is Held.HELD
    assert held(row("nop", passed=True, kind="no-work-produced")) == (
        Held.FAILED,
        "the oracle passes what solves nothing",
    )


def test_the_reference_must_pass_every_time() -> None:
    good, bad = row("reference", passed=True, resolved=True), row("reference", passed=False, kind="oracle-failed")
    assert held(good, good)[0] is Held.HELD
    assert held(good, bad)[1].startswith("flaky: the reference was resolved 1 of 2 times")
    assert held(bad)[1].startswith("the reference does not pass")


def test_a_reference_that_the_check_stops_is_told_with_what_the_check_says() -> None:
    said = {"authored_tests_passed": False, "authored_test_output": "...\nImportError: no such thing\n\n"}
    reason = held(row("reference", passed=True, kind="verify-failed") | said)[1]
    assert reason.endswith("; the check's last line: ImportError: no such thing)")
    said["authored_test_output"] = ""
    assert held(row("reference", passed=True, kind="verify-failed") | said)[1].endswith("(verify-failed: None)")


def test_a_cheat_that_the_check_stops_must_fail_by_the_oracle_too() -> None:
    assert held(row("cheat-x", passed=False, kind="verify-failed"))[0] is Held.HELD
    assert held(row("cheat-x", passed=True, kind="verify-failed"))[0] is Held.FAILED
    assert held(row("cheat-x", passed=None, kind="agent-crash"))[0] is Held.UNKNOWN


def test_a_control_that_could_not_be_tried_is_unknown() -> None:
    assert held(row("nop", passed=None, kind="infra-error")) == (
        Held.UNKNOWN,
        "it could not be tried: infra-error",
    )


def test_a_control_of_which_a_run_is_void_is_unknown_unless_the_others_failed() -> None:
    good, void = row("reference", passed=True, resolved=True), row("reference", passed=None, kind="infra-error")
    assert held(good, void, void) == (Held.UNKNOWN, "2 of 3 runs are void")
    assert held(row("reference", passed=False, kind="oracle-failed"), void)[0] is Held.FAILED
    assert held(row("nop", passed=False, kind="oracle-failed"), row("nop", passed=None, kind="infra-error"))[0] is (
        Held.UNKNOWN
    )


def test_a_flaky_oracle_is_named_and_an_oracle_that_always_fails_is_not_flaky() -> None:
    good, bad = row("reference", passed=True, resolved=True), row("reference", passed=False, kind="oracle-failed")
    assert [verdict.flaky for verdict in judge_controls((good, bad, good))] == [True]
    assert [verdict.flaky for verdict in judge_controls((bad, bad))] == [False]
    assert [verdict.flaky for verdict in judge_controls((good, good))] == [False]
