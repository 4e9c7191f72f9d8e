"""`commands.md` against the command line itself."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from fairtrial.cli.main import COMMANDS, HIDDEN, group
from fairtrial.store.problems import ProblemKind

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

PAGE = "commands.md"
SETTINGS = group.make_context("fairtrial", ["loop"])


def command_of(name: str) -> click.Command:
    command = group.get_command(SETTINGS, name)
    assert command is not None
    return command


def lines_of(read_table: ReadTable, heading: str) -> list[dict[str, str]]:
    """The lines of a command's table; its first column is called by what it holds."""
    return [{"name": next(iter(line.values())), **line} for line in read_table(PAGE, heading) if "default" in line]


def spellings(parameter: click.Parameter) -> set[str]:
    if isinstance(parameter, click.Argument):
        return {str(parameter.make_metavar(SETTINGS)).strip("[]")}
    return {*parameter.opts, *parameter.secondary_opts}


def test_every_command_has_a_section_and_nothing_else_has(reference: Path) -> None:
    headings = [line[3:] for line in (reference / PAGE).read_text().splitlines() if line.startswith("## fairtrial")]
    assert headings[0] == "fairtrial"
    assert sorted(headings[1:]) == sorted(f"fairtrial {name}" for name in (*COMMANDS, *HIDDEN))


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_argument_and_option_is_in_the_reference_and_no_other(
    name: str, read_table: ReadTable, names: Names
) -> None:
    command = command_of(name) if name else group
    told = {spelling for line in lines_of(read_table, f"fairtrial {name}".strip()) for spelling in names(line["name"])}
    own = {spelling for parameter in command.params for spelling in spellings(parameter)}
    assert told - {"-h", "--help"} == own


@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_command_takes_no_argument(name: str) -> None:
    assert not command_of(name).params


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_default_is_that_of_the_program(name: str, read_table: ReadTable, names: Names) -> None:
    command = command_of(name) if name else group
    for line in lines_of(read_table, f"fairtrial {name}".strip()):
        for parameter in command.params:
            if not spellings(parameter) & set(names(line["name"])):
                continue
            default = parameter.get_default(SETTINGS)
            if parameter.required:
                assert line["default"] == "required"
            elif isinstance(parameter, click.Argument):
                assert line["default"] in {"none", f"`{default}`"}
            elif isinstance(parameter, click.Option) and parameter.is_flag:
                assert not default
                assert line["default"] == "off"
            elif isinstance(default, (str, int, float)):
                assert line["default"] == f"`{default}`"
            else:  # worked out by the program, or none
                assert not isinstance(default, Path)
                assert line["default"]


def test_every_kind_of_problem_is_in_the_reference_and_those_that_a_kill_leaves_are_told(
    read_table: ReadTable,
) -> None:
    told = {line["kind"].strip("`"): line["what it says"] for line in read_table(PAGE, "Kinds of problem")}
    assert told.keys() == {str(kind) for kind in ProblemKind}
    assert {kind for kind, words in told.items() if words.startswith("unfinished:")} == {
        str(kind) for kind in ProblemKind if kind.is_unfinished
    }


def test_what_is_said_to_be_no_part_of_the_measurement_is_not_in_the_recorded_options(reference: Path) -> None:
    from fairtrial.sweep.plan import LoopOptions

    recorded = {field.name for field in dataclasses.fields(LoopOptions)}
    (line,) = (
        line for line in (reference / PAGE).read_text().splitlines() if line.startswith("Everything but `--out`")
    )
    left_out = {option.strip("`-,. ") for option in line.split() if option.startswith("`--")}
    assert left_out == {"out", "scratch", "keep-workspaces", "lock-wait", "json"}
    assert not recorded & {name.replace("-", "_") for name in left_out}
