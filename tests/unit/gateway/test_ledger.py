import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.errors import IntegrityError
from fairtrial.gateway.ledger import Ending, Ledger, SeenCall, SeenResult, WireRow, read_ledger
from fairtrial.gateway.policy import ServedModel
from fairtrial.gateway.totals import cost_at_least, provider_fault, total_rows
from fairtrial.model.usage import NOTHING_USED, TokenUsage
from fairtrial.store.redact import Redactor

USED = TokenUsage(uncached_input=10, cache_write=2, cache_read=3, output=4, reasoning=1)
ROW = WireRow(
    n=1,
    trial="t",
    begun_utc="2026-11-29T00:00:00.000000Z",
    method="POST",
    path="/v1/messages",
    ask="generate",
    ending=Ending.ANSWERED,
    requested_model="m",
    served_model="m-20260101",
    served_as=ServedModel.SNAPSHOT,
    status=200,
    usage=USED,
    cost_usd=0.5,
    cost_without_cache_usd=0.75,
    tool_calls=(SeenCall(id="c", name="Bash", input="{}", is_partial=False),),
    tool_results=(SeenResult(call_id="c", name="Bash", is_error=None, n_characters=3),),
)


def _row(n: int, ending: Ending = Ending.ANSWERED, **changes: object) -> WireRow:
    went_out = ending not in {Ending.REFUSED, Ending.LOCAL}
    return replace(ROW, n=n, ending=ending, **{"went_out": went_out, **changes})  # type: ignore[arg-type]


def _write(path: Path, *rows: WireRow) -> str:
    ledger = Ledger(path, Redactor())
    for row in rows:
        ledger.begin(row)
        ledger.write(row)
    return ledger.close()


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    rows = [_row(1), _row(2, Ending.BROKEN, usage=None, cost_usd=None, detail="x")]
    digest = _write(tmp_path / "w", *rows)
    assert list(read_ledger(tmp_path / "w")) == rows
    assert digest == hashlib.sha256((tmp_path / "w").read_bytes()).hexdigest()


def test_an_existing_wire_log_is_not_touched(tmp_path: Path) -> None:
    _write(tmp_path / "w", _row(1))
    with pytest.raises(FileExistsError):
        Ledger(tmp_path / "w", Redactor())


def test_half_a_character_does_not_lose_a_row(tmp_path: Path) -> None:
    _write(tmp_path / "w", _row(1, detail="half \ud800 a character"))
    (row,) = read_ledger(tmp_path / "w")
    assert row.detail == "half \ufffd a character"


@pytest.mark.parametrize("n_torn", range(1, 60, 7))
def test_a_torn_end_is_a_request_that_was_begun(tmp_path: Path, n_torn: int) -> None:
    """B32."""
    path = tmp_path / "w"
    _write(path, _row(1), _row(2))
    path.write_bytes(path.read_bytes()[:-n_torn])
    whole, lost = read_ledger(path)
    assert whole == _row(1)
    assert (lost.n, lost.ending, lost.usage, lost.requested_model) == (2, Ending.BROKEN, None, "m")
    assert lost.went_out
    totals = total_rows([whole, lost])
    assert (totals.requests, totals.failed_requests, totals.spend.usage.output) == (2, 1, 4)


@pytest.mark.parametrize("line", [b"{}", b"x", b'{"kind":"begun"}', b'{"kind":"request","n":1}', b'{"kind":"other"}'])
def test_a_line_that_is_none_of_ours_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "w"
    _write(path, _row(1))
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(IntegrityError, match=r"w:3: no line of a wire log"):
        list(read_ledger(path))


def test_totals_add_whole_replies_and_keep_broken_ones_apart() -> None:
    part = replace(USED, output=1, is_lower_bound=True)
    totals = total_rows(
        [
            _row(1),
            _row(2, Ending.BROKEN, usage=part, cost_usd=0.1),
            _row(3, attempt=2),
            _row(4, agent_claim="a", served_model="n", served_as=ServedModel.OTHER),
            _row(5, Ending.REFUSED, refusal="egress", usage=None),
            _row(6, Ending.LOCAL, usage=None),
            _row(7, Ending.ERROR_STATUS, usage=None, cost_usd=None),
            _row(8, ask="count", usage=None, cost_usd=None),
        ]
    )
    assert (totals.requests, totals.failed_requests, totals.retries) == (6, 2, 1)
    assert totals.refused == {"egress": 1}
    assert (totals.spend.usage.output, totals.spend.cost_usd) == (12, 1.5)
    assert (totals.broken_spend.usage.output, totals.broken_spend.usage.is_lower_bound) == (1, True)
    assert {name: each.usage.output for name, each in totals.by_model.items()} == {"m-20260101": 8, "n": 4}
    assert {name: each.usage.output for name, each in totals.by_agent.items()} == {"main": 8, "subagent": 4}
    assert totals.other_models == ("n",)
    assert totals.unmeasured_requests == 0


HELD = {"usage": None, "cost_usd": None, "went_out": False}
"""Of a request whose client left, or whose trial was closed, before it was passed on."""


