"""Results on standard output, once."""

import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
from rich.console import Console

__all__ = ["PAGE_COLUMNS", "own_command", "print_json", "result_console"]

PAGE_COLUMNS: Final = 120
"""Columns of a table that goes into a file or a pipe."""


def result_console() -> Console:
    """The console for tables on standard output."""
    return Console(width=None if sys.stdout.isatty() else PAGE_COLUMNS)


def own_command(*arguments: str) -> str:
    """A command line that starts this program again as it was started, whatever PATH holds; ready for a shell."""
    program = Path(sys.argv[0])
    if program.name != "fairtrial":
        words = [sys.executable, "-m", "fairtrial"]
    elif (found := shutil.which("fairtrial")) is not None and program.exists() and program.samefile(found):
        words = ["fairtrial"]
    else:
        words = [str(program.absolute())]
    return shlex.join([*words, *arguments])


def print_json(value: Mapping[str, object]) -> None:
    """One JSON object."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))
