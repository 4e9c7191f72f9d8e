"""What a command raises becomes one line and an exit code; nothing reaches a user as a traceback."""

import json
from pathlib import Path

import click
import pytest

from fairtrial.cli import plugins
from fairtrial.cli.main import run
from fairtrial.errors import ConfigError, HostError, IntegrityError, NotEnoughEvidenceError, UsageError

MESSAGE = "x.yaml: it is wrong;\n  mend it"


def command_that(outcome: BaseException | int) -> click.Command:
    @click.command("plugins")
    @click.option("--json", "as_json", is_flag=True)
    def command(*, as_json: bool) -> int:
        assert as_json in {True, False}
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return command


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (UsageError(MESSAGE), 2),
        (ConfigError(MESSAGE, path=Path("x.yaml"), line=1, column=1), 2),
        (NotEnoughEvidenceError(MESSAGE), 5),
        (click.UsageError(MESSAGE), 2),
        (HostError(MESSAGE), 3),
        (IntegrityError(MESSAGE), 4),
        (ZeroDivisionError(MESSAGE), 70),
        (OSError(28, MESSAGE), 70),
        (AssertionError(), 70),
        (click.Abort(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_error_has_its_exit_code_and_one_line(
    problem: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plugins, "command", command_that(problem))
    assert run(["plugins", "--json"]) == code
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("fairtrial: error: ")
    value = json.loads(said.out)
    assert (value["schema"], value["exit_code"]) == ("error/1", code)
    assert line == f"fairtrial: error: {value['message']}"
    if code == 70:
        assert "a bug of ours" in line
        assert "run again with -v and report it" in line
    elif code != 130:
        assert "it is wrong; mend it" in line.replace(";;", ";")


def test_an_error_shows_no_character_that_a_terminal_would_act_upon(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plugins, "command", command_that(HostError("it is\x1b[31m \udcff\u202e; mend it")))
    assert run(["plugins", "--json"]) == 3
    said = capsys.readouterr()
    assert said.err == "fairtrial: error: it is\\x1b[31m \\udcff\\u202e; mend it\n"
    assert json.loads(said.out)["message"] in said.err


def test_a_bug_of_ours_shows_its_traceback_to_who_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plugins, "command", command_that(ZeroDivisionError("by zero")))
    assert run(["-v", "plugins"]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5, 70, 128 + 15])
def test_a_commands_own_code_is_the_programs(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "command", command_that(code))
    assert run(["plugins"]) == code


def test_an_unknown_command_and_none_are_errors_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["no-such-command"]) == 2
    assert "no-such-command" in capsys.readouterr().err
    assert run([]) == 2
    assert "Usage" in capsys.readouterr().err