@pytest.mark.parametrize("ending", [Ending.CLIENT_GONE, Ending.STOPPED])
def test_a_request_that_never_went_out_counts_for_nothing(ending: Ending) -> None:
    totals = total_rows([_row(1), _row(2, ending, backed_off_ms=5.0, **HELD)])
    assert (totals.requests, totals.by_ending) == (1, {"answered": 1})
    assert totals.broken_spend.usage == NOTHING_USED
    assert totals.backed_off_ms == 5.0, "the client rested all the same"


@pytest.mark.parametrize("ending", [Ending.CLIENT_GONE, Ending.STOPPED])
def test_a_request_that_never_went_out_does_not_hide_the_providers_fault(ending: Ending) -> None:
    """A session that runs out of time while we hold its retry back is not the arm's failure."""
    limited = _row(1, Ending.ERROR_STATUS, status=429)
    assert provider_fault([limited, _row(2, ending, **HELD)]) == "status 429"
    assert provider_fault([limited, _row(2, ending)]) is None


def test_an_older_log_tells_by_its_begun_lines_which_requests_went_out(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "w", Redactor())
    ledger.begin(_row(1))
    for n in (1, 2):
        ledger.write(_row(n, Ending.STOPPED, went_out=False))
    ledger.close()
    begun, *rows = [json.loads(line) for line in (tmp_path / "w").read_bytes().splitlines()]
    for row in rows:
        del row["went_out"]
    (tmp_path / "old").write_text("".join(json.dumps(line) + "\n" for line in (begun, *rows)))
    assert [row.was_passed_on for row in read_ledger(tmp_path / "old")] == [True, False]


@pytest.mark.parametrize(
    ("other", "cost"),
    [
        (_row(2, ask="count", usage=None, cost_usd=None), 0.5),
        (_row(2, Ending.ERROR_STATUS, status=429, usage=None, cost_usd=None), 0.5),
        (_row(2, Ending.STOPPED, usage=None, cost_usd=None), 0.5),
        (_row(2, Ending.BROKEN, ask=None, usage=None, cost_usd=None), 0.5),
        (_row(2, Ending.STOPPED, cost_usd=0.25), 0.75),
        (_row(2, Ending.STOPPED, cost_usd=None), None),
        (_row(2, usage=None, cost_usd=None), None),
        (_row(2, cost_usd=None), None),
    ],
)
def test_the_least_that_a_broken_attempt_cost_is_told_unless_a_price_is_missing(
    other: WireRow, cost: float | None
) -> None:
    assert cost_at_least([_row(1), other]) == cost


def test_whose_a_request_is_stays_unknown_where_no_client_says() -> None:
    assert total_rows([_row(1, dialect="gemini")]).by_agent is None


@pytest.mark.parametrize(
    ("ending", "marked"),
    [(Ending.BROKEN, True), (Ending.CLIENT_GONE, True), (Ending.STOPPED, True), (Ending.ERROR_STATUS, False)],
)
def test_a_reply_that_broke_before_it_told_its_usage_marks_what_broken_replies_cost(
    ending: Ending, marked: bool
) -> None:
    totals = total_rows([_row(1), _row(2, ending, usage=None, cost_usd=None)])
    assert totals.broken_spend.usage.is_lower_bound is marked
    assert not totals.spend.usage.is_lower_bound


def test_a_trial_without_requests_used_nothing_and_that_is_known() -> None:
    totals = total_rows([])
    assert (totals.spend.usage, totals.spend.cost_usd) == (NOTHING_USED, 0.0)


def test_one_unknown_makes_the_sum_unknown() -> None:
    """B28, B29."""
    totals = total_rows([_row(1), _row(2, usage=None, cost_usd=None)])
    assert (totals.spend.usage.output, totals.spend.cost_usd, totals.unmeasured_requests) == (None, None, 1)
    assert total_rows([_row(1, cost_usd=0.0)]).spend.cost_usd == 0.0


@pytest.mark.parametrize(
    ("last", "fault"),
    [
        (_row(2), None),
        (_row(2, Ending.ERROR_STATUS, status=500), "status 500"),
        (_row(2, Ending.ERROR_STATUS, status=429), "status 429"),
        (_row(2, Ending.ERROR_STATUS, status=529), "status 529"),
        (_row(2, Ending.ERROR_STATUS, status=400), None),
        (_row(2, Ending.BROKEN, status=None, detail="reset"), "broken connection: reset"),
        (_row(2, Ending.ERROR_EVENT, error_kind="overloaded_error", detail="busy"), "error in the stream: busy"),
        (_row(2, Ending.ERROR_EVENT, error_kind="invalid_request_error", detail="too long"), None),
        (_row(2, Ending.CLIENT_GONE), None),
        (_row(2, Ending.ERROR_STATUS, status=500, agent_claim="a"), None),
        (_row(2, Ending.REFUSED, refusal="budget"), None),
    ],
)
def test_only_the_provider_voids_a_trial_and_only_by_the_main_loops_last_request(
    last: WireRow, fault: str | None
) -> None:
    assert provider_fault([_row(1), last]) == fault


def test_what_the_gateway_refused_says_nothing_about_the_provider() -> None:
    rows = [_row(1, Ending.ERROR_STATUS, status=500), _row(2, Ending.REFUSED, refusal="path")]
    assert provider_fault(rows) == "status 500"
    assert provider_fault([]) is None
