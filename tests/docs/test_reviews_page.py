"""`reviews.md` against the forms that are read and the figures that are computed."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairtrial.bench.review import (
    DESK,
    EMPTY_REVIEW,
    LISTS_EVERYTHING,
    PROSE_FILE,
    REVIEW_FILE,
    Left,
    judge_review,
    review_fields,
)
from fairtrial.evidence import review_gate
from fairtrial.evidence.reviews import ReviewAggregate
from fairtrial.judging import review
from fairtrial.judging.review_score import WEIGHTS

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

PAGE = "reviews.md"


def column(read_table: ReadTable, heading: str, name: str) -> list[str]:
    return [line[name].strip("`") for line in read_table(PAGE, heading) if name in line]


def test_the_keys_of_a_review_and_of_labels_are_those_that_are_read(read_table: ReadTable) -> None:
    def below(form: type[Any]) -> list[str]:
        return [f"findings[].{field.name}" for field in dataclasses.fields(form)]

    assert column(read_table, "A review", "key") == [
        *("schema_version", "verdict", "findings"),
        *below(review.Finding),
    ]
    assert column(read_table, "Labels", "key") == ["schema_version", "findings", *below(review.Label)]


def test_every_limit_and_word_is_told(reference: Path, read_table: ReadTable, names: Names) -> None:
    text = (reference / PAGE).read_text()
    for words in (
        f"at most {review.MAX_REVIEW_BYTES} bytes",
        f"at most {review.MAX_FINDINGS}",
        f"at most {review.MAX_NAME_BYTES} bytes",
        f"at most {review.MAX_PATH_BYTES} bytes",
        f"at most {review.MAX_TEXT_BYTES} bytes",
        f"at most {DESK.disk_bytes >> 20} MiB",
        f"by more than {review_gate.TOLERANCE:.0e}",
        f"at least {review_gate.MIN_F1_GAIN} in weighted F1",
    ):
        assert words in text, words
    told = {line["key"].strip("`"): line["meaning"] for line in read_table(PAGE, "A review")}
    assert set(names(told["verdict"])) == set(review.ReviewVerdict)
    assert names(told["findings[].severity"]) == list(review.Severity)
    weights = {
        line["severity"].strip("`"): int(line["weight"]) for line in read_table(PAGE, "The score") if "weight" in line
    }
    assert weights == {str(severity): weight for severity, weight in WEIGHTS.items()}


def test_the_fields_of_a_score_and_of_an_arms_reviews_are_those_of_rows_and_reports(
    read_table: ReadTable, names: Names
) -> None:
    left = Left(review=None, prose=None, problem=None)
    score = review_fields(judge_review(None, ()), left)["review"]
    assert isinstance(score, dict)
    told = [line for line in read_table(PAGE, "The score") if "field" in line]
    assert {line["field"].strip("`") for line in told} == score.keys()
    (problem,) = (line for line in told if line["field"] == "`problem`")
    assert names(problem["meaning"]) == list(review.ReviewProblem)
    assert column(read_table, "An arm's reviews", "field") == [
        field.name for field in dataclasses.fields(ReviewAggregate)
    ]


def test_the_files_and_the_controls_are_those_of_the_program(read_table: ReadTable) -> None:
    assert column(read_table, "The session", "file") == [REVIEW_FILE, PROSE_FILE]
    assert column(read_table, "Controls", "control") == [f"cheat-{name}" for name in (EMPTY_REVIEW, LISTS_EVERYTHING)]
