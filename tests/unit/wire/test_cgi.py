import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.errors import HostError
from fairtrial.wire.cgi import BadCgiReplyError, CgiChild, CgiHead, Tail, parse_cgi_head

ENV = {"PATH": "/usr/bin:/bin"}


def test_a_head_without_a_status_is_a_success() -> None:
    head = parse_cgi_head(b"Content-Type: text/plain\r\nX-Empty:")
    assert head == CgiHead(status=200, fields=(("Content-Type", "text/plain"), ("X-Empty", "")))


def test_the_status_line_is_taken_out_of_the_fields() -> None:
    assert parse_cgi_head(b"STATUS: 404 Not Found\nA: b") == CgiHead(status=404, fields=(("A", "b"),))


@pytest.mark.parametrize(
    "raw",
    [b"", b"no colon", b": x", b"A b: c", b"A: b\x00", b"A: b\rB: c", b"Status: 20", b"Status: abc", b"Status: 600"],
)
def test_a_malformed_head_is_refused(raw: bytes) -> None:
    with pytest.raises(BadCgiReplyError):
        parse_cgi_head(raw)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_a_head_is_understood_or_refused(raw: bytes) -> None:
    try:
        head = parse_cgi_head(raw)
    except BadCgiReplyError:
        return
    assert 200 <= head.status < 600
    assert all("\n" not in value and "\r" not in value for field in head.fields for value in field)


def test_only_the_end_of_a_long_text_is_kept() -> None:
    tail = Tail()
    for number in range(10_000):
        tail.add(b"%06d" % number)
    assert len(tail.text) <= 16 * 1024
    assert tail.text.endswith("009999")


def _with_child(script: str, act: Callable[[CgiChild], Awaitable[object]]) -> str:
    """Run `act` on a child shell and return what the child said on standard error."""
    tail = Tail()

    async def main() -> None:
        async with asyncio.timeout(20), CgiChild(("/bin/sh", "-c", script), env=ENV, tail=tail) as child:
            await act(child)

    before = len(list(Path("/proc/self/fd").iterdir()))
    asyncio.run(main())
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    return tail.text


def test_input_goes_in_and_the_reply_comes_out() -> None:
    async def act(child: CgiChild) -> None:
        await child.send(b"x" * 300_000)
        child.end_input()
        assert await child.read_head() == CgiHead(status=201, fields=(("N", "300000"),))
        body = b""
        while data := await child.read():
            body += data
        assert body == b"\nbody\r\n"

    said = _with_child(r"""n=$(wc -c); printf 'Status: 201\r\nN: %s\r\n\r\n\nbody\r\n' "$n"; echo done >&2""", act)
    assert said == "done\n"


def test_a_descendant_that_holds_the_output_does_not_hold_the_reply() -> None:
    async def act(child: CgiChild) -> None:
        assert (await child.read_head()).status == 200
        assert await child.read() == b"all"
        assert await child.read() == b""

    _with_child(r"printf 'A: b\n\nall'; sleep 600 &", act)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", "after 0 bytes"),
        (r"printf 'A: b\r\n'", "after 6 bytes"),
        ("head -c 100000 /dev/zero", "longer than"),
        (r"printf 'nonsense\n\n'", "not a header line"),
    ],
)
def test_output_that_does_not_begin_with_a_head_is_refused(script: str, said: str) -> None:
    async def act(child: CgiChild) -> None:
        with pytest.raises(BadCgiReplyError, match=said):
            await child.read_head()

    _with_child(script, act)


def test_a_child_that_reads_nothing_breaks_the_upload() -> None:
    async def act(child: CgiChild) -> None:
        with pytest.raises(BrokenPipeError):
            await child.send(b"x" * 10_000_000)

    _with_child("exec 0<&-; sleep 600", act)


def test_a_child_that_will_not_end_is_killed_with_its_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    async def act(child: CgiChild) -> None:
        assert (await child.read_head()).status == 200

    _with_child(rf"trap '' TERM; sleep 600 & echo $$ $! > {pids}; printf 'A: b\n\n'; while :; do sleep 600; done", act)
    for pid in pids.read_text().split():
        assert not Path(f"/proc/{pid}").exists() or ") Z " in Path(f"/proc/{pid}/stat").read_text()


def test_a_program_that_is_missing_is_said() -> None:
    async def main() -> None:
        with pytest.raises(HostError, match="/nonexistent"):
            CgiChild(("/nonexistent",), env=ENV, tail=Tail())

    asyncio.run(main())
