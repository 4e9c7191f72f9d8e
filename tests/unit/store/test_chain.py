import hashlib
import io
import json
from contextlib import suppress
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.store.chain import (
    MAX_LINE_BYTES,
    ChainedRow,
    ChainError,
    LineFault,
    encode_row,
    follow_chain,
    own_members,
    read_lines,
    render_lines,
)
from fairtrial.store.strict_json import MalformedJsonError, MemberReader

GENESIS = "0" * 64
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
ROWS = st.dictionaries(
    TEXTS.filter(lambda name: name not in {"schema", "sweep", "key", "attempt", "plan_index", "seq", "prev", "final"}),
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
)


def lines_of(*attempts: list[dict[str, object]], sweep: str = "s", key: str = "k") -> list[bytes]:
    data, seq, prev = b"", 0, GENESIS
    for number, rows in enumerate(attempts):
        encoded = [encode_row({"schema": "loop-row/1", **row}) for row in rows]
        more, prev = render_lines(encoded, sweep=sweep, key=key, attempt=number, plan_index=7, seq=seq, prev=prev)
        data += more
        seq += len(rows)
    return data.splitlines(keepends=True)


def follow(lines: list[bytes], sweep: str = "s") -> list[ChainedRow]:
    return list(follow_chain(lines, sweep=sweep, genesis=GENESIS))


def envelope(**members: object) -> bytes:
    row = {"schema": "x", "sweep": "s", "key": "k", "attempt": 0, "plan_index": 7, "seq": 0, "prev": "", "final": True}
    return json.dumps(row | members).encode() + b"\n"


def break_at(lines: list[bytes]) -> ChainError:
    with pytest.raises(ChainError) as caught:
        follow(lines)
    return caught.value


def test_a_line_is_plain_json_with_the_envelope_after_the_schema() -> None:
    (line,) = lines_of([{"note": "é", "schema": "loop-row/1"}])
    assert (
        line
        == (
            '{"schema":"loop-row/1","sweep":"s","key":"k","attempt":0,"plan_index":7,"seq":0,'
            f'"prev":"{GENESIS}","final":true,"note":"é"}}\n'
        ).encode()
    )


def test_each_line_names_the_digest_of_the_one_before_with_its_newline() -> None:
    lines = lines_of([{"n": 1}, {"n": 2}], [{}])
    prevs = [json.loads(line)["prev"] for line in lines]
    assert prevs == [GENESIS, *(hashlib.sha256(line).hexdigest() for line in lines[:-1])]
    assert [json.loads(line)["final"] for line in lines] == [False, True, True]
    assert [json.loads(line)["seq"] for line in lines] == [0, 1, 2]


@given(st.lists(st.lists(ROWS, min_size=1, max_size=3), max_size=3), TEXTS, TEXTS)
def test_what_is_rendered_is_followed_whatever_stands_in_it(
    attempts: list[list[dict[str, object]]], sweep: str, key: str
) -> None:
    rows = follow(lines_of(*attempts, sweep=sweep, key=key), sweep=sweep)
    assert [own_members(row.parse()) for row in rows] == [
        {"schema": "loop-row/1", **row} for attempt in attempts for row in attempt
    ]
    for row in rows:
        assert (row.identity.sweep, row.identity.key, row.identity.plan_index) == (sweep, key, 7)
        assert row.digest == hashlib.sha256(row.raw).hexdigest()
        encoded = encode_row(own_members(row.parse()))
        assert row.rest_at == -1 or row.raw[row.rest_at : -1] == encoded.rest
        if row.row is None:
            assert row.read_members(MemberReader(["key"])) == {"key": row.parse()["key"]}


def test_most_lines_in_our_own_form_are_not_parsed_at_all() -> None:
    rows = follow(lines_of([{"n": n} for n in range(5)]))
    assert [row.row for row in rows] == [None] * 5
    assert [row.final for row in rows] == [False] * 4 + [True]
    assert len({id(row.identity) for row in rows}) == 1


def test_a_line_with_an_escape_in_its_key_is_parsed_instead() -> None:
    (row,) = follow(lines_of([{}], key='a"b'))
    assert row.row is not None
    assert row.identity.key == 'a"b'
    assert row.parse() is row.row is row.read_members(MemberReader(["key"]))


