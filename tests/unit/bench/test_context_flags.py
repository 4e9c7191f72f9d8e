"""What a row flags of a context: that it was not there, or not to the end."""

from typing import Any, cast

import pytest

from fairtrial.bench.index import BuiltIndex
from fairtrial.bench.rows import context_flags
from fairtrial.bench.session import Session
from fairtrial.bench.tool_server import ServerSeen
from fairtrial.gateway.ledger import Ending, WireRow
from fairtrial.model.context import Described

INDEX = BuiltIndex(
    context="ctags",
    version="1",
    plugin_sha256="",
    commit="",
    manifest_digest="",
    snapshot_digest="",
    files=1,
    bytes=1,
    markers=(),
    withheld=(),
    server=Described(name="ctags", version="1", protocol="", tools=("find_symbol",)),
    mutating=(),
)
TOLD = "mcp__ctags__find_symbol"


def session(*tools: str, n_requests: int = 1, ended: str = "stopped") -> Session:
    row = WireRow(
        n=1, trial="t", begun_utc="", method="POST", path="/v1/messages", ending=Ending.ANSWERED, tools=("Bash", *tools)
    )
    seen = ServerSeen(ended=ended, connections=1, listed=(), calls={}, failed_calls={}, refused_calls={})
    nothing = cast("Any", None)
    return Session(
        phase="work",
        result=nothing,
        report=None,
        closed=None,
        gateway_gone=False,
        rows=(row,) * n_requests,
        transcript=None,
        transcript_problem=None,
        out_of_time=False,
        environment={},
        undeclared={},
        tools=seen,
    )


@pytest.mark.parametrize(
    ("seen", "flags"),
    [
        (session(TOLD), []),
        (session(), ["work: context was not there"]),
        (session("mcp__other__find_symbol"), ["work: context was not there"]),
        (session(TOLD, ended="exited"), ["work: context ended early"]),
        (session(n_requests=0), []),
    ],
    ids=["there", "not-there", "another", "ended-early", "nobody-asked-the-model"],
)
def test_a_context_that_was_not_there_to_the_end_is_flagged(seen: Session, flags: list[str]) -> None:
    assert context_flags(INDEX, [seen]) == flags


def test_an_arm_without_a_context_has_no_such_flag() -> None:
    assert context_flags(None, [session()]) == []
