import pytest

from fairtrial.errors import UsageError
from fairtrial.wire.faults import Fault, FaultKind, Garbler, parse_faults, plan_faults, take_due

STATUS = {"match": "POST /", "nth": 1, "kind": "status", "parameter": 503}


def _fault(match: str, nth: int, kind: FaultKind = FaultKind.DROP_REPLY) -> Fault:
    return Fault(match=match, nth=nth, kind=kind)


def test_the_nth_matching_request_is_hit_and_no_other() -> None:
    (rule,) = planned = plan_faults([_fault("POST", 2)])
    hits = [take_due(planned, method=method, target="/r") for method in ("GET", "POST", "POST", "GET", "POST")]
    assert hits == [None, None, rule, None, None]
    assert rule.n_matched == 3


def test_zero_means_every_matching_request() -> None:
    (rule,) = planned = plan_faults([_fault("/git-receive-pack", 0)])
    assert take_due(planned, method="POST", target="/r/git-receive-pack") is rule
    assert take_due(planned, method="POST", target="/r/git-receive-pack") is rule
    assert take_due(planned, method="POST", target="/r/git-upload-pack") is None


def test_the_first_rule_wins_and_the_others_still_count() -> None:
    first, second = planned = plan_faults([_fault("POST", 1), _fault("POST", 0)])
    assert take_due(planned, method="POST", target="/r") is first
    assert take_due(planned, method="POST", target="/r") is second
    assert (first.n_matched, second.n_matched) == (2, 2)


def test_the_empty_match_is_in_every_request() -> None:
    (rule,) = planned = plan_faults([_fault("", 1)])
    assert take_due(planned, method="GET", target="/") is rule


@pytest.mark.parametrize(
    ("nth", "n_matched", "n_fired", "as_planned"),
    [
        (1, 0, 0, False),
        (1, 1, 0, False),
        (1, 1, 1, True),
        (1, 3, 1, True),
        (2, 1, 0, False),
        (2, 2, 1, True),
        (0, 0, 0, False),
        (0, 3, 2, False),
        (0, 3, 3, True),
    ],
)
def test_a_fault_went_as_planned_only_when_it_fired_on_exactly_what_it_names(
    nth: int, n_matched: int, n_fired: int, as_planned: bool
) -> None:
    (rule,) = plan_faults([_fault("POST", nth)])
    rule.n_matched, rule.n_fired = n_matched, n_fired
    assert rule.report().as_planned is as_planned


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_can_be_planned(kind: FaultKind) -> None:
    takes = {"drop_mid_request": 10, "delay": 10, "throttle": 10, "status": 500, "truncate_reply": 0, "stall": 0}
    takes["garble_reply"] = 0
    data = {"match": "POST", "nth": 1, "kind": str(kind), "parameter": takes.get(kind)}
    (fault,) = parse_faults([data])
    assert (fault.kind, fault.parameter) == (kind, takes.get(kind))


def test_a_status_can_ask_for_a_pause() -> None:
    (fault,) = parse_faults([STATUS | {"retry_after_s": 2}])
    assert fault == Fault(match="POST /", nth=1, kind=FaultKind.STATUS, parameter=503, retry_after_s=2)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "a list is wanted"),
        (None, "a list is wanted"),
        (["drop"], "faults[0]: a fault is an object"),
        ([STATUS, STATUS | {"nht": 1}], "faults[1]: unknown key 'nht'"),
        ([STATUS | {"kind": "drop"}], "kind is 'drop'; choose one of drop_reply"),
        ([STATUS | {"kind": ["status"]}], "kind is ['status']"),
        ([{"match": "", "nth": 1}], "kind is None"),
        ([STATUS | {"match": 1}], "match is 1"),
        ([STATUS | {"match": None}], "match is None"),
        ([STATUS | {"nth": -1}], "faults[0]: nth: -1 is not a whole number"),
        ([STATUS | {"nth": True}], "nth: True"),
        ([STATUS | {"nth": 1.0}], "nth: 1.0"),
        ([STATUS | {"nth": None}], "nth is missing"),
        ([STATUS | {"parameter": None}], "status needs a parameter"),
        ([STATUS | {"parameter": 200}], "status takes 400 to 599, not 200"),
        ([STATUS | {"parameter": 600}], "status takes 400 to 599, not 600"),
        ([STATUS | {"parameter": "503"}], "parameter: '503'"),
        ([STATUS | {"retry_after_s": -1}], "retry_after_s: -1"),
        ([STATUS | {"kind": "delay", "retry_after_s": 1}], "only a status fault"),
        ([STATUS | {"kind": "drop_reply"}], "drop_reply takes no parameter"),
        ([STATUS | {"kind": "throttle", "parameter": 0}], "throttle takes 1 to"),
    ],
)
def test_a_wrong_plan_is_refused_by_place_and_name(value: object, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_faults(value)
    assert said in str(caught.value)


@pytest.mark.parametrize("start", [0, 3, 40])
@pytest.mark.parametrize("n_bytes", [1, 2, 5, 1000])
def test_nonsense_takes_the_place_of_as_many_bytes_however_they_come(start: int, n_bytes: int) -> None:
    text = bytes(range(100))
    garbler = Garbler(start)
    parts = [garbler.garble(text[place : place + n_bytes]) for place in range(0, len(text), n_bytes)]
    assert b"".join(parts) == text[:start] + Garbler.NONSENSE + text[start + len(Garbler.NONSENSE) :]
    assert garbler.done


def test_a_reply_too_short_to_garble_is_not_garbled() -> None:
    garbler = Garbler(50)
    assert garbler.garble(b"short") == b"short"
    assert not garbler.done
