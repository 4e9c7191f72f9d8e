"""`fairtrial init`: something that runs, to start from."""

from pathlib import Path

import click

from fairtrial.bench.example import write_example
from fairtrial.cli.output import print_json

__all__ = ["command"]

NEXT = """{where}: four tasks and two reviews on a small repository, with all that they need, arms and scripts.
Every key is explained in tasks.yaml and arms.yaml. Try it, offline and for nothing:

  fairtrial check {where}/tasks.yaml
  fairtrial bench --tasks {where}/tasks.yaml --arms baseline workflow --agent bash-agent \\
      --skill plan={where}/skills/tally-plan --skill work={where}/skills/tally-work \\
      --model claude-sonnet-4-5 --script {where}/script.yaml

Then point `repo` at your own repository, write a prompt and an oracle, and leave --script away."""


@click.command("init")
@click.argument("directory", type=click.Path(path_type=Path), default=Path("fairtrial-tasks"))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(*, directory: Path, as_json: bool) -> int:
    """Write an example to start from into DIRECTORY (default: fairtrial-tasks), which must be new or empty."""
    write_example(directory)
    if as_json:
        print_json({"schema": "init/1", "directory": str(directory)})
    else:
        click.echo(NEXT.format(where=directory))
    return 0
