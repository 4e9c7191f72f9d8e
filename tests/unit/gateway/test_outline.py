"""A large body's outline: strict exactly where the body is, short whatever its size, and restored to the byte."""

import asyncio
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pytest

from fairtrial.gateway import outline as outlines
from fairtrial.gateway.egress import BadRequestError, read_body
from fairtrial.gateway.fields import render_compact
from fairtrial.gateway.outline import LONG_BYTES, Outline, read_outline
from fairtrial.gateway.spool import Spool

N: Final = LONG_BYTES
EURO: Final = "\u20ac"
CLEF: Final = "\U0001d11e"
LONG: Final = [
    "x" * (N + 2),
    "data:image/png;base64," + "A" * 3 * N,
    EURO * N,
    f"{CLEF}a" * N,
    'say "no"\n\\' * N,
    "\\" * 3 * N,
    "https://example.org/" + "\x7f" * N,
    "{[,:]}" * N,
]


SIZES: Final = (1, 2, 3, 5, 7, 11, 13, 100, 1000, 5000)


def split(data: bytes, seed: int) -> list[bytes]:
    """The data in pieces, most of them short."""
    sizes = cycle(SIZES[byte % len(SIZES)] for byte in sha256(bytes([seed])).digest())
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        n_bytes = next(sizes)
        pieces.append(data[at : at + n_bytes])
        at += n_bytes
    return pieces


def outline_of(data: bytes, *, seed: int = 1) -> Outline:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in split(data, seed):
            yield piece

    return asyncio.run(_read(pieces()))


async def _read(pieces: AsyncIterator[bytes]) -> Outline:
    return await read_outline(pieces)


def is_strict(data: bytes) -> bool:
    try:
        read_body(data, max_bytes=1 << 30)
    except BadRequestError:
        return False
    return True


def has_strict_outline(data: bytes) -> bool:
    try:
        return is_strict(outline_of(data).data)
    except BadRequestError:
        return False


def filled(spool: Spool, data: bytes) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield data

    asyncio.run(spool.fill(body()))


@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("text", LONG)
def test_a_long_text_is_left_out_but_its_beginning_and_comes_back_to_the_byte(
    text: str, is_ascii: bool, tmp_path: Path
) -> None:
    body: Any = {"a": [text, "short", {"b": text[1:], "c": 1.50}], "d": ""}
    data = json.dumps(body, ensure_ascii=is_ascii).encode()
    found = outline_of(data)
    read = read_body(found.data, max_bytes=1 << 20)
    assert len(found.data) < 3000
    assert read["a"][0].startswith(text[:100])
    assert read["a"][1:] == ["short", {"b": read["a"][2]["b"], "c": 1.5}]
    assert [found.n_characters(each) for each in (read["a"][0], read["a"][2]["b"], "short")] == [
        len(text),
        len(text) - 1,
        5,
    ]
    with Spool(tmp_path) as spool:
        filled(spool, data)
        restored = b"".join(found.restored(render_compact({**read, "e": True}), spool))
    assert json.loads(restored) == {**body, "e": True}
    assert json.dumps(text, ensure_ascii=is_ascii).encode() in restored, "as it was written"


def test_two_texts_that_begin_alike_are_two_and_one_text_twice_is_one() -> None:
    same, other = "x" * 2 * N, "x" * 2 * N + "y"
    first, second, third = json.loads(outline_of(json.dumps({"a": [same, other, same]}).encode()).data)["a"]
    assert first == third != second


@pytest.mark.parametrize("n_bytes", [N - 1, N, N + 1])
def test_a_text_is_left_out_from_a_byte_over_the_limit(n_bytes: int) -> None:
    data = b'{"a":"' + b"x" * n_bytes + b'"}'
    assert (outline_of(data).data == data) is (n_bytes <= N)


BROKEN: Final = [
    "%s",
    '%s\\"',
    "%s\\",
    "%s\\x41",
    "%s\\u12",
    '%s\\u12"',
    "%s\\ud800",
    "%s\\ud800x" + "y" * 20,
    "%s\\ud800\\u0041",
    "%s\\udc00",
    "%s\\udc00\\ud800",
    "%s\\ud834\\udd1e",
    "%s\\\\ud800",
    "%s\n",
    "%s\x00",
    "%s\x7f",
    "\\u0000%s",
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", BROKEN)
@pytest.mark.parametrize("place", ['{"a": "@"}', '{"a": ["@", {"@": 1}]}', '{"a": "@", "a": 1}', '{"a": "@'])
def test_an_outline_is_strict_if_and_only_if_its_body_is(form: str, place: str, seed: int) -> None:
    for filling in ("", "x", "\\n" * 3, EURO, "\\\\"):
        short = place.replace("@", form.replace("%s", filling)).encode()
        assert has_strict_outline(short) is is_strict(short), short
        if '"@":' in place:
            continue  # a long key is refused whatever it is
        long = place.replace("@", form.replace("%s", (filling or "\\t") * (N + seed))).encode()
        assert has_strict_outline(long) is is_strict(long), long[-60:]


@pytest.mark.parametrize(
    "tail", [b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xc3\xa9"]
)
def test_bytes_that_are_no_characters_are_refused_in_a_long_text(tail: bytes) -> None:
    for data in (b'{"a":"' + b"x" * N + tail + b'"}', b'{"a":"' + tail + b"x" * N + b'"}'):
        for seed in range(5):
            assert has_strict_outline(data) is is_strict(data) is (tail == b"\xc3\xa9"), seed


@pytest.mark.parametrize("colon", [b":", b" \n\t\r:"])
def test_a_long_key_is_refused_for_it_could_be_there_twice(colon: bytes) -> None:
    with pytest.raises(BadRequestError, match="a key of more than"):
        outline_of(b'{"' + b"k" * (N + 1) + b'"' + colon + b"1}")


@pytest.mark.parametrize("value", [b"[]", b"{}", b"0", b'""', b'{"a":0}'])
def test_more_values_than_any_request_has_are_refused_before_they_are_made(
    value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlines, "MAX_VALUES", 1000)
    assert is_strict(outline_of(b'{"a":[' + b",".join([value] * 300) + b"]}").data)
    with pytest.raises(BadRequestError, match="more than 1000 values"):
        outline_of(b'{"a":[' + b",".join([value] * 1001) + b"]}")


@pytest.mark.parametrize("filling", [b" " * 9000, b'"%b"' % (b"x" * 4000) + b',"%b"' % (b"y" * 4000), b"9" * 9000])
def test_what_is_no_long_text_has_a_limit_of_its_own(filling: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlines, "MAX_OUTLINE_BYTES", 8000)
    with pytest.raises(BadRequestError, match="more than 8000 bytes beside its texts"):
        outline_of(b'{"a":[' + filling + b"]}")


def test_words_that_look_like_a_mark_stay_what_they_are(tmp_path: Path) -> None:
    long = "x" * 2 * N
    plain = outline_of(json.dumps({"a": long}).encode())
    (mark,) = plain.texts
    data = json.dumps({"a": long, "b": mark, "c": "x" + mark, "d": mark.replace("0", "1").replace("2", "3")}).encode()
    found = outline_of(data)
    with Spool(tmp_path) as spool:
        filled(spool, data)
        restored = b"".join(found.restored(render_compact(json.loads(found.data)), spool))
    assert json.loads(restored) == json.loads(data)