def test_a_line_in_another_form_with_the_same_values_is_a_row_too() -> None:
    (line,) = lines_of([{"n": 1}])
    spaced = json.dumps(json.loads(line)).encode() + b"\n"
    (row,) = follow([spaced])
    assert row.rest_at == -1
    assert own_members(row.parse()) == {"schema": "loop-row/1", "n": 1}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"", LineFault.TORN),
        (b"{", LineFault.TORN),
        (b"{}", LineFault.TORN),
        (b"{\n", LineFault.UNPARSABLE),
        (b"\n", LineFault.UNPARSABLE),
        (b"[]\n", LineFault.UNPARSABLE),
        (b"{}\n", LineFault.NO_ENVELOPE),
        (
            b'{"schema":1,"sweep":"s","key":"k","attempt":0,"plan_index":7,"seq":0,"prev":"","final":true}\n',
            LineFault.NO_ENVELOPE,
        ),
        (
            b'{"schema":"x","sweep":"s","key":"k","attempt":true,"plan_index":7,"seq":0,"prev":"","final":true}\n',
            LineFault.NO_ENVELOPE,
        ),
        (
            b'{"schema":"x","sweep":"t","key":"k","attempt":0,"plan_index":7,"seq":0,"prev":"","final":true}\n',
            LineFault.FOREIGN,
        ),
        (
            b'{"schema":"x","sweep":"s","key":"k","attempt":0,"plan_index":7,"seq":0,"prev":"","final":true}\n',
            LineFault.UNLINKED,
        ),
    ],
)
def test_a_line_that_is_no_row_breaks_the_chain_and_says_how(line: bytes, fault: LineFault) -> None:
    error = break_at([line])
    assert (error.fault, error.line, error.offset, error.n_bytes) == (fault, 1, 0, len(line))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (b'"seq":1', b'"seq":2', LineFault.UNLINKED),
        (b'"prev":"', b'"prev":"0', LineFault.UNPARSABLE),
        (b'"sweep":"s"', b'"sweep":"t"', LineFault.FOREIGN),
        (b'"key":"k"', b'"key":"\xff"', LineFault.UNPARSABLE),
        (b'"attempt":0', b'"attempt":00', LineFault.UNPARSABLE),
        (b'"attempt":0', b'"attempt":"0"', LineFault.NO_ENVELOPE),
        (b"}\n", b"}", LineFault.TORN),
        (b"}\n", b"x\n", LineFault.UNPARSABLE),
    ],
)
@pytest.mark.parametrize("final", [True, False])
def test_a_changed_envelope_breaks_the_chain_at_its_line(
    old: bytes, new: bytes, fault: LineFault, *, final: bool
) -> None:
    lines = lines_of([{"n": 1}] * (2 if final else 3))
    lines[1] = lines[1].replace(old, new)
    if new == b'"prev":"0':
        lines[1] = lines[1].replace(b'","final"', b'"final"')
    error = break_at(lines)
    assert (error.line, error.offset, error.fault) == (2, len(lines[0]), fault)


def test_a_row_changed_after_its_envelope_is_found_by_the_next_line_and_by_parsing() -> None:
    lines = lines_of([{"n": 1}] * 3)
    lines[1] = lines[1].replace(b'"n":1', b'"n"1:')
    error = break_at(lines)
    assert (error.line, error.fault) == (3, LineFault.UNLINKED)
    _, row = islice(follow_chain(lines, sweep="s", genesis=GENESIS), 2)
    with pytest.raises(ChainError) as caught:
        row.parse()
    assert (caught.value.line, caught.value.offset, caught.value.fault) == (2, len(lines[0]), LineFault.UNPARSABLE)


@given(st.lists(st.binary(), max_size=5))
def test_any_lines_are_a_chain_or_break_it(lines: list[bytes]) -> None:
    with suppress(ChainError):
        assert len(follow(lines)) == len(lines)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({}, "no schema"),
        ({"schema": 1}, "another type"),
        ({"schema": 'x"y'}, "plain schema"),
        ({"schema": "x", "prev": ""}, "brings 'prev'"),
    ],
)
def test_a_row_that_is_none_is_not_encoded(row: dict[str, object], why: str) -> None:
    with pytest.raises(MalformedJsonError, match=why):
        encode_row(row)


def test_a_row_that_would_be_longer_than_any_line_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="keep what is long in an artifact"):
        encode_row({"schema": "x", "text": "x" * MAX_LINE_BYTES})


def test_a_line_without_end_is_read_in_pieces() -> None:
    pieces = list(read_lines(io.BytesIO(b"a\n" + bytes(2 * MAX_LINE_BYTES + 5))))
    assert [len(piece) for piece in pieces] == [2, MAX_LINE_BYTES, MAX_LINE_BYTES, 5]
