"""`task-files.md`, `arm-files.md` and `script-files.md` against the forms that are read, key by key."""

import dataclasses
from collections.abc import Callable
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from fairtrial.bench import arm_plugin, arms, node, task_file, tasks
from fairtrial.cli.main import run
from fairtrial.config.read import read_yaml
from fairtrial.config.validate import validate
from fairtrial.gateway import script
from fairtrial.gateway.dialect import Stop
from fairtrial.model.agent import Tool
from fairtrial.model.bench import Into, IsolationMode, PhaseKind, TaskLimits
from fairtrial.wire.faults import FaultKind

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

FORMS: dict[tuple[str, str], type[Any]] = {
    ("task-files.md", "A task"): task_file.TaskEntry,
    ("task-files.md", "An oracle"): task_file.OracleEntry,
    ("task-files.md", "A file of an oracle"): task_file.OracleFileEntry,
    ("task-files.md", "A dependency"): task_file.DependencyEntry,
    ("task-files.md", "A cheat"): task_file.CheatEntry,
    ("task-files.md", "Limits"): TaskLimits,
    ("arm-files.md", "An arm"): arms.ArmEntry,
    ("arm-files.md", "A plugin"): arm_plugin.PluginEntry,
    ("arm-files.md", "A phase"): arms.PhaseEntry,
    ("script-files.md", "A script"): script.Script,
    ("script-files.md", "An agent"): script.AgentScript,
    ("script-files.md", "A match"): script.AgentMatch,
    ("script-files.md", "A turn"): script.TurnScript,
    ("script-files.md", "A case"): script.CaseScript,
    ("script-files.md", "A condition"): script.When,
    ("script-files.md", "A call"): script.CallScript,
    ("script-files.md", "Usage"): script.UsageScript,
    ("script-files.md", "A fault"): script.FaultScript,
    ("script-files.md", "An error in the stream"): script.ErrorEventScript,
}
KEYS = {"task_class": "class"}
WORDS: dict[tuple[str, str, str], type[StrEnum]] = {
    ("task-files.md", "A task", "isolation"): IsolationMode,
    ("task-files.md", "A file of an oracle", "into"): Into,
    ("arm-files.md", "A phase", "tools"): Tool,
    ("arm-files.md", "A phase", "kind"): PhaseKind,
    ("script-files.md", "An agent", "beyond"): script.Beyond,
    ("script-files.md", "A match", "claimed"): script.Claimed,
    ("script-files.md", "A match", "tools"): script.Offered,
    ("script-files.md", "A turn", "stop"): Stop,
}


def lines_of(read_table: ReadTable, page: str, heading: str) -> dict[str, dict[str, str]]:
    return {line["key"].strip("`"): line for line in read_table(page, heading) if "key" in line}


@pytest.mark.parametrize(("page", "heading"), FORMS)
def test_the_keys_are_those_that_are_read_in_their_order(page: str, heading: str, read_table: ReadTable) -> None:
    form = FORMS[page, heading]
    assert list(lines_of(read_table, page, heading)) == [KEYS.get(f.name, f.name) for f in dataclasses.fields(form)]


@pytest.mark.parametrize(("page", "heading"), FORMS)
def test_what_is_required_and_every_plain_default_is_told(page: str, heading: str, read_table: ReadTable) -> None:
    told = lines_of(read_table, page, heading)
    for field in dataclasses.fields(FORMS[page, heading]):
        default = told[KEYS.get(field.name, field.name)]["default"]
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            assert default == "required", field.name
        elif field.default == "":
            assert default == "empty", field.name
        elif isinstance(field.default, bool):
            assert default == f"`{str(field.default).lower()}`", field.name
        elif isinstance(field.default, (int, float, str)):
            assert default == f"`{field.default}`", field.name
        else:
            assert default not in {"", "required"}, field.name


