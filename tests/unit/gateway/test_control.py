import json

import pytest

from fairtrial.errors import UsageError
from fairtrial.gateway.control import (
    ProviderState,
    ProviderStatus,
    Status,
    StatusAsked,
    TrialClosing,
    TrialOpened,
    TrialOpening,
    parse_message,
    render_error,
    render_message,
)
from fairtrial.gateway.policy import Limits, UnnamedModel
from fairtrial.wire.faults import Fault, FaultKind

OPENING = TrialOpening(
    trial="t",
    ledger="/l",
    models=("m",),
    dialects=("anthropic-messages",),
    upstream="up",
    unnamed_model=UnnamedModel.RECORD,
    limits=Limits(tokens=5, cost_usd=1.5),
    grants=("mcp",),
    faults=(Fault(match="", nth=1, kind=FaultKind.STATUS, parameter=429, retry_after_s=2),),
    owner_uid=1000,
)
PROVIDER = ProviderStatus(upstream="up", state=ProviderState.DOWN, reason="status 500", retry_in_s=1.5, n_limited=0)


@pytest.mark.parametrize(
    "message",
    [
        OPENING,
        TrialOpened(directory="/d", socket="/d/m", token="t"),  # noqa: S106 - no secret
        TrialClosing(),
        StatusAsked(),
        Status(providers=(PROVIDER,), trials=1, internal_errors=("x",)),
    ],
)
def test_what_is_said_is_understood(message: object) -> None:
    line = render_message(message)  # type: ignore[arg-type]
    assert line.count(b"\n") == 1
    assert parse_message(line) == message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no message"),
        (b'{"kind":"dance"}', "kind is one of open, opened"),
        (b'{"kind":"close","x":1}', "x: Unexpected keyword argument"),
        (b'{"kind":"open","trial":"t"}', "ledger: Field required"),
        (b'{"kind":"opened","directory":1,"socket":"","token":""}', "directory: Input should be a valid string, not 1"),
    ],
)
def test_what_is_not_understood_is_named(line: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_message(line)


def test_an_error_of_the_other_side_is_an_error_here() -> None:
    with pytest.raises(UsageError, match="gateway: too late"):
        parse_message(render_error("too late"))


def test_a_line_can_be_written_by_hand() -> None:
    assert parse_message(json.dumps({"kind": "status?"}).encode()) == StatusAsked()
