"""The command group, and the one place where an error becomes a line and an exit code.

The help page needs click and nothing else: what only a command or an error needs is imported there.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

import click
from typing_extensions import override

from fairtrial import __version__
from fairtrial.cli.streams import ClosedPipeError, open_streams
from fairtrial.errors import FairtrialError, HostError

__all__ = ["COMMANDS", "LazyGroup", "group", "main", "run"]

COMMANDS: Final = {
    "apply": "Put a promoted candidate into the working tree, all or nothing.",
    "audit": "Is the evidence in a results directory intact?",
    "bench": "Run a sweep of the agent lane.",
    "check": "Controls: is each task worth spending on?",
    "doctor": "What this host can do, with remedies.",
    "evolve": "Propose, measure, decide, again: let a model improve a skill.",
    "gate": "Does the candidate replace the incumbent?",
    "init": "Write an example to start from.",
    "loop": "Run a sweep of the tool lane.",
    "plugins": "What is installed.",
    "report": "Render the report of a results directory or of a bare JSONL file again.",
    "resume": "Finish a sweep that was broken off.",
    "trial": "Run one trial from a spec file (what an engine sends to a worker).",
}
HIDDEN: Final = ("gateway", "worker")
WIDEST_HELP: Final = 80
OUR_BUG: Final = 70
INTERRUPTED: Final = 130
CLOSED_PIPE: Final = 141


class LazyGroup(click.Group):
    """Imports a command's module when it is run, so that `--help` stays quick."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names for the help page."""
        return sorted(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        from fairtrial.config.names import require_known  # noqa: PLC0415 - see above

        if cmd_name not in HIDDEN:
            require_known(cmd_name, COMMANDS, what="command", where="fairtrial")
        module = importlib.import_module(f"fairtrial.cli.{cmd_name}")
        command = module.command
        if not isinstance(command, click.Command):
            raise TypeError(f"fairtrial.cli.{cmd_name} names no command")
        return command

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairtrial")
@click.option("-q", "--quiet", is_flag=True, help="No progress, no notes; errors only.")
@click.option("-v", "--verbose", is_flag=True, help="More on standard error; an error of ours shows its traceback.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colour on a terminal.")
def group(*, quiet: bool, verbose: bool, color: str) -> None:
    """Paired, contained, evidence-grade experiments for coding agents and the tools they drive.

    Exit codes: 0 done or yes, 1 the answer is no, 2 usage, 3 the host cannot, 4 integrity, 5 not enough evidence, 70
    our bug, 128 + signal after a clean stop.
    """
    import logging  # noqa: PLC0415 - see above

    level = logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=level, format="fairtrial: %(message)s", stream=sys.stderr, force=True)
    if color == "never":
        os.environ["NO_COLOR"] = "1"
    elif color == "always":
        os.environ["FORCE_COLOR"] = "1"


def run(argv: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    try:
        code = group.main(args=list(argv), prog_name="fairtrial", standalone_mode=False, terminal_width=_help_columns())
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    except click.exceptions.NoArgsIsHelpError as help_request:
        help_request.show()
        return 2
    except click.ClickException as problem:
        return _fail(argv, 2, problem.format_message())
    except click.Abort:
        return _fail(argv, INTERRUPTED, "stopped")
    except FairtrialError as problem:
        return _fail(argv, problem.exit_code, str(problem))
    except ClosedPipeError:
        return CLOSED_PIPE
    except Exception as bug:  # noqa: BLE001 - the top: no traceback reaches a user unless asked for
        if "-v" in argv or "--verbose" in argv:
            import traceback  # noqa: PLC0415 - see above

            traceback.print_exc()
        return _fail(argv, OUR_BUG, f"a bug of ours: {type(bug).__name__}: {bug}; run again with -v and report it")
    return code if isinstance(code, int) else 0


def _help_columns() -> int:
    """Columns of a help page, as click chooses them; it would import `shutil` to ask."""
    try:
        columns = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size().columns
    except (OSError, ValueError):
        columns = WIDEST_HELP
    return max(min(columns, WIDEST_HELP) - 2, 50)


def _fail(argv: Sequence[str], code: int, message: str) -> int:
    from fairtrial.config.names import show_text  # noqa: PLC0415 - see above

    line = show_text("; ".join(" ".join(part.split()) for part in message.splitlines()))
    click.echo(f"fairtrial: error: {line}", err=True)
    if "--json" in argv:
        import json  # noqa: PLC0415 - see above

        with contextlib.suppress(ClosedPipeError, HostError):  # it stands on standard error, too
            click.echo(json.dumps({"schema": "error/1", "exit_code": code, "message": line}))
    return code


def main() -> None:
    """The `fairtrial` program."""
    argv = sys.argv[1:]
    try:
        open_streams()
    except HostError as problem:
        sys.exit(_fail(argv, problem.exit_code, str(problem)))
    sys.exit(run(argv))
