"""`fairtrial gateway` (hidden): what a sweep starts on each node."""

import click

from fairtrial.gateway.process import serve

__all__ = ["command"]


@click.command("gateway", hidden=True)
def command() -> int:
    """Serve models to trials: settings as one JSON line on standard input, whose end is the gateway's end."""
    return serve()
