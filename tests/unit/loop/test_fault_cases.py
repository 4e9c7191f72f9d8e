"""The catalogue of fault cases."""

from fairtrial.loop.fault_cases import CONTROL, FAULT_CASES, Hit, WireFault, cases_elsewhere, chosen_cases
from fairtrial.model.loop import Transport
from fairtrial.wire.faults import Fault, FaultKind, parse_faults


def test_the_control_is_the_first_case_of_every_transport_that_has_any() -> None:
    for transport in Transport:
        cases = chosen_cases((), transport)
        assert not cases or cases[0].name == CONTROL
        assert all(transport in case.transports for case in cases)


def test_the_control_is_played_whatever_was_asked_for() -> None:
    names = [case.name for case in chosen_cases(("reply_reset", "reply_lost_reused"), Transport.HTTP)]
    assert names == [CONTROL, "reply_lost_reused", "reply_reset"]


def test_a_case_is_played_or_said_to_belong_to_another_transport() -> None:
    for transport in Transport:
        played = {case.name for case in chosen_cases(tuple(FAULT_CASES), transport)}
        elsewhere = cases_elsewhere(tuple(FAULT_CASES), transport)
        assert played | elsewhere.keys() == set(FAULT_CASES)
        assert not played & elsewhere.keys()
    assert cases_elsewhere(("status_500",), Transport.FILE) == {
        "status_500": "status_500 is defined for transport http only"
    }
    assert cases_elsewhere((), Transport.FILE) == {}


def test_every_rule_is_one_that_the_forwarder_takes() -> None:
    rules = [case.wire.rule("POST /x") for case in FAULT_CASES.values() if case.wire is not None]
    as_json = [{"match": rule.match, "nth": rule.nth, "kind": rule.kind, "parameter": rule.parameter} for rule in rules]
    assert list(parse_faults(as_json)) == rules


def test_a_fault_on_the_first_request_matches_any() -> None:
    fault = WireFault(kind=FaultKind.DROP_REPLY, hit=Hit.FIRST)
    assert fault.rule("POST /x") == Fault(match="", nth=1, kind=FaultKind.DROP_REPLY)
