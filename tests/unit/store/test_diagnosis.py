"""Diagnosis on chains made of thin air: what was done to them must be what is found."""

import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.store.diagnosis import Diagnosis, LineIndex, Sealed, diagnose
from fairtrial.store.problems import ProblemKind as K

GENESIS = hashlib.sha256(b"sweep").digest()
Line = tuple[int, bytes, bytes]
"""seq, prev, digest."""


def chain(n_lines: int) -> list[Line]:
    lines: list[Line] = []
    prev = GENESIS
    for seq in range(n_lines):
        digest = hashlib.sha256(b"%d" % seq + prev).digest()
        lines.append((seq, prev, digest))
        prev = digest
    return lines


def other(digest: bytes) -> bytes:
    return hashlib.sha256(digest).digest()


def explain(
    lines: list[Line | None],
    *,
    seal: Sealed | None = None,
    genesis: bytes = GENESIS,
    vouched: Callable[[int], bool | None] = lambda _: None,
) -> list[tuple[K, int, int]]:
    return [(finding.kind, finding.first, finding.last) for finding in run(lines, seal, genesis, vouched).findings]


def run(
    lines: list[Line | None], seal: Sealed | None, genesis: bytes, vouched: Callable[[int], bool | None]
) -> Diagnosis:
    index = LineIndex()
    for number, line in enumerate(lines):
        if line is None:
            index.add_unreadable(n_bytes=1, digest=other(b"%d" % number))
        else:
            index.add(n_bytes=1, digest=line[2], seq=line[0], prev=line[1].hex())
    return diagnose(index, genesis=genesis, seal=seal, vouched=vouched)


def sealed(lines: list[Line]) -> Sealed:
    return Sealed(len(lines), lines[-1][2])


SEALS = pytest.mark.parametrize("is_sealed", [True, False])


@SEALS
def test_a_whole_chain_has_no_findings(is_sealed: bool) -> None:
    lines = chain(5)
    diagnosis = run(list(lines), sealed(lines) if is_sealed else None, GENESIS, lambda _: None)
    assert diagnosis == Diagnosis(findings=(), order=(0, 1, 2, 3, 4), changed=frozenset(), holed=frozenset())


@given(st.data())
def test_one_deed_is_found_as_the_one_that_was_done(data: st.DataObject) -> None:
    whole = chain(data.draw(st.integers(3, 12)))
    last = len(whole) - 1
    seal = sealed(whole) if data.draw(st.booleans()) else None
    at = data.draw(st.integers(0, last if seal else last - 1))
    lines: list[Line | None] = list(whole)
    deed = data.draw(st.sampled_from(["change", "prev", "seq", "garble", "drop", "copy", "move", "add"]))
    seq, prev, digest = whole[at]
    if deed == "change":
        lines[at] = (seq, prev, other(digest))
        expected = [(K.ROW_CHANGED, at, at)]
    elif deed == "prev":
        lines[at] = (seq, other(prev), other(digest))
        expected = [(K.ROW_CHANGED, at, at)]
    elif deed == "seq":
        lines[at] = (data.draw(st.integers(-1, 10**30).filter(lambda new: new != seq)), prev, other(digest))
        expected = [(K.ROW_CHANGED, at, at)]
    elif deed == "garble":
        lines[at] = None
        expected = [(K.ROW_CHANGED, at, at)]
    elif deed == "drop":
        del lines[at]
        expected = [(K.ROW_DROPPED, at, at)]
    elif deed == "copy":
        to = data.draw(st.integers(at + 1, len(lines)))
        lines.insert(to, lines[at])
        expected = [(K.ROW_DUPLICATED, to, to)]
    elif deed == "move":
        to = data.draw(st.integers(0, last).filter(lambda to: abs(to - at) > 1))
        lines.insert(to, lines.pop(at))
        expected = [(K.ROW_REORDERED, to, to)]
    else:
        lines.insert(at, None)
        expected = [(K.ROW_ADDED, at, at)]
    assert explain(lines, seal=seal) == expected


