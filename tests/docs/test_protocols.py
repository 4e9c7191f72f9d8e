"""`protocols.md` against the protocols, the entry points and the specs."""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from importlib.metadata import entry_points

import pytest

from fairtrial import protocols
from fairtrial.model import agent, context, loop
from fairtrial.model.bench import BenchTrial
from fairtrial.model.trial import AttemptSpec, BenchSpec, LoopTask, ModelSource, TrialSpec
from fairtrial.plugins import GROUPS
from fairtrial.sweep.worker import Answer

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

PAGE = "protocols.md"


def signature_of(name: str, method: Callable[..., object]) -> str:
    parameters = [parameter for parameter in inspect.signature(method).parameters if parameter != "self"]
    return f"{name}({', '.join(parameters)})"


def members_of(protocol: type) -> list[str]:
    """Attributes and methods as the page writes them, in the order of the source."""
    methods = [signature_of(name, value) for name, value in vars(protocol).items() if inspect.isfunction(value)]
    own = [method for method in methods if not method.startswith("_") or method.startswith("__init__(variant")]
    return [*vars(protocol).get("__annotations__", {}), *own]


def fields_of(type_: type) -> list[str]:
    return [field.name for field in dataclasses.fields(type_)]


def test_the_entry_point_groups_are_those_of_the_program(read_table: ReadTable, names: Names) -> None:
    table = read_table(PAGE, "Extension points")
    assert tuple(line["entry-point group"].strip("`") for line in table) == GROUPS
    for line in table:
        assert hasattr(protocols, line["protocol"].strip("`"))
        points = entry_points(group=line["entry-point group"].strip("`"))
        ours = {point.name for point in points if point.value.startswith("fairtrial.")}
        assert set(names(line["built in"])) == ours


@pytest.mark.parametrize(
    ("heading", "protocol"),
    [
        ("Agent", protocols.Agent),
        ("Context", protocols.Context),
        ("Subject", protocols.Subject),
        ("Engine", protocols.Engine),
    ],
)
def test_the_members_of_a_protocol_are_in_the_reference(heading: str, protocol: type, read_table: ReadTable) -> None:
    told = [line["member"].strip("`") for line in read_table(PAGE, heading) if "member" in line]
    worker = members_of(protocols.Worker) if protocol is protocols.Engine else []
    assert told == [*members_of(protocol), *worker]


def test_the_values_that_a_subject_meets_are_in_the_reference(read_table: ReadTable, names: Names) -> None:
    told = {
        line["value"].strip("`"): names(line["attributes"]) for line in read_table(PAGE, "Subject") if "value" in line
    }
    named = {name for name, value in vars(protocols).items() if value is vars(loop).get(name) and is_dataclass(value)}
    assert told.keys() == {*named, "Reading"}
    for name, attributes in told.items():
        assert attributes == fields_of(getattr(loop, name))


def test_the_values_that_a_context_meets_are_in_the_reference(read_table: ReadTable, names: Names) -> None:
    told = {
        line["value"].strip("`"): names(line["attributes"]) for line in read_table(PAGE, "Context") if "value" in line
    }
    named = {name: value for name, value in vars(context).items() if name in context.__all__ and is_dataclass(value)}
    assert told == {name: fields_of(value) for name, value in named.items() if name != "Described"}


def test_the_values_that_an_agent_meets_are_in_the_reference(read_table: ReadTable, names: Names) -> None:
    told = {
        line["value"].strip("`"): names(line["attributes"]) for line in read_table(PAGE, "Agent") if "value" in line
    }
    assert told == {
        name: fields_of(value) for name in sorted(agent.__all__) if is_dataclass(value := getattr(agent, name))
    }


def test_a_trial_spec_is_in_the_reference(read_table: ReadTable) -> None:
    told = [line["field"].strip("`") for line in read_table(PAGE, "A trial spec")]
    answer = ["done", *fields_of(Answer)]
    assert told == [*fields_of(TrialSpec), *(f"loop.{name}" for name in fields_of(LoopTask)), *answer]


def test_a_trial_spec_of_the_agent_lane_is_in_the_reference(read_table: ReadTable, names: Names) -> None:
    lines = read_table(PAGE, "A trial spec of the agent lane")
    told = [line["field"].strip("`") for line in lines]
    own = [name for name in fields_of(BenchSpec) if name not in fields_of(AttemptSpec)]
    assert told == [*own, *(f"bench.{name}" for name in fields_of(BenchTrial))]
    (source,) = (line for line in lines if line["field"] == "`source`")
    assert names(source["meaning"]) == fields_of(ModelSource)
