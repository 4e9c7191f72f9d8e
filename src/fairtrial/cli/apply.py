"""`fairtrial apply`: put a promoted candidate into the working tree, all or nothing."""

from pathlib import Path

import click

from fairtrial.cli.options import expect_option, require_digest
from fairtrial.cli.output import print_json
from fairtrial.errors import UsageError
from fairtrial.host.clock import utc_now
from fairtrial.host.signals import stop_requests
from fairtrial.promote.apply import Use, apply_promotion, check_promotion
from fairtrial.promote.recovery import recover
from fairtrial.promote.transaction import Step
from fairtrial.store.layout import open_results

__all__ = ["command"]


class _StopError(BaseException):
    """A signal asked us to stop: everything is put back."""


@click.command("apply")
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option(
    "--project",
    type=click.Path(path_type=Path),
    help="Top of the work tree that is changed; the current directory when left out.",
)
@click.option("--check", is_flag=True, help="Check the project too, say whether it may be applied, and change nothing.")
@expect_option
@click.option("--rehearsal", is_flag=True, help="Apply a rehearsal's promotion, to a project that you can lose.")
@click.option("--recover", "is_recovery", is_flag=True, help="Clean up in --project what a broken-off apply left.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    *,
    directory: Path | None,
    project: Path | None,
    check: bool,
    expect: str | None,
    rehearsal: bool,
    is_recovery: bool,
    as_json: bool,
) -> int:
    """Put the promoted candidate of DIRECTORY into the work tree of --project: every file or none.

    Everything is checked again first: the seal, the promotion, each decision from its rows, and that the project still
    holds what the candidate was measured against. Only the work tree changes; commit and review stay yours.

    Exit code 0: applied, or with --check: would be; 1: it may not be applied; 2: the project is not what was measured
    against; 4: the evidence is not what was written, or the tree was changed meanwhile.
    """
    if (directory is None) != is_recovery:
        raise UsageError("name a results directory to apply, or --recover to clean up, and not both")
    if is_recovery and expect is not None:
        raise UsageError("--expect is about a results directory; leave it out with --recover")
    require_digest(expect)
    tree = (project or Path()).absolute()
    use = Use.REHEARSAL if rehearsal else Use.REAL
    replaced: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    if directory is None:
        done = recover(tree)
    elif check:
        check_promotion(open_results(directory), tree, now=utc_now(), use=use, expect=expect)
    else:
        with stop_requests() as stop:

            def watch(_step: Step, _path: str) -> None:
                if stop.signal_number is not None:
                    raise _StopError

            try:
                replaced = apply_promotion(
                    open_results(directory), tree, now=utc_now(), watch=watch, use=use, expect=expect
                )
            except _StopError:
                number = stop.signal_number or 0
                said = f"stopped by signal {number}; everything is as it was: run it again"
                click.echo(f"fairtrial: {said}", err=True)
                if as_json:
                    print_json({"schema": "error/1", "exit_code": 128 + number, "message": said})
                return 128 + number
    if as_json:
        print_json({"schema": "apply/1", "replaced": list(replaced), "recovered": list(done)})
    else:
        for line in (*(f"replaced {path}" for path in replaced), *done):
            click.echo(line)
        if not replaced and not done:
            click.echo("may be applied" if check else "nothing to do")
    return 0
