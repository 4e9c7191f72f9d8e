"""How a session ended, by the closed table."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fairtrial.bench.budget import budget_left
from fairtrial.bench.rows import integrity_flags
from fairtrial.bench.session import Session
from fairtrial.bench.verdict import end_of_session, evidence_kind
from fairtrial.evidence.endings import EndingKind
from fairtrial.gateway.control import Spend, Totals, TrialClosed
from fairtrial.gateway.ledger import Ending, WireRow
from fairtrial.gateway.policy import BudgetKind, Limits
from fairtrial.model.agent import Report
from fairtrial.model.bench import Budget
from fairtrial.model.process import StreamCapture
from fairtrial.model.sandbox import Limit, SandboxResult, SandboxState
from fairtrial.model.usage import NOTHING_USED

NO_OUTPUT = StreamCapture(n_bytes=0, n_characters=0, head=b"", head_truncated=False, tail=b"", tail_truncated=False)
RESULT = SandboxResult(
    state=SandboxState.EXITED,
    returncode=0,
    limit=None,
    elapsed_ms=5.0,
    cpu_s=None,
    peak_memory_bytes=None,
    stdout=NO_OUTPUT,
    stderr=NO_OUTPUT,
    enforced={},
    detail="",
)
SPEND = Spend(usage=NOTHING_USED, cost_usd=0.0, cost_without_cache_usd=0.0)
CLOSED = TrialClosed(
    totals=Totals(
        requests=1,
        failed_requests=0,
        retries=0,
        refused={},
        spend=SPEND,
        broken_spend=SPEND,
        by_model={},
        by_agent={},
        by_ending={"answered": 1},
        limited_requests=0,
        backed_off_ms=0.0,
        unmeasured_requests=0,
        request_bytes=0,
        reply_bytes=0,
        provider_ms=0.0,
        other_models=(),
    ),
    ledger="/l",
    ledger_sha256="0",
    egress_refused=(),
    waited_ms=0.0,
    budget_exhausted=None,
    provider_fault=None,
    markers_seen=(),
    faults_as_planned=True,
    internal_error=None,
)


def session_of(
    *,
    result: dict[str, Any] | None = None,
    closed: dict[str, Any] | None = None,
    report: Report | None = None,
    gone: bool = False,
    late: bool = False,
    rows: Sequence[WireRow] = (),
) -> Session:
    return Session(
        phase="work",
        result=replace(RESULT, **(result or {})),
        report=report or Report(ended=True),
        closed=None if gone else replace(CLOSED, **(closed or {})),
        gateway_gone=gone,
        rows=tuple(rows),
        transcript=None,
        transcript_problem=None,
        out_of_time=late,
        environment={},
        undeclared={},
    )


def end(**seen: Any) -> EndingKind | None:  # noqa: ANN401 - what `session_of` takes
    ended = end_of_session(session_of(**seen))
    return None if ended is None else ended.kind


def test_a_good_session_has_no_ending_of_its_own() -> None:
    assert end() is None


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ({"returncode": 1}, EndingKind.AGENT_CRASH),
        ({"state": SandboxState.BROKEN, "returncode": None}, EndingKind.SANDBOX_BROKEN),
        ({"state": SandboxState.TIMEOUT, "limit": Limit.WALL}, EndingKind.AGENT_TIMEOUT),
        ({"state": SandboxState.FORCED_KILL, "limit": Limit.WALL, "returncode": None}, EndingKind.AGENT_TIMEOUT),
        ({"state": SandboxState.LIMIT, "limit": Limit.MEMORY, "returncode": None}, EndingKind.LIMIT_EXCEEDED),
        ({"state": SandboxState.START_FAILURE, "returncode": None}, EndingKind.INFRA_ERROR),
        ({"state": SandboxState.STOPPED, "returncode": None}, EndingKind.CANCELLED),
    ],
)
def test_each_way_a_process_can_end_has_its_kind(result: dict[str, Any], kind: EndingKind) -> None:
    assert end(result=result) is kind


@pytest.mark.parametrize(
    "report",
    [
        Report(ended=True, problem="line 3 is no JSON"),
        Report(ended=False),
        Report(ended=True, is_error=True, error_text="API Error"),
    ],
)
def test_a_garbled_or_failed_report_is_a_crash_unless_the_provider_failed(report: Report) -> None:
    assert end(report=report) is EndingKind.AGENT_CRASH
    assert end(report=report, closed={"provider_fault": "status 529"}) is EndingKind.SESSION_ERROR


def asked(ending: Ending, *, n_tools: int) -> WireRow:
    return WireRow(n=1, trial="t", begun_utc="", method="POST", path="/", ending=ending, n_tools=n_tools)


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        ([asked(Ending.ANSWERED, n_tools=3), asked(Ending.BROKEN, n_tools=3)], EndingKind.SESSION_ERROR),
        ([asked(Ending.ANSWERED, n_tools=3), asked(Ending.BROKEN, n_tools=0)], None),
    ],
    ids=["the main loop's last reply", "a side call"],
)
def test_a_session_that_says_success_is_void_when_its_last_reply_was_broken_and_survives_another_fault(
    last: list[WireRow], kind: EndingKind | None
) -> None:
    assert end(closed={"provider_fault": "broken connection"}, rows=last) is kind


@pytest.mark.parametrize(
    ("report", "detail", "said"),
    [
        (
            Report(ended=True, is_error=True, error_text="HTTP 400"),
            "no turn",
            "exit status 1; it says: HTTP 400; stderr",
        ),
        (Report(ended=False), "no turn", "exit status 1; its last request: status 400: no turn; stderr: empty"),
        (Report(ended=False), None, "exit status 1; stderr: empty"),
    ],
)
def test_a_crash_is_told_with_its_cause(report: Report, detail: str | None, said: str) -> None:
    refused = replace(asked(Ending.ERROR_STATUS, n_tools=1), status=400, detail=detail)
    ended = end_of_session(session_of(result={"returncode": 1}, report=report, rows=[refused]))
    assert ended is not None
    assert said in ended.detail


def test_our_own_gateways_death_is_void_whatever_the_agent_says() -> None:
    assert end(gone=True) is EndingKind.SESSION_ERROR
    assert end(closed={"internal_error": "bug"}) is EndingKind.SESSION_ERROR


def test_a_spent_budget_is_the_arms() -> None:
    assert end(closed={"budget_exhausted": BudgetKind.REQUESTS}) is EndingKind.BUDGET_EXHAUSTED


def request(n: int, **seen: Any) -> WireRow:  # noqa: ANN401 - any field of a row
    known: dict[str, Any] = {"ending": Ending.ANSWERED, "dialect": "gemini", "ask": "generate", "n_tools": 1}
    known["went_out"] = seen.get("ending") is not Ending.REFUSED
    return WireRow(n=n, trial="t", begun_utc="2026", method="POST", path="/", **{**known, **seen})


def test_what_the_gateway_refused_last_is_told_before_all_that_the_cli_prints() -> None:
    said = replace(NO_OUTPUT, tail=b"Warning: no colours")
    refused = request(1, ending=Ending.REFUSED, refusal="model", detail="this session may use a; it asked for b")
    seen = {"result": {"returncode": 1, "stderr": said}}
    ended = end_of_session(session_of(rows=[refused], **seen))
    assert ended is not None
    told = "exit status 1; stderr: Warning: no colours"
    assert (ended.kind, ended.detail) == (
        EndingKind.AGENT_CRASH,
        f"the gateway refused its last request: this session may use a; it asked for b; {told}",
    )
    later = end_of_session(session_of(rows=[refused, request(2)], **seen))
    assert later is not None
    assert later.detail == told
    assert end(rows=[refused]) is None


@pytest.mark.parametrize(
    ("effort", "told", "flags"),
    [
        ("high", ["HIGH", "high"], []),
        ("high", ["high", None], ["work: effort"]),
        ("max", ["high", "high"], ["work: effort"]),
        (None, ["high", None], []),
    ],
)
def test_an_effort_that_the_model_was_not_told_is_flagged(
    effort: str | None, told: list[str | None], flags: list[str]
) -> None:
    rows = [request(n, effort=each) for n, each in enumerate(told, start=1)]
    unasked = [
        request(8, n_tools=0),
        request(9, agent_claim="sub"),
        request(10, ending=Ending.REFUSED, refusal="model"),
    ]
    assert integrity_flags([session_of(rows=[*rows, *unasked])], effort) == flags


def test_success_after_a_reply_that_was_left_is_flagged() -> None:
    report = Report(ended=True, is_error=False)
    left = request(2, ending=Ending.CLIENT_GONE)
    flags = ["work: says success after a reply that it did not wait for"]
    assert integrity_flags([session_of(rows=[request(1), left], report=report)], None) == flags
    assert integrity_flags([session_of(rows=[left, request(3)], report=report)], None) == []


def test_what_ends_after_its_time_is_out_of_time() -> None:
    assert end(late=True) is EndingKind.AGENT_TIMEOUT
    assert end(late=True, result={"returncode": 143}) is EndingKind.AGENT_TIMEOUT


def test_phases_have_evidence_kinds_of_their_own() -> None:
    kinds = [evidence_kind(name) for name in ("plan", "review", "work", "look")]
    invalid = EndingKind.IMPLEMENTATION_EVIDENCE_INVALID
    assert kinds == [EndingKind.PLAN_EVIDENCE_INVALID, EndingKind.REVIEW_EVIDENCE_INVALID, invalid, invalid]


def _spent(output: int, cost_usd: float | None, requests: int) -> Session:
    usage = replace(NOTHING_USED, output=output)
    spend = Spend(usage=usage, cost_usd=cost_usd, cost_without_cache_usd=cost_usd)
    closed = replace(CLOSED, totals=replace(CLOSED.totals, requests=requests, spend=spend), waited_ms=2000.0)
    return Session(
        phase="plan",
        result=replace(RESULT, elapsed_ms=5000.0),
        report=None,
        closed=closed,
        gateway_gone=False,
        rows=(),
        transcript=None,
        transcript_problem=None,
        out_of_time=False,
        environment={},
        undeclared={},
    )


def test_a_later_session_has_what_is_left_of_the_trials_budget() -> None:
    budget = Budget(tokens=100, cost_usd=1.0, requests=5, seconds=10.0)
    assert budget_left(budget, []) == Limits(tokens=100, cost_usd=1.0, requests=5, seconds=10.0)
    assert budget_left(budget, [_spent(30, 0.25, 2)]) == Limits(tokens=70, cost_usd=0.75, requests=3, seconds=7.0)
    assert budget_left(budget, [_spent(300, 2.0, 9)]) == Limits(tokens=0, cost_usd=0.0, requests=0, seconds=7.0)
    assert budget_left(Budget(), [_spent(300, None, 9)]) == Limits()


def test_a_cost_that_is_unknown_leaves_nothing_of_a_limit_on_cost() -> None:
    assert budget_left(Budget(cost_usd=1.0), [_spent(30, None, 2)]).cost_usd == 0.0


def test_tokens_that_are_unknown_leave_nothing_of_a_limit_on_tokens() -> None:
    session = _spent(30, 0.25, 2)
    assert session.closed is not None
    untold = replace(session.closed, totals=replace(session.closed.totals, unmeasured_requests=1))
    assert budget_left(Budget(tokens=100), [replace(session, closed=untold)]).tokens == 0


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="tokens is more than 0"):
        Budget(tokens=0)