@given(st.data())
def test_any_claims_at_all_are_explained(data: st.DataObject) -> None:
    whole = chain(6)
    digests = st.sampled_from([digest for _, _, digest in whole] + [GENESIS, bytes(32)])
    line = st.none() | st.tuples(st.integers(-2, 9), digests, digests) | st.sampled_from(whole)
    lines = data.draw(st.lists(line, max_size=10))
    seal = data.draw(st.none() | st.builds(Sealed, st.integers(0, 9), digests))
    votes = data.draw(st.lists(st.sampled_from([True, False, None]), min_size=11, max_size=11))
    diagnosis = run(lines, seal, GENESIS, lambda line: votes[line])
    assert len(set(diagnosis.order)) == len(diagnosis.order)
    seqs = [lines[line][0] for line in diagnosis.order]  # type: ignore[index]
    assert seqs == sorted(set(seqs))


def test_a_run_of_changed_rows_is_one_finding() -> None:
    lines = chain(8)
    garbled: list[Line | None] = [*lines[:2], None, None, None, *lines[5:]]
    assert explain(garbled, seal=sealed(lines)) == [(K.ROW_CHANGED, 2, 4)]
    assert explain([*lines[:2], None, *lines[5:]]) == [(K.ROW_CHANGED, 2, 2), (K.ROW_DROPPED, 3, 3)]


def test_two_neighbours_changed_are_told_by_what_vouches_for_them() -> None:
    lines = chain(6)
    both: list[Line | None] = list(lines)
    for at in (2, 3):
        seq, prev, digest = lines[at]
        both[at] = (seq, prev, other(digest))
    assert explain(both, vouched=lambda line: line not in {2, 3}) == [(K.ROW_CHANGED, 2, 3)]
    assert explain(both) == [(K.ROW_CHANGED, 3, 3)]


def test_the_last_row_of_an_open_chain_is_to_blame_when_the_one_before_is_vouched_for() -> None:
    lines: list[Line | None] = list(chain(3))
    seq, prev, digest = chain(3)[2]
    lines[2] = (seq, other(prev), digest)
    assert explain(lines, vouched=lambda line: line != 2) == [(K.ROW_CHANGED, 2, 2)]
    assert explain(lines) == [(K.ROW_CHANGED, 1, 1)]


@SEALS
def test_another_sweep_file_is_told_from_a_changed_first_row(is_sealed: bool) -> None:
    lines = chain(3)
    seal = sealed(lines) if is_sealed else None
    assert explain(list(lines), genesis=other(GENESIS), seal=seal) == [(K.SWEEP_CHANGED, -1, -1)]
    seq, prev, digest = lines[0]
    assert explain([(seq, other(prev), other(digest)), *lines[1:]], seal=seal) == [(K.ROW_CHANGED, 0, 0)]


def test_a_seal_that_names_another_head_is_told_from_a_changed_last_row() -> None:
    lines = chain(3)
    seal = Sealed(3, other(lines[2][2]))
    assert explain(list(lines), seal=seal, vouched=lambda _: True) == [(K.SEAL_CHANGED, 2, 2)]
    assert explain(list(lines), seal=seal, vouched=lambda _: False) == [(K.ROW_CHANGED, 2, 2)]
    assert explain(list(lines), seal=Sealed(2, lines[1][2])) == [(K.ROW_ADDED, 2, 2)]
    assert explain(list(lines), seal=Sealed(5, lines[1][2])) == [(K.ROW_DROPPED, 3, 3)]


def test_a_row_far_ahead_that_nothing_vouches_for_was_added_and_hides_no_drop() -> None:
    lines: list[Line | None] = [*chain(3), (90, other(GENESIS), other(GENESIS))]
    assert explain(lines, vouched=lambda line: line != 3) == [(K.ROW_ADDED, 3, 3)]
    assert explain(lines) == [(K.ROW_DROPPED, 3, 3)]


def test_two_rows_that_claim_one_place_are_told_by_who_follows_them() -> None:
    lines = chain(4)
    impostor = (1, GENESIS, other(GENESIS))
    assert explain([lines[0], impostor, *lines[1:]]) == [(K.ROW_ADDED, 1, 1)]
    assert explain([*lines, impostor], seal=sealed(lines)) == [(K.ROW_ADDED, 4, 4)]


def test_a_million_lines_are_explained_in_little_time_and_memory() -> None:
    lines = chain(50_000)
    index = LineIndex()
    for seq, prev, digest in lines[1::2]:
        index.add(n_bytes=1, digest=digest, seq=seq, prev=prev.hex())
    diagnosis = diagnose(index, genesis=GENESIS, seal=None, vouched=lambda _: None)
    assert {finding.kind for finding in diagnosis.findings} == {K.ROW_DROPPED}
    assert len(diagnosis.findings) == 25_000
