"""The truth check as a pure function."""

from dataclasses import replace

import pytest

from fairtrial.loop.truth import Expectation, judge_joined, judge_truth
from fairtrial.model.loop import Reading, Truth

HEAD, OTHER = "a" * 40, "b" * 40
EXPECTED = Expectation(branch="work/task-0", head=HEAD, content=b"exact\n")
STORE = Reading(source="store", head=HEAD, content=b"exact\n")
WIRE = Reading(source="wire", head=HEAD, content=b"exact\n")


def test_exact_head_and_bytes_by_both_ways_in_a_sound_store_hold() -> None:
    check = judge_truth(EXPECTED, Truth(readings=(STORE, WIRE), integrity=True))
    assert check.holds is True
    assert check.failures == ()


@pytest.mark.parametrize(
    ("truth", "sentence"),
    [
        (Truth(readings=(Reading(source="store", head=None, content=None), WIRE), integrity=True), "store: no branch"),
        (
            Truth(readings=(STORE, Reading(source="wire", head=OTHER, content=b"exact\n")), integrity=True),
            "wire: work/task-0 is at",
        ),
        (
            Truth(readings=(STORE, Reading(source="wire", head=HEAD, content=b"exact\nmore\n")), integrity=True),
            "wire: the notes differ",
        ),
        (
            Truth(readings=(STORE, Reading(source="wire", head=HEAD, content=None, detail="bad zlib")), integrity=True),
            "bad zlib",
        ),
        (
            Truth(readings=(STORE, WIRE), integrity=False, integrity_detail="broken link"),
            "integrity check: broken link",
        ),
        (Truth(readings=(), integrity=True), "nothing was read back"),
    ],
)
def test_anything_else_does_not_hold_and_says_why(truth: Truth, sentence: str) -> None:
    check = judge_truth(EXPECTED, truth)
    assert check.holds is False
    assert any(sentence in failure for failure in check.failures)


def test_a_reading_that_failed_proves_nothing_and_hides_nothing() -> None:
    refused = Reading(source="wire", head=None, content=None, detail="connection refused", failed=True)
    check = judge_truth(EXPECTED, Truth(readings=(STORE, refused), integrity=True))
    assert (check.holds, check.failures) == (None, ("wire: could not be read (connection refused)",))
    assert judge_truth(EXPECTED, Truth(readings=(replace(STORE, head=OTHER), refused), integrity=True)).holds is False
    assert judge_truth(EXPECTED, Truth(readings=(STORE, refused), integrity=False)).holds is False


def test_without_a_head_recorded_before_publication_nothing_is_proven() -> None:
    unknown = Expectation(branch="work/task-0", head=None, content=b"exact\n")
    assert judge_truth(unknown, Truth(readings=(STORE, WIRE), integrity=True)).holds is None


def test_what_was_joined_is_held_by_one_head_alone() -> None:
    assert judge_joined(EXPECTED, Truth(readings=(STORE, WIRE), integrity=True)) == ()
    forked = Truth(readings=(STORE, replace(WIRE, beside=(OTHER,))), integrity=True)
    assert judge_truth(EXPECTED, forked).holds is True
    assert judge_joined(EXPECTED, forked) == (f"wire: work/task-0 still forks to {OTHER}",)
    (moved, *_) = judge_joined(EXPECTED, Truth(readings=(replace(STORE, head=OTHER), WIRE), integrity=True))
    assert moved.startswith("store: work/task-0 is at")


def test_without_a_head_nothing_was_joined() -> None:
    assert judge_joined(replace(EXPECTED, head=None), Truth(readings=(STORE, WIRE), integrity=True))
