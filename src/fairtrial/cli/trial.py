"""`fairtrial trial`: one attempt from a spec file, in this process."""

from pathlib import Path

import click

from fairtrial.errors import ConfigError, HostError
from fairtrial.sweep.worker import Desk, parse_spec, run_attempt

__all__ = ["command"]


@click.command("trial")
@click.argument("spec", type=click.Path(path_type=Path))
def command(spec: Path) -> int:
    """Run the attempt that SPEC (JSON, as sent to a worker) describes; intent and outcome go where it says."""
    try:
        data = spec.read_bytes()
    except OSError as problem:
        raise ConfigError(f"{problem.strerror}; name a readable spec file", path=spec) from problem
    parsed = parse_spec(data, path=spec)
    with Desk() as desk:
        answer = run_attempt(parsed, desk)
    click.echo(answer.as_line().decode(), nl=False)
    if answer.error is not None:
        raise HostError(answer.error)
    return 0
