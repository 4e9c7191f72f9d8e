import io
import json
from dataclasses import replace
from datetime import UTC, datetime

from rich.console import Console

from fairtrial.evidence.admit import Admission, Reason, ReasonKind
from fairtrial.evidence.gate import GatePolicy
from fairtrial.evidence.resample import FalsePromotion
from fairtrial.evidence.verdict import Verdict, judge_candidate
from fairtrial.report.gate import gate_json, print_gate

POLICY = GatePolicy(incumbent_arm="old", candidate_arm="new", model="m-1")
FIT = Admission(sealed=True, n_uncounted=0, now=datetime(2026, 11, 29, tzinfo=UTC))


def verdict(*, voids: int = 0, policy: GatePolicy = POLICY, runs: int = 3) -> Verdict:
    rows: list[dict[str, object]] = []
    for run in range(runs):
        for arm, cost in (("old", 2.0), ("new", 1.0)):
            row = {"task": "t", "arm": arm, "key": f"{arm}{run}", "attempt": 2, "resolved": True, "cost_usd": cost}
            rows.append({**row, "num_turns": cost})
    for void in range(voids):
        row = {"task": "t", "arm": "new", "key": f"new{void}", "attempt": 1, "error_kind": "session-error"}
        rows.append({**row, "cost_usd": None, "num_turns": None})
    found = judge_candidate(lambda: iter(rows), policy, FIT, seed=1)
    return replace(found, inadmissible=())


def printed(found: Verdict) -> str:
    stream = io.StringIO()
    print_gate(found, Console(file=stream, width=200))
    return " ".join(stream.getvalue().split())


def test_the_object_is_plain_json_and_begins_with_its_schema() -> None:
    fields = gate_json(verdict())
    assert fields == json.loads(json.dumps(fields))
    assert list(fields)[:5] == ["schema", "decision", "promotable", "rehearsal", "sealed"]
    assert fields["promotable"] is True


def test_a_winner_is_told_with_its_reason() -> None:
    text = printed(verdict())
    assert text.startswith("The candidate wins. new may be promoted over old. the median improvement")
    assert "Not usable" not in text


def test_a_promotion_that_voids_would_undo_is_told() -> None:
    found = verdict(voids=1)
    assert not found.promotable
    text = printed(found)
    assert "The candidate wins. new is not to be promoted over old." in text
    assert "With voids as failures: task t: the candidate resolved 3 of 4" in text


def test_reasons_and_warnings_are_told_and_foreign_text_is_made_visible() -> None:
    found = verdict(policy=replace(POLICY, metric="num_turns"))
    found = replace(found, inadmissible=(Reason(kind=ReasonKind.OTHER_MODEL, detail="of model \x1b[31m"),))
    text = printed(found)
    assert "Not usable (other-model): of model \\x1b[31m" in text
    assert "num_turns: turns differ in length" in text


def test_the_rate_says_which_of_both_shares_it_is() -> None:
    both = FalsePromotion(
        seed=5,
        n_resamples=2000,
        n_promoted=100,
        n_promoted_spread=300,
        n_insufficient=0,
        p_promoted=0.15,
        unmeasured_reason=None,
    )
    text = printed(replace(verdict(), false_promotion=both))
    assert "About 15.0 % of candidates equal to the incumbent are promoted by this policy" in text
    assert "the larger of 5.0 % of 2000 resamples of the incumbent's own runs, seed 5, and 15.0 % of as many" in text


def test_a_rate_that_cannot_be_told_is_said_to_be_unknown() -> None:
    text = printed(verdict(runs=2))
    assert "Not enough evidence." in text
    assert "How often this policy promotes an equal candidate cannot be told: the incumbent's runs are too few" in text
