"""`payload/bash_agent.py`: what a model may ask its tool for."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from fairtrial.payload import __path__ as payload_path

AGENT: Final = runpy.run_path(str(Path(payload_path[0]) / "bash_agent.py"))
run_command: Final[Callable[[dict[str, Any]], tuple[str, bool]]] = AGENT["run_command"]
limit_of: Final[Callable[[object], float]] = AGENT["limit_of"]


@pytest.mark.parametrize(
    ("asked", "given"),
    [(5, 5.0), (0.5, 0.5), (600, 600.0), (601, 600.0), (10**400, 600.0), (float("inf"), 600.0)]
    + [(senseless, 120.0) for senseless in (-1, 0, float("nan"), float("-inf"), None, True, "5", [5])],
)
def test_the_harness_decides_how_long_a_command_may_take(asked: object, given: float) -> None:
    """B54."""
    assert limit_of(asked) == given


@pytest.mark.parametrize("command", ["echo a\0b", "echo \ud800", "x" * (4 << 20)], ids=["nul", "half", "long"])
def test_a_command_that_no_shell_can_be_given_is_an_error_for_the_model_and_no_crash(command: str) -> None:
    text, failed = run_command({"command": command})
    assert failed
    assert text.startswith("cannot be run: ")


def test_a_command_says_what_it_printed_and_how_it_ended() -> None:
    assert run_command({"command": "echo out; echo err >&2; exit 3", "timeout_s": -1}) == (
        "out\nerr\n\n[exit code 3]",
        True,
    )
