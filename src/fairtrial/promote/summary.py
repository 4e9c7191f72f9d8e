"""A promotion in a few lines: for whoever ran the sweep, and for the program that did."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final, cast

from rich.console import Console

from fairtrial.evidence.gate import Outcome
from fairtrial.promote.promotion import BoundDecision, Promotion, RunStatus
from fairtrial.report.document import Document, print_document
from fairtrial.report.gate import false_promotion_note

__all__ = ["describe_promotion", "print_promotion"]

WORDS: Final = {
    Outcome.PROMOTE: "the candidate wins",
    Outcome.KEEP_INCUMBENT: "keep the incumbent",
    Outcome.INSUFFICIENT_EVIDENCE: "not enough evidence",
}


def describe_promotion(promotion: Promotion) -> dict[str, object]:
    """What a program asks first; `promotion.json` has the rest."""
    return {
        "promotable": promotion.promotable,
        "rehearsal": promotion.rehearsal,
        "run_status": str(promotion.run_status),
        "decisions": [
            {
                "candidate_arm": each.candidate_arm,
                "decision": each.decision["decision"],
                "promotable": each.promotable,
                "reasons": _reasons(each),
                "inadmissible": [dict(reason) for reason in each.inadmissible],
                "false_promotion": asdict(each.false_promotion),
            }
            for each in promotion.decisions
        ],
    }


def print_promotion(promotion: Promotion, console: Console) -> None:
    """Print the decision on each arm with every reason."""
    notes: list[str] = []
    if promotion.rehearsal:
        notes.append("A rehearsal: a script may have played the model, so this says nothing of any model.")
    is_provisional = promotion.binding.policy.provisional
    if is_provisional:
        notes.append("On the learning tasks alone nothing is applied: the final gate decides.")
    if promotion.run_status is RunStatus.ABORTED:
        notes.append("The sweep was broken off: nothing of it may be applied until `fairtrial resume` has finished it.")
    for each in promotion.decisions:
        notes.append(f"{each.candidate_arm}: {WORDS[Outcome(str(each.decision['decision']))]}.")
        notes += [f"{each.candidate_arm}: {reason}" for reason in _reasons(each)]
        notes += [f"Not usable ({reason['kind']}): {reason['detail']}" for reason in each.inadmissible]
        notes.append(f"{each.candidate_arm}: {false_promotion_note(each.false_promotion)}")
    verdict = "may be applied" if promotion.promotable and not is_provisional else "may not be applied"
    title = f"The candidate {verdict}{', in a rehearsal' if promotion.promotable and promotion.rehearsal else ''}."
    print_document(Document(title=title, notes=notes, tables=()), console)


def _reasons(decision: BoundDecision) -> list[str]:
    """The reasons as they are, then those that only counting voids as failures adds."""
    found: list[str] = []
    for fields in (decision.decision, decision.as_failures):
        found += cast("list[str]", cast("Mapping[str, object]", fields)["reasons"])
    return list(dict.fromkeys(found))
