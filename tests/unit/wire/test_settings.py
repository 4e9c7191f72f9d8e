import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.errors import UsageError
from fairtrial.wire.client import parse_ledger
from fairtrial.wire.faults import Fault, FaultKind, FaultReport
from fairtrial.wire.ledger import (
    ByteCounts,
    ConnectionReuse,
    ForwardLedger,
    FrontLedger,
    RequestRecord,
    WireLedger,
    render_ledger,
)
from fairtrial.wire.peer import Address, parse_address
from fairtrial.wire.settings import (
    Command,
    Deed,
    ForwardSettings,
    FrontSettings,
    WireSettings,
    parse_command,
    parse_settings,
    render_command,
    render_settings,
)

PARAMETER = {
    FaultKind.DROP_MID_REQUEST: st.integers(0, 10**14),
    FaultKind.DELAY: st.integers(0, 10**14),
    FaultKind.THROTTLE: st.integers(1, 10**14),
    FaultKind.STATUS: st.integers(400, 599),
    FaultKind.TRUNCATE_REPLY: st.integers(0, 10**14),
    FaultKind.GARBLE_REPLY: st.integers(0, 10**14),
    FaultKind.STALL: st.none() | st.integers(0, 10**14),
}


@st.composite
def some_faults(draw: st.DrawFn) -> Fault:
    kind = draw(st.sampled_from(FaultKind))
    return Fault(
        match=draw(st.text(max_size=10)),
        nth=draw(st.integers(0, 100)),
        kind=kind,
        parameter=draw(PARAMETER.get(kind, st.none())),
        retry_after_s=draw(st.none() | st.integers(0, 100)) if kind is FaultKind.STATUS else None,
    )


plans = st.lists(some_faults(), max_size=3).map(tuple)
fronts = st.builds(FrontSettings, root=st.just("/srv/repos"), git=st.just("/usr/bin/git"))
forwards = st.builds(
    ForwardSettings,
    upstream=st.sampled_from(["127.0.0.1:80", "unix:/run/x", "[::1]:8080"]),
    faults=plans,
    connection_reuse=st.sampled_from(ConnectionReuse),
)
settings_lines = st.one_of(
    st.builds(WireSettings, front=fronts, forward=st.none() | forwards),
    st.builds(WireSettings, front=st.none(), forward=forwards),
)
commands = st.one_of(
    st.just(Command(do=Deed.LEDGER)),
    st.builds(Command, do=st.just(Deed.DRAIN), timeout_s=st.floats(0, 1000)),
    st.builds(
        Command,
        do=st.just(Deed.FAULTS),
        faults=plans,
        connection_reuse=st.none() | st.sampled_from(ConnectionReuse),
    ),
)


@settings(deadline=None)
@given(settings_lines)
def test_settings_survive_the_pipe(wanted: WireSettings) -> None:
    assert parse_settings(render_settings(wanted)) == wanted


@settings(deadline=None)
@given(commands)
def test_commands_survive_the_pipe(command: Command) -> None:
    assert parse_command(render_command(command)) == command


counts = st.integers(0, 2**60)
records = st.builds(
    RequestRecord,
    connection=counts,
    started_ms=st.floats(0, 1e9),
    elapsed_ms=st.floats(0, 1e9),
    request_declared_bytes=st.none() | counts,
    status=st.none() | counts,
    client_status=st.none() | counts,
)
forward_ledgers = st.builds(
    ForwardLedger,
    bytes=st.builds(ByteCounts),
    requests=st.lists(records, max_size=2).map(tuple),
    faults=st.lists(st.builds(FaultReport, fault=some_faults()), max_size=2).map(tuple),
)
ledgers = st.builds(
    WireLedger,
    schema=st.just("wire-ledger/1"),
    forward=st.none() | forward_ledgers,
    front=st.none() | st.builds(FrontLedger),
    internal_errors=st.lists(st.text(max_size=5), max_size=2).map(tuple),
)


@settings(deadline=None)
@given(ledgers)
def test_ledgers_survive_the_pipe(ledger: WireLedger) -> None:
    assert parse_ledger(render_ledger(ledger)) == ledger


@settings(deadline=None)
@given(st.text() | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_garbage_is_refused_and_never_crashes(text: str) -> None:
    for parse in (parse_settings, parse_command):
        with pytest.raises(UsageError):
            parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "configuration: not JSON"),
        ("[" * 100_000, "configuration: not JSON"),
        ("{}", "nothing to serve"),
        ('{"front":null,"forward":{"upstream":"front"}}', "nothing to serve"),
        ('{"frnt":null}', "configuration: unknown key 'frnt'"),
        ('{"front":[]}', "front: an object is wanted"),
        ('{"front":{"root":"/x"}}', "front.git: a text is wanted"),
        ('{"front":{"root":"x","git":"/usr/bin/git"}}', "front.root: 'x' is not an absolute path"),
        ('{"front":{"root":"/x\\u0000","git":"/usr/bin/git"}}', "front.root: a text is wanted"),
        ('{"forward":{"upstream":"nowhere"}}', "upstream 'nowhere' is neither"),
        ('{"forward":{"upstream":"a:1","connection_reuse":"both"}}', "connection_reuse: 'both'; choose one of reused"),
        ('{"forward":{"upstream":"a:1","faults":[1]}}', "faults[0]"),
    ],
)
def test_wrong_settings_are_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_settings(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"do":"stop"}', "do is 'stop'; choose one of ledger, drain, faults"),
        ('{"do":["ledger"]}', "choose one of"),
        ('{"do":"ledger","x":1}', "ledger: unknown key 'x'"),
        ('{"do":"drain"}', "timeout_s is None"),
        ('{"do":"drain","timeout_s":-1}', "timeout_s is -1"),
        ('{"do":"drain","timeout_s":NaN}', "timeout_s is nan"),
        ('{"do":"drain","timeout_s":true}', "timeout_s is True"),
        ('{"do":"faults"}', "a list is wanted"),
        ('{"do":"faults","faults":[],"connection_reuse":"both"}', "connection_reuse: 'both'; choose one of reused"),
    ],
)
def test_wrong_commands_are_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_command(text)
    assert said in str(caught.value)


def test_addresses_are_tcp_or_unix() -> None:
    assert parse_address("localhost:80") == Address(host="localhost", port=80)
    assert parse_address("[::1]:80") == Address(host="::1", port=80)
    assert parse_address("unix:/run/s") == Address(host="/run/s", port=None)


@pytest.mark.parametrize(
    "text", ["", "80", ":80", "a:", "a:0", "a:65536", "a:-1", "a:٣", "unix:s", "a:80x", "a:" + "1" * 5000]
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)
