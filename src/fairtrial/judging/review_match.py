"""Which finding of a review stands for which label: a largest possible matching, and the best of these. Pure.

A finding may stand for a label when both name the same file and their lines overlap. Of all matchings with the most
pairs the one is taken that has the most pairs of equal category, then the least difference in severity, then lies
nearest, then has the narrowest labels. What is still equal is decided by content. So the order in which either side is
written changes nothing.
"""

from collections.abc import Sequence
from dataclasses import astuple
from typing import Final, NamedTuple

from fairtrial.judging.review import MAX_FINDINGS, MAX_LINE, Finding, Label, Severity

__all__ = ["Pair", "match_findings"]

RANK: Final = {severity: rank for rank, severity in enumerate(Severity)}
# One whole number holds the four doubts, the weightier to the left: what sums over a whole matching can never carry
# over into the next place.
_WIDTH: Final = 1
_NEARNESS: Final = _WIDTH * (MAX_FINDINGS * MAX_LINE + 1)
_SEVERITY: Final = _NEARNESS * (MAX_FINDINGS * 2 * MAX_LINE + 1)
_CATEGORY: Final = _SEVERITY * (MAX_FINDINGS * len(Severity) + 1)
_APART: Final = _CATEGORY * (MAX_FINDINGS + 1)
"""The cost of two that cannot stand for each other: more than any whole matching."""


class Pair(NamedTuple):
    """A finding that stands for a label."""

    finding: Finding
    label: Label


def match_findings(findings: Sequence[Finding], labels: Sequence[Label]) -> tuple[Pair, ...]:
    """Match findings with labels, each at most once; by path, then by the label's place."""
    pairs: list[Pair] = []
    for path in sorted({label.path for label in labels}):
        said = sorted((each for each in findings if each.path == path), key=astuple)
        known = sorted((each for each in labels if each.path == path), key=astuple)
        pairs += _match(said, known)
    return tuple(sorted(pairs, key=lambda pair: (pair.label.path, pair.label.line_start, pair.label.id)))


def _match(findings: Sequence[Finding], labels: Sequence[Label]) -> list[Pair]:
    """Match those of one file."""
    costs = [[_cost(finding, label) for label in labels] for finding in findings]
    if len(findings) <= len(labels):
        chosen = list(enumerate(_assign(costs))) if findings else []
    else:
        turned = [list(column) for column in zip(*costs, strict=True)]
        chosen = [(row, column) for column, row in enumerate(_assign(turned))]
    return [Pair(findings[row], labels[column]) for row, column in chosen if costs[row][column] < _APART]


def _cost(finding: Finding, label: Label) -> int:
    if finding.end_line < label.line_start or label.line_end < finding.line:
        return _APART
    return (
        _CATEGORY * (finding.category != label.category)
        + _SEVERITY * abs(RANK[finding.severity] - RANK[label.severity])
        + _NEARNESS * (abs(finding.line - label.line_start) + abs(finding.end_line - label.line_end))
        + _WIDTH * (label.line_end - label.line_start)
    )


def _assign(costs: Sequence[Sequence[int]]) -> list[int]:
    """Give each row a column of its own so that the costs together are least; there are no fewer columns than rows.

    Source: H. W. Kuhn, The Hungarian method for the assignment problem (1955), in the form with potentials that adds
    one row after the other along a shortest augmenting path; rows x columns x rows steps.
    """
    n_columns = len(costs[0])
    far = _APART * (MAX_FINDINGS + 1) * 2
    row_potential, column_potential = [0] * len(costs), [0] * (n_columns + 1)
    owner: list[int | None] = [None] * (n_columns + 1)
    for new_row in range(len(costs)):
        owner[n_columns], column = new_row, n_columns  # the last column is none: the path begins there
        least, came_from, used = [far] * n_columns, [n_columns] * n_columns, [False] * (n_columns + 1)
        while (row := owner[column]) is not None:
            used[column] = True
            for other in range(n_columns):
                reduced = costs[row][other] - row_potential[row] - column_potential[other]
                if not used[other] and reduced < least[other]:
                    least[other], came_from[other] = reduced, column
            step, nearest = min((least[other], other) for other in range(n_columns) if not used[other])
            for other in range(n_columns + 1):
                held = owner[other]
                if used[other] and held is not None:
                    row_potential[held] += step
                    column_potential[other] -= step
                elif other < n_columns:
                    least[other] -= step
            column = nearest
        while column != n_columns:
            owner[column], column = owner[came_from[column]], came_from[column]
    chosen = {row: column for column, row in enumerate(owner[:n_columns]) if row is not None}
    return [chosen[row] for row in range(len(costs))]
