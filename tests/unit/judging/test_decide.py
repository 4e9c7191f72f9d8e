from dataclasses import replace

import pytest

from fairtrial.evidence.endings import EndingKind
from fairtrial.judging.decide import decide_check, decide_oracle
from fairtrial.judging.proof import Proved
from fairtrial.judging.values import Counts, OracleSpec, OracleVerdict, Proof, Runner
from fairtrial.model.process import StreamCapture
from fairtrial.model.sandbox import Limit, SandboxResult, SandboxState

SILENT = StreamCapture(n_bytes=0, n_characters=0, head=b"", head_truncated=False, tail=b"", tail_truncated=False)
ENDED = SandboxResult(
    state=SandboxState.EXITED,
    returncode=0,
    limit=None,
    elapsed_ms=12.0,
    cpu_s=0.1,
    peak_memory_bytes=None,
    stdout=SILENT,
    stderr=SILENT,
    enforced={Limit.WALL: "harness"},
    detail="",
)
COMMAND = OracleSpec(command="true", files=())
RUNNER = OracleSpec(command="", files=(), runner=Runner.PYTEST, expect_tests=3)
PROVEN = Proved(Proof.PROVEN, None)
COUNTED = Proved(Proof.PROVEN, Counts(n_passed=3, n_failed=0, n_skipped=0))


def decide(
    oracle: OracleSpec = COMMAND,
    result: SandboxResult = ENDED,
    proved: Proved = PROVEN,
    *,
    intact: bool = True,
    available: bool = True,
) -> OracleVerdict:
    return decide_oracle(oracle, result, proved, intact=intact, available=available, restored=("conftest.py",))


def counted(n_passed: int, n_failed: int = 0, n_skipped: int = 0) -> Proved:
    return Proved(Proof.PROVEN, Counts(n_passed=n_passed, n_failed=n_failed, n_skipped=n_skipped))


def test_status_0_with_proof_passes() -> None:
    verdict = decide()
    assert (verdict.passed, verdict.kind, verdict.reason) == (True, None, "")
    assert verdict.restored == ("conftest.py",)
    assert verdict.elapsed_ms == 12.0
    assert verdict.enforced == {Limit.WALL: "harness"}


def test_counts_of_a_command_are_not_taken_for_a_runners() -> None:
    assert decide(proved=COUNTED).counts is None


@pytest.mark.parametrize(
    ("proof", "words"), [(Proof.MISSING, "did not prove that it finished"), (Proof.WRONG, "not the run's nonce")]
)
def test_status_0_without_proof_fails_and_says_so(proof: Proof, words: str) -> None:
    verdict = decide(proved=Proved(proof, None))
    assert verdict.kind is EndingKind.ORACLE_FAILED
    assert words in verdict.reason


def test_another_status_fails_whatever_was_proved() -> None:
    verdict = decide(result=replace(ENDED, returncode=2))
    assert verdict.kind is EndingKind.ORACLE_FAILED
    assert verdict.reason == "it ended with exit status 2"


def test_changed_staged_files_are_a_failure() -> None:
    verdict = decide(intact=False)
    assert verdict.kind is EndingKind.ORACLE_FAILED
    assert "changed" in verdict.reason


@pytest.mark.parametrize("returncode", [0, 1])
def test_captured_files_that_changed_meanwhile_are_void(returncode: int) -> None:
    verdict = decide(result=replace(ENDED, returncode=returncode), available=False)
    assert verdict.kind is EndingKind.ORACLE_UNAVAILABLE
    assert not verdict.passed


@pytest.mark.parametrize(
    ("state", "limit"),
    [
        (SandboxState.TIMEOUT, Limit.WALL),
        (SandboxState.FORCED_KILL, Limit.WALL),
        (SandboxState.LIMIT, Limit.MEMORY),
        (SandboxState.BROKEN, None),
    ],
)
def test_whatever_ends_a_judge_from_inside_is_a_failure(state: SandboxState, limit: Limit | None) -> None:
    result = replace(ENDED, state=state, limit=limit, returncode=None)
    assert decide(result=result).kind is EndingKind.ORACLE_FAILED
    assert decide(RUNNER, result, COUNTED).kind is EndingKind.ORACLE_FAILED
    assert decide_check(result, output="").kind is EndingKind.VERIFY_FAILED


@pytest.mark.parametrize(
    ("state", "kind"),
    [(SandboxState.START_FAILURE, EndingKind.INFRA_ERROR), (SandboxState.STOPPED, EndingKind.CANCELLED)],
)
def test_what_never_ran_is_void(state: SandboxState, kind: EndingKind) -> None:
    result = replace(ENDED, state=state, returncode=None)
    assert decide(result=result).kind is kind
    assert decide_check(result, output="").kind is kind


def test_a_runner_passes_when_all_expected_tests_ran() -> None:
    assert decide(RUNNER, proved=COUNTED).passed
    assert decide(RUNNER, proved=counted(4)).passed


@pytest.mark.parametrize(
    ("proved", "words"),
    [
        (counted(2), "2 of 3 expected tests"),
        (counted(3, n_failed=1), "1 test failed"),
        (counted(0, n_skipped=3), "0 of 3"),
        (PROVEN, "no report that can be believed"),
        (Proved(Proof.MISSING, None), "did not prove that it finished"),
        (Proved(Proof.WRONG, None), "no report that can be believed"),
    ],
)
def test_a_runners_counts_are_checked_again(proved: Proved, words: str) -> None:
    verdict = decide(RUNNER, proved=proved)
    assert verdict.kind is EndingKind.ORACLE_FAILED
    assert words in verdict.reason


@pytest.mark.parametrize(
    ("proved", "passed"), [(counted(1), True), (counted(0), False), (counted(5, n_skipped=1), False)]
)
def test_without_a_number_one_test_must_pass_and_none_be_skipped(proved: Proved, *, passed: bool) -> None:
    assert decide(replace(RUNNER, expect_tests=None), proved=proved).passed is passed


def test_a_runners_own_status_counts_too() -> None:
    verdict = decide(RUNNER, replace(ENDED, returncode=1), COUNTED)
    assert verdict.reason == "it ended with exit status 1"


def test_a_runner_that_was_cut_off_left_no_report() -> None:
    verdict = decide(RUNNER, replace(ENDED, returncode=3), Proved(Proof.MISSING, None))
    assert verdict.kind is EndingKind.ORACLE_FAILED
    assert "did not finish" in verdict.reason


@pytest.mark.parametrize(("returncode", "words"), [(127, "not on PATH"), (125, "kernel")])
def test_what_keeps_a_runner_from_starting_anything_is_our_fault(returncode: int, words: str) -> None:
    verdict = decide(RUNNER, replace(ENDED, returncode=returncode), Proved(Proof.MISSING, None))
    assert verdict.kind is EndingKind.INFRA_ERROR
    assert words in verdict.reason
    assert decide(result=replace(ENDED, returncode=returncode)).kind is EndingKind.ORACLE_FAILED


def test_an_authored_check_needs_only_status_0() -> None:
    passed = decide_check(ENDED, output="fine")
    assert (passed.passed, passed.kind, passed.reason, passed.output) == (True, None, "", "fine")
    failed = decide_check(replace(ENDED, returncode=4), output="")
    assert (failed.kind, failed.reason) == (EndingKind.VERIFY_FAILED, "it ended with exit status 4")
