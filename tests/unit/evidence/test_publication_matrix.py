"""The publication-honesty matrix: runs that agree make one line, runs that do not are both shown."""

from fairtrial.evidence.publication_matrix import CaseFacts, matrix_lines, read_cases

ROW = {
    "fault_case": "reply_lost_reused",
    "connection_reuse": "reused",
    "valid": True,
    "client_claim": "rejected",
    "delivery": "replayed",
    "server_truth": "durable",
    "verdict": "false_failure",
    "retry_safe": True,
    "local_work_preserved": True,
    "server_integrity": True,
    "recovered": True,
    "recovery_calls": 1,
    "recovery_bytes": 100,
    "recovery_ms": 10.0,
    "recovery_tokens": 30,
}


def case(**changes: object) -> CaseFacts:
    (facts,) = read_cases({"publications": [ROW | changes]})
    return facts


def test_runs_that_agree_make_one_line_with_the_median_of_the_cost() -> None:
    runs = [[case(recovery_ms=10.0)], [case(recovery_ms=30.0)], [case(recovery_ms=20.0)]]
    (line,) = matrix_lines(runs)
    assert (line.n_runs, line.n_invalid, line.verdict, line.recovery_ms) == (3, 0, "false_failure", 20.0)
    assert (line.retry_safe, line.recovered) == (True, True)


def test_runs_that_disagree_are_both_shown_and_one_harmful_retry_decides() -> None:
    other = case(verdict="silent_recovery", client_claim="published", retry_safe=False, recovered=None)
    (line,) = matrix_lines([[case()], [other], [case()]])
    assert line.verdict == "false_failure 2, silent_recovery 1"
    assert line.client_claim == "published 1, rejected 2"
    assert line.retry_safe is False
    assert line.recovered is True


def test_an_invalid_run_is_counted_and_says_nothing() -> None:
    (line,) = matrix_lines([[case()], [case(valid=False, verdict=None, client_claim="published", retry_safe=False)]])
    assert (line.n_runs, line.n_invalid, line.client_claim, line.retry_safe) == (2, 1, "rejected", True)
    (nothing,) = matrix_lines([[case(valid=False, verdict=None)]])
    assert (nothing.verdict, nothing.retry_safe, nothing.recovery_ms) == ("no evidence", None, None)


def test_the_largest_fork_of_any_valid_run_is_shown_and_an_unknown_one_is_not_none() -> None:
    (line,) = matrix_lines(
        [[case(fork_heads=[])], [case(fork_heads=["a", "b"])], [case(valid=False, fork_heads=[1] * 3)]]
    )
    assert line.fork_heads == 2
    assert matrix_lines([[case(fork_heads=[])]])[0].fork_heads == 0
    assert matrix_lines([[case()]])[0].fork_heads is None


def test_what_recovery_cost_is_not_hidden_by_runs_that_needed_none() -> None:
    idle = case(recovered=None, recovery_calls=0, recovery_bytes=0, recovery_ms=0.0, recovery_tokens=0)
    failed = case(recovered=False, recovery_calls=5, recovery_bytes=4000, recovery_ms=600.0, recovery_tokens=200)
    (line,) = matrix_lines([[idle], [idle], [failed]])
    assert (line.recovered, line.recovery_calls, line.recovery_bytes) == (False, 5, 4000)
    assert (line.recovery_ms, line.recovery_tokens) == (600.0, 200)
    (line,) = matrix_lines([[idle], [idle]])
    assert (line.recovered, line.recovery_calls, line.recovery_bytes, line.recovery_ms) == (None, 0, 0, 0.0)


def test_what_one_run_does_not_know_is_not_known() -> None:
    (line,) = matrix_lines([[case()], [case(server_integrity=None, recovery_bytes=None)]])
    assert (line.server_integrity, line.recovery_bytes) == (None, None)


def test_lines_stand_in_the_order_in_which_cases_were_played() -> None:
    names = [line.fault_case for line in matrix_lines([[case(fault_case="z"), case(fault_case="a")]])]
    assert names == ["z", "a"]


def test_rows_without_publications_have_no_cases_and_foreign_values_are_no_measurements() -> None:
    assert read_cases({}) == ()
    assert read_cases({"publications": "many"}) == ()
    assert read_cases({"publications": [1]}) == ()
    odd = case(verdict=1, recovery_calls=True, recovery_ms=float("nan"), valid="yes", retry_safe=1)
    assert (odd.verdict, odd.recovery_calls, odd.recovery_ms, odd.retry_safe) == (None, None, None, None)
    assert odd.valid is False
