"""Faults by rule: what is planned, which request each rule hits, and whether all of it really happened.

A rule is plain data. Whether a fault *fired* is said by the forwarder after the effect, never by the plan: a rule that
matched a request whose reply was too short to be cut has matched and has not fired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final, cast

from fairtrial.errors import UsageError

__all__ = ["Fault", "FaultKind", "FaultReport", "Garbler", "PlannedFault", "parse_faults", "plan_faults", "take_due"]


class FaultKind(StrEnum):
    """What is done to a request that a rule hits; the comment names `parameter`."""

    DROP_REPLY = "drop_reply"  # the server finishes; its reply is swallowed; FIN
    RST_REPLY = "rst_reply"  # likewise, and the client's connection is reset
    DROP_BEFORE_FORWARD = "drop_before_forward"  # the whole request is read and goes nowhere; FIN
    DROP_MID_REQUEST = "drop_mid_request"  # bytes of the request body that still reach the server
    DELAY = "delay"  # milliseconds before anything is forwarded, or until somebody drains the wire
    THROTTLE = "throttle"  # bytes a second, request body and reply body alike
    STATUS = "status"  # the status code that is answered instead of forwarding
    TRUNCATE_REPLY = "truncate_reply"  # bytes of the reply body that still reach the client; FIN
    RST_CONNECT = "rst_connect"  # the connection is reset once the head is read; nothing goes on
    GARBLE_REPLY = "garble_reply"  # bytes of the reply body before some that are overwritten by nonsense
    STALL = "stall"  # bytes of the reply body before silence (null: not even the head)


_ANY_COUNT: Final = range(10**15)
# A kind that is missing here takes no parameter; STALL's may be left out.
_PARAMETER: Final[Mapping[FaultKind, range]] = {
    FaultKind.DROP_MID_REQUEST: _ANY_COUNT,
    FaultKind.DELAY: _ANY_COUNT,
    FaultKind.THROTTLE: _ANY_COUNT[1:],
    FaultKind.STATUS: range(400, 600),
    FaultKind.TRUNCATE_REPLY: _ANY_COUNT,
    FaultKind.GARBLE_REPLY: _ANY_COUNT,
    FaultKind.STALL: _ANY_COUNT,
}
_KINDS: Final = tuple(str(kind) for kind in FaultKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One rule.

    Attributes:
        match: Substring of "METHOD target"; the empty string is in every one.
        nth: Which matching request is hit, from 1; 0 = every one.
        kind: What is done to it.
        parameter: See `FaultKind`; None where the kind takes none.
        retry_after_s: Seconds of the Retry-After header of a `status` fault, or None.
    """

    match: str
    nth: int
    kind: FaultKind
    parameter: int | None = None
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReport:
    """What became of one rule.

    Attributes:
        fault: The rule.
        n_matched: Requests that it matched, hit or not.
        n_fired: Requests on which its effect was complete.
        as_planned: It hit exactly the requests that it names, at least one, and its effect was complete on each.
    """

    fault: Fault
    n_matched: int
    n_fired: int
    as_planned: bool


@dataclass(slots=True, kw_only=True)
class PlannedFault:
    """A rule at work.

    Attributes:
        fault: The rule.
        n_matched: Requests that it matched so far.
        n_fired: Requests on which its effect is complete so far.
    """

    fault: Fault
    n_matched: int = 0
    n_fired: int = 0

    def report(self) -> FaultReport:
        """Say what became of the rule so far."""
        n_due = self.n_matched if self.fault.nth == 0 else int(self.n_matched >= self.fault.nth)
        return FaultReport(
            fault=self.fault,
            n_matched=self.n_matched,
            n_fired=self.n_fired,
            as_planned=n_due > 0 and self.n_fired == n_due,
        )


def plan_faults(faults: Sequence[Fault]) -> tuple[PlannedFault, ...]:
    """Put rules to work, nothing matched yet."""
    return tuple(PlannedFault(fault=fault) for fault in faults)


def take_due(planned: Sequence[PlannedFault], *, method: str, target: str) -> PlannedFault | None:
    """Count a request against every rule and return the first rule that hits it."""
    due: PlannedFault | None = None
    for rule in planned:
        if rule.fault.match not in f"{method} {target}":
            continue
        rule.n_matched += 1
        if due is None and rule.fault.nth in {0, rule.n_matched}:
            due = rule
    return due


