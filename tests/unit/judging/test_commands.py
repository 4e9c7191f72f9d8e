import json
from pathlib import Path

import pytest

from fairtrial.errors import UsageError
from fairtrial.judging.commands import oracle_environment, runner_command, shell_command
from fairtrial.judging.values import CapturedFile, OracleSpec, Place, Runner

FILES = (
    CapturedFile(target="a/t.py", place=Place.WORKSPACE, source=Path("/x"), sha256="", n_bytes=0),
    CapturedFile(target="h.py", place=Place.ORACLE_ROOT, source=Path("/x"), sha256="", n_bytes=0),
)


def plan_of(command: str, settings: bytes | None = None) -> dict[str, object]:
    oracle = OracleSpec(command=command, files=FILES, runner=Runner.PYTEST, expect_tests=4)
    started = runner_command(oracle, Runner.PYTEST, settings)
    return json.loads({file.target: file for file in started.files}["/fairtrial/plan.json"].content)


def test_a_runner_is_told_all_it_needs_and_its_scripts_are_there() -> None:
    plan = plan_of("-k 'not slow' $FAIRTRIAL_ORACLE_ROOT/h.py")
    assert plan["arguments"] == ["-k", "not slow", "/oracle/h.py"]
    assert plan["files"] == ["/workspace/a/t.py", "/oracle/h.py"]
    assert (plan["kind"], plan["expect_tests"]) == ("pytest", 4)


def test_pytest_gets_a_settings_file_unless_the_oracle_names_one() -> None:
    assert plan_of("x", b"tox.ini")["arguments"] == ["-c", "/workspace/tox.ini", "--rootdir=/workspace", "x"]
    for own in ("-c mine.ini x", "--config-file=mine.ini x", "--rootdir=/oracle x"):
        assert plan_of(own, b"tox.ini")["arguments"] == own.split()


def test_arguments_that_are_no_words_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be split"):
        plan_of("'")


def test_the_nonce_is_in_no_variable_that_is_passed_on() -> None:
    plain = oracle_environment(OracleSpec(command="x", files=()))
    assert plain == {"FAIRTRIAL_ORACLE_ROOT": "/oracle", "FAIRTRIAL_PROOF_FD": "4"}
    assert oracle_environment(OracleSpec(command="x", files=(), runner=Runner.GO)) == {
        **plain,
        "FAIRTRIAL_NONCE_FD": "3",
    }


def test_the_shell_of_a_command_can_be_executed_and_not_read() -> None:
    started = shell_command("true")
    assert started.argv[0] == started.files[0].target
    assert started.files[0].mode == 0o111
    assert started.files[0].content[:4] == b"\x7fELF"
