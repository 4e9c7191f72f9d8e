"""What one wire server is told: its configuration line and the commands that follow, one JSON object a line."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, cast

from fairtrial.errors import UsageError
from fairtrial.wire.faults import Fault, parse_faults
from fairtrial.wire.fixture import FixtureSettings
from fairtrial.wire.ledger import ConnectionReuse
from fairtrial.wire.peer import parse_address

__all__ = [
    "FRONT",
    "Command",
    "Deed",
    "ForwardSettings",
    "FrontSettings",
    "WireSettings",
    "parse_command",
    "parse_settings",
    "render_command",
    "render_settings",
]

FRONT: Final = "front"
"""The upstream that means the git front of the same server."""

_MAX_TIMEOUT_S: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings:
    """A git front.

    Attributes:
        root: The directory whose bare repositories are served.
        git: Absolute path of the git program.
    """

    root: str
    git: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardSettings:
    """A forwarder.

    Attributes:
        upstream: `host:port`, `unix:/path`, or `FRONT`.
        faults: The plan.
        connection_reuse: The factor.
        watch: The mark by which a publication is found in a protocol that is not HTTP's; None to speak HTTP.
    """

    upstream: str
    faults: tuple[Fault, ...] = ()
    connection_reuse: ConnectionReuse = ConnectionReuse.REUSED
    watch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSettings:
    """One wire server: a front, a forwarder, a forwarder before a front, or a fixture.

    Attributes:
        front: The git front, if any.
        forward: The forwarder, if any.
        fixture: The fixture that takes publications and never answers, if any; it stands alone.
    """

    front: FrontSettings | None
    forward: ForwardSettings | None
    fixture: FixtureSettings | None = None


class Deed(StrEnum):
    """What a command asks for."""

    LEDGER = "ledger"
    DRAIN = "drain"
    FAULTS = "faults"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command.

    Attributes:
        do: What is asked for.
        timeout_s: Seconds that DRAIN may wait; 0 for the others.
        faults: The plan that FAULTS puts in place; empty for the others.
        connection_reuse: The factor from FAULTS on; None leaves it as it is.
    """

    do: Deed
    timeout_s: float = 0.0
    faults: tuple[Fault, ...] = ()
    connection_reuse: ConnectionReuse | None = None


def render_settings(settings: WireSettings) -> str:
    """Return the settings as one JSON line, without its newline."""
    return json.dumps(asdict(settings), separators=(",", ":"))


def render_command(command: Command) -> str:
    """Return a command as one JSON line, without its newline."""
    data: dict[str, object] = {"do": command.do}
    match command.do:
        case Deed.LEDGER:
            pass
        case Deed.DRAIN:
            data["timeout_s"] = command.timeout_s
        case Deed.FAULTS:
            data["faults"] = [asdict(fault) for fault in command.faults]
            if command.connection_reuse is not None:
                data["connection_reuse"] = command.connection_reuse
    return json.dumps(data, separators=(",", ":"))


def _parse_object(text: str, *, where: str) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{where}: not JSON: {error}"
        raise UsageError(msg) from error
    return _as_object(value, where=where)


