"""What a proposer may see of what was measured. Pure.

It is built up, never cut down: from rows of the learning tasks a few named fields are taken, and nothing else. No
oracle, reference, cheat, holdout task or judge's detail has a field here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from fairtrial.bench.controls import NOP, REFERENCE
from fairtrial.evidence.endings import is_void, kind_of
from fairtrial.evidence.rows import Row, flag, measured, text
from fairtrial.evolve.learnings import Learning
from fairtrial.evolve.values import StepKind, StepOutcome
from fairtrial.store.redact import Redactor

__all__ = ["EVIDENCE_SCHEMA", "MAX_ROWS", "ChosenRow", "choose_rows", "evidence_document", "gate_lines"]

EVIDENCE_SCHEMA: Final = "evolve-evidence/1"
MAX_ROWS: Final = 12
MAX_GATE_REASONS: Final = 3
VERIFY_TAIL_CHARACTERS: Final = 600
_CONTROLS: Final = frozenset({NOP, REFERENCE})
"""Agents that play a control: their transcripts and changes are references and cheats."""
_FIGURES: Final = ("cost_usd", "num_turns", "output_tokens", "diff_files", "diff_insertions", "diff_deletions")
_REVIEW_FIGURES: Final = (
    "weighted_f1",
    "weighted_precision",
    "weighted_recall",
    "blocker_recall",
    "true_positives",
    "false_positives",
    "false_negatives",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRow:
    """A row that becomes evidence.

    Attributes:
        key: The trial, and
        attempt: the attempt that it is of.
        transcripts: Names of its transcripts' files.
        compact: What the proposer sees of it.
    """

    key: str
    attempt: int
    transcripts: tuple[str, ...]
    compact: dict[str, object]


def choose_rows(rows: Iterable[Row], learning_tasks: Iterable[str]) -> tuple[ChosenRow, ...]:
    """Choose at most `MAX_ROWS` rows: unresolved ones first, then resolved ones, the dearest first.

    Args:
        rows: Rows of a sweep of the agent lane, in any order; voids are no evidence, and controls (references, cheats)
            are what a proposer may not see.
        learning_tasks: Ids of the tasks that may be learnt from; every other row is left out.

    Raises:
        UsageError: A row's `error_kind` is neither text nor null.
    """
    allowed = frozenset(learning_tasks)
    usable = [
        row for row in rows if row.get("task") in allowed and row.get("agent") not in _CONTROLS and not is_void(row)
    ]
    unresolved = sorted((row for row in usable if not _resolved(row)), key=_place)
    resolved = sorted((row for row in usable if _resolved(row)), key=lambda row: (-_cost(row), _place(row)))
    return tuple(_choose(row) for row in (*unresolved, *resolved)[:MAX_ROWS])


def evidence_document(
    chosen: Sequence[ChosenRow],
    *,
    generation: int,
    gate: Sequence[str],
    learnings: Sequence[Learning],
    n_malformed_learnings: int,
    transcripts: Mapping[str, Sequence[str]],
) -> dict[str, object]:
    """Give the evidence as the proposer's `evidence.json` holds it.

    Args:
        chosen: The rows.
        generation: Number of the generation that it is for.
        gate: One line a decision on earlier candidates.
        learnings: What was learnt before.
        n_malformed_learnings: Lines of the queue that could not be read.
        transcripts: Paths of the copied transcripts, by the row's key.
    """
    return {
        "schema": EVIDENCE_SCHEMA,
        "generation": generation,
        "rows": [{**row.compact, "transcripts": list(transcripts.get(row.key, ()))} for row in chosen],
        "gate": list(gate),
        "learnings": [{"skill": each.skill, "text": each.text} for each in learnings],
        "malformed_learnings": n_malformed_learnings,
    }


def gate_lines(outcomes: Sequence[StepOutcome]) -> tuple[str, ...]:
    """Give one line for each decision on the learning tasks, with its first reasons.

    What the final gate said stays out: its reasons name holdout tasks.
    """
    return tuple(
        f"generation {outcome.generation}: {outcome.result}: {' '.join(outcome.reasons[:MAX_GATE_REASONS])}"
        for outcome in outcomes
        if outcome.step is StepKind.MEASURE
    )


def _resolved(row: Row) -> bool:
    return row.get("resolved") is True and kind_of(row) is None


def _place(row: Row) -> tuple[str, str, float]:
    return (str(row.get("task")), str(row.get("arm")), measured(row.get("run")) or 0.0)


def _cost(row: Row) -> float:
    return measured(row.get("cost_usd")) or 0.0


def _choose(row: Row) -> ChosenRow:
    redactor = Redactor()
    tail = text(row.get("verify_output"))
    figures = {name: measured(row.get(name)) for name in _FIGURES}
    attempt = row.get("attempt")
    return ChosenRow(
        key=str(row.get("key")),
        attempt=attempt if isinstance(attempt, int) else 0,
        transcripts=_paths(row.get("transcript_artifacts")),
        compact={
            "task": row.get("task"),
            "class": text(row.get("class")),
            "arm": row.get("arm"),
            "run": measured(row.get("run")),
            "resolved": _resolved(row),
            "error_kind": kind_of(row),
            **figures,
            "session_ids": list(_texts(row.get("session_ids"))),
            "patch_file": text(row.get("patch_file")),
            "verify_tail": None if tail is None else redactor.redact_text(tail)[-VERIFY_TAIL_CHARACTERS:],
            "review": _review(row),
        },
    )


def _paths(value: object) -> tuple[str, ...]:
    """Names of files in a row's records of them."""
    records = cast("list[object]", value) if isinstance(value, list) else []
    return _texts([cast("Row", each).get("path") for each in records if isinstance(each, dict)])


def _review(row: Row) -> dict[str, object] | None:
    """How good a review was. Which findings are right, and what was to be advised, are the labels, and stay hidden."""
    found = row.get("review")
    if not isinstance(found, dict):
        return None
    score = cast("Mapping[str, object]", found)
    return {
        "problem": text(score.get("problem")),
        "verdict": text(score.get("verdict")),
        "verdict_correct": flag(score.get("verdict_correct")),
        "clean_pass": flag(score.get("clean_pass")),
        **{name: measured(score.get(name)) for name in _REVIEW_FIGURES},
    }


def _texts(value: object) -> tuple[str, ...]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(each for each in items if isinstance(each, str))
