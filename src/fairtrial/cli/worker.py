"""`fairtrial worker` (hidden): what an engine starts."""

import sys

import click

from fairtrial.sweep.worker import serve

__all__ = ["command"]


@click.command("worker", hidden=True)
def command() -> int:
    """Read trial specs as JSON lines, run them one at a time, answer each with one JSON line; end of input ends it."""
    return serve(sys.stdin.buffer, sys.stdout.buffer)