def _as_object(value: object, *, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        msg = f"{where}: an object is wanted, not {value!r:.80}"
        raise UsageError(msg)
    return cast("Mapping[str, object]", value)


def _check_keys(data: Mapping[str, object], *, where: str, keys: tuple[str, ...]) -> None:
    unknown = data.keys() - set(keys)
    if unknown:
        msg = f"{where}: unknown key {min(unknown)!r}; choose from {', '.join(keys)}"
        raise UsageError(msg)


def _parse_text(value: object, *, where: str) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        msg = f"{where}: a text is wanted, not {value!r:.80}"
        raise UsageError(msg)
    return value


def parse_settings(text: str) -> WireSettings:
    """Parse a configuration line.

    Raises:
        UsageError: It is not JSON, or a key or value is wrong; the text names it.
    """
    data = _parse_object(text, where="configuration")
    _check_keys(data, where="configuration", keys=("front", "forward", "fixture"))
    if data.get("fixture") is not None:
        if data.get("front") is not None or data.get("forward") is not None:
            msg = "configuration: a fixture stands alone; give neither front nor forward with it"
            raise UsageError(msg)
        fixture = _parse_fixture(_as_object(data["fixture"], where="fixture"))
        return WireSettings(front=None, forward=None, fixture=fixture)
    front = None if data.get("front") is None else _parse_front(_as_object(data["front"], where="front"))
    forward = None if data.get("forward") is None else _parse_forward(_as_object(data["forward"], where="forward"))
    if front is None and (forward is None or forward.upstream == FRONT):
        msg = "configuration: nothing to serve; give a front, or a forward with an upstream of its own"
        raise UsageError(msg)
    return WireSettings(front=front, forward=forward)


def _parse_fixture(data: Mapping[str, object]) -> FixtureSettings:
    _check_keys(data, where="fixture", keys=("create", "publish"))
    return FixtureSettings(
        create=_parse_text(data.get("create"), where="fixture.create"),
        publish=_parse_text(data.get("publish"), where="fixture.publish"),
    )


def _parse_front(data: Mapping[str, object]) -> FrontSettings:
    _check_keys(data, where="front", keys=("root", "git"))
    root, git = _parse_text(data.get("root"), where="front.root"), _parse_text(data.get("git"), where="front.git")
    for key, path in (("root", root), ("git", git)):
        if not Path(path).is_absolute():
            msg = f"front.{key}: {path!r} is not an absolute path"
            raise UsageError(msg)
    return FrontSettings(root=root, git=git)


def _parse_forward(data: Mapping[str, object]) -> ForwardSettings:
    _check_keys(data, where="forward", keys=("upstream", "faults", "connection_reuse", "watch"))
    upstream = _parse_text(data.get("upstream"), where="forward.upstream")
    if upstream != FRONT:
        parse_address(upstream)
    reuse = _parse_reuse(data.get("connection_reuse", ConnectionReuse.REUSED), where="forward.connection_reuse")
    return ForwardSettings(
        upstream=upstream,
        faults=parse_faults(data.get("faults", [])),
        connection_reuse=reuse,
        watch=None if data.get("watch") is None else _parse_mark(data["watch"]),
    )


def _parse_mark(value: object) -> str:
    """A mark may hold any byte that is a character, zeros too."""
    if not isinstance(value, str) or not value:
        msg = f"forward.watch: a text is wanted, not {value!r:.80}"
        raise UsageError(msg)
    return value


def _parse_reuse(value: object, *, where: str) -> ConnectionReuse:
    if value not in tuple(ConnectionReuse):
        msg = f"{where}: {value!r}; choose one of {', '.join(ConnectionReuse)}"
        raise UsageError(msg)
    return ConnectionReuse(cast("str", value))


def parse_command(text: str) -> Command:
    """Parse a command line.

    Raises:
        UsageError: It is not JSON, or a key or value is wrong; the text names it.
    """
    data = _parse_object(text, where="command")
    do = data.get("do")
    if do not in tuple(Deed):
        msg = f"command: do is {do!r:.80}; choose one of {', '.join(Deed)}"
        raise UsageError(msg)
    match Deed(cast("str", do)):
        case Deed.LEDGER:
            _check_keys(data, where="ledger", keys=("do",))
            return Command(do=Deed.LEDGER)
        case Deed.DRAIN:
            _check_keys(data, where="drain", keys=("do", "timeout_s"))
            return Command(do=Deed.DRAIN, timeout_s=_parse_timeout(data.get("timeout_s")))
        case Deed.FAULTS:
            _check_keys(data, where="faults", keys=("do", "faults", "connection_reuse"))
            reuse = data.get("connection_reuse")
            return Command(
                do=Deed.FAULTS,
                faults=parse_faults(data.get("faults")),
                connection_reuse=None if reuse is None else _parse_reuse(reuse, where="faults.connection_reuse"),
            )


def _parse_timeout(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_TIMEOUT_S:
        msg = f"drain: timeout_s is {value!r:.80}, not seconds from 0 to {_MAX_TIMEOUT_S:.0f}"
        raise UsageError(msg)
    return float(value)