def parse_faults(value: object) -> tuple[Fault, ...]:
    """Parse a list of rules as it comes out of JSON.

    Raises:
        UsageError: It is not a list of rules, or a rule is wrong; the text names the rule by its place.
    """
    # By hand and not by pydantic: its import alone takes longer than the rest of the server's start (0.1 of 0.2 s).
    if not isinstance(value, list):
        msg = f"faults: a list is wanted, not {value!r}"
        raise UsageError(msg)
    rules = cast("list[object]", value)
    return tuple(_parse_fault(rule, where=f"faults[{index}]") for index, rule in enumerate(rules))


def _parse_fault(value: object, *, where: str) -> Fault:
    if not isinstance(value, dict):
        msg = f"{where}: a fault is an object with match, nth and kind, not {value!r}"
        raise UsageError(msg)
    data = cast("dict[str, object]", value)
    unknown = data.keys() - {field.name for field in fields(Fault)}
    if unknown:
        msg = f"{where}: unknown key {min(unknown)!r}; a fault has {', '.join(field.name for field in fields(Fault))}"
        raise UsageError(msg)
    kind, match = data.get("kind"), data.get("match")
    if kind not in _KINDS:
        msg = f"{where}: kind is {kind!r}; choose one of {', '.join(_KINDS)}"
        raise UsageError(msg)
    if not isinstance(match, str):
        msg = f"{where}: match is {match!r}, not a substring of 'METHOD /target'"
        raise UsageError(msg)
    nth = _parse_count(data.get("nth"), where=f"{where}: nth", least=0)
    if nth is None:
        msg = f"{where}: nth is missing; 1 is the first match, 0 every one"
        raise UsageError(msg)
    fault = Fault(
        match=match,
        nth=nth,
        kind=FaultKind(kind),
        parameter=_parse_count(data.get("parameter"), where=f"{where}: parameter", least=0),
        retry_after_s=_parse_count(data.get("retry_after_s"), where=f"{where}: retry_after_s", least=0),
    )
    _check_parameter(fault, where=where)
    return fault


def _parse_count(value: object, *, where: str, least: int) -> int | None:
    # bool is an int to Python and not to anybody who writes JSON.
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least):
        return value
    msg = f"{where}: {value!r} is not a whole number of {least} or more"
    raise UsageError(msg)


def _check_parameter(fault: Fault, *, where: str) -> None:
    allowed = _PARAMETER.get(fault.kind)
    if fault.parameter is None:
        if allowed is not None and fault.kind is not FaultKind.STALL:
            msg = f"{where}: {fault.kind} needs a parameter"
            raise UsageError(msg)
    elif allowed is None or fault.parameter not in allowed:
        takes = "no parameter" if allowed is None else f"{allowed.start} to {allowed.stop - 1}"
        msg = f"{where}: {fault.kind} takes {takes}, not {fault.parameter}"
        raise UsageError(msg)
    if fault.retry_after_s is not None and fault.kind is not FaultKind.STATUS:
        msg = f"{where}: only a status fault has retry_after_s"
        raise UsageError(msg)


class Garbler:
    """Overwrites some bytes of a reply with nonsense, its length unchanged, so that every framing stays whole.

    Attributes:
        done: All of the nonsense is in.
    """

    NONSENSE: Final = b"\xff{garbled"

    def __init__(self, start: int) -> None:
        """Prepare.

        Args:
            start: Payload bytes before the nonsense.
        """
        self._start = start
        self._position = 0

    @property
    def done(self) -> bool:
        """All of the nonsense is in."""
        return self._position >= self._start + len(self.NONSENSE)

    def garble(self, data: bytes) -> bytes:
        """Return the next bytes of the payload, with their part of the nonsense."""
        offset = self._start - self._position
        self._position += len(data)
        first, last = max(offset, 0), min(offset + len(self.NONSENSE), len(data))
        if first >= last:
            return data
        return data[:first] + self.NONSENSE[first - offset : last - offset] + data[last:]
