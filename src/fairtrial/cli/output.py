"""Results on standard output, once."""

import json
import sys
from collections.abc import Mapping
from typing import Final

import click
from rich.console import Console

__all__ = ["PAGE_COLUMNS", "print_json", "result_console"]

PAGE_COLUMNS: Final = 120
"""Columns of a table that goes into a file or a pipe."""


def result_console() -> Console:
    """The console for tables on standard output."""
    return Console(width=None if sys.stdout.isatty() else PAGE_COLUMNS)


def print_json(value: Mapping[str, object]) -> None:
    """One JSON object."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))