@pytest.mark.parametrize(("page", "heading"), FORMS)
def test_every_type_is_told(page: str, heading: str, read_table: ReadTable) -> None:
    told = lines_of(read_table, page, heading)
    for name, hint in get_type_hints(FORMS[page, heading]).items():
        kind = told[KEYS.get(name, name)]["type"]
        text = str(hint)
        if hint is bool or text == "bool | None":
            assert kind == "true/false", name
        elif hint is int or text == "int | None":
            assert kind == "integer", name
        elif hint is float or text == "float | None":
            assert kind == "number", name
        elif text.startswith("tuple["):
            assert kind.startswith("list of "), name
        elif text.startswith(("dict[", "collections.abc.Mapping[")):
            assert kind.startswith("table"), name


@pytest.mark.parametrize(("page", "heading", "key"), WORDS)
def test_a_closed_set_of_words_is_told_whole(
    page: str, heading: str, key: str, read_table: ReadTable, names: Names
) -> None:
    told = set(names(lines_of(read_table, page, heading)[key]["meaning"]))
    assert {str(word) for word in WORDS[page, heading, key]} <= told


def test_the_limits_of_a_task_file_are_those_of_the_program(reference: Path) -> None:
    text = (reference / "task-files.md").read_text()
    for limit in (
        f"At most {task_file.MAX_COMMAND_BYTES} bytes",
        f"1 to {task_file.MAX_ORACLE_FILES} entries",
        f"at most {task_file.MAX_ORACLE_PATH_BYTES} bytes",
        f"at most {tasks.MAX_ORACLE_FILE_BYTES} bytes, all files together at most {tasks.MAX_ORACLE_BYTES}",
        f"at most {node.SETUP_S:.0f} s",
    ):
        assert limit in text


def test_the_runners_are_those_of_the_program(read_table: ReadTable, names: Names) -> None:
    line = lines_of(read_table, "task-files.md", "An oracle")["runner"]
    assert tuple(names(line["meaning"])) == task_file.RUNNERS


def test_the_limits_of_a_skill_and_the_sets_of_tools_are_those_of_the_program(
    reference: Path, read_table: ReadTable, names: Names
) -> None:
    text = (reference / "arm-files.md").read_text()
    assert f"at most {arms.MAX_SKILL_FILES} files and {arms.MAX_SKILL_BYTES} bytes" in text
    sets = {
        names(line["set of tools"])[0]: set(names(line["kinds"]))
        for line in read_table("arm-files.md", "A phase")
        if "set of tools" in line
    }
    assert sets == {name: {str(tool) for tool in tools} for name, tools in arms.TOOL_SETS.items()}


def test_the_presets_are_those_that_ship(read_table: ReadTable, names: Names) -> None:
    shipped = validate(read_yaml(Path(str(files("fairtrial.bench") / "presets.yaml"))), arms.ArmsFile).arms
    told = {names(line["preset"])[0]: line for line in read_table("arm-files.md", "Presets")}
    assert list(told) == list(shipped)
    for name, entry in shipped.items():
        assert names(told[name]["phases"]) == [phase.name for phase in entry.phases]
        skills = [phase.skill for phase in entry.phases if phase.skill is not None]
        assert names(told[name]["demanded skills"]) == skills
        words = [word for phase in entry.phases for word in (phase.tools, *phase.deny)]
        assert names(told[name]["tools"]) == words


def test_the_kinds_of_fault_and_whether_they_take_a_parameter_are_told(read_table: ReadTable) -> None:
    told = {
        line["kind"].strip("`"): line["parameter"]
        for line in read_table("script-files.md", "A fault")
        if "kind" in line
    }
    assert list(told) == [str(kind) for kind in FaultKind]
    for kind, parameter in told.items():
        script.FaultScript(kind=FaultKind(kind), parameter=None if parameter == "none" else 500)
        if parameter == "none":
            with pytest.raises(ValueError, match="parameter"):
                script.FaultScript(kind=FaultKind(kind), parameter=500)


def test_the_shipped_example_is_read_by_all_three(tmp_path: Path) -> None:
    assert run(["-q", "init", str(tmp_path / "t")]) == 0
    assert tasks.read_task_file(tmp_path / "t" / "tasks.yaml")[1].tasks
    assert arms.read_arms(tmp_path / "t" / "arms.yaml")
    assert script.read_script(tmp_path / "t" / "script.yaml").agents
