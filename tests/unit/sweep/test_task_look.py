"""Which program an output says is missing."""

import pytest

from fairtrial.sweep.task_look import missing_program


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("/bin/sh: 1: npm: not found", "npm"),
        ("bash: line 1: cargo: command not found", "cargo"),
        ("/usr/bin/python3: No module named pytest", "pytest"),
        ("ModuleNotFoundError: No module named 'numpy.linalg'", "numpy.linalg"),
        ("env: node: No such file or directory", "node"),
        ("AssertionError: 1 != 2", None),
    ],
)
def test_the_missing_program_is_named(output: str, name: str | None) -> None:
    assert missing_program(output) == name
