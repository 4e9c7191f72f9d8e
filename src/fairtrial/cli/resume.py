"""`fairtrial resume`: finish a sweep that was broken off."""

from pathlib import Path

import click

from fairtrial.cli.evolved import finish_evolution
from fairtrial.cli.finish import finish, finish_bench
from fairtrial.cli.options import pass_options
from fairtrial.cli.progress import Progress
from fairtrial.cli.reports import write_reports
from fairtrial.evolve.evolution import resume_evolution
from fairtrial.evolve.record import is_evolution, open_evolution
from fairtrial.promote.promoter import Gate
from fairtrial.store.layout import open_results
from fairtrial.store.sweep_file import read_sweep
from fairtrial.sweep.bench_sweep import resume_bench
from fairtrial.sweep.loop_sweep import SweepOptions, resume_loop

__all__ = ["command"]


@click.command("resume")
@click.argument("directory", type=click.Path(path_type=Path))
@pass_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    *,
    directory: Path,
    scratch: Path | None,
    keep_workspaces: bool,
    lock_wait: float,
    workers: int,
    provider_wait: float,
    as_json: bool,
) -> int:
    """Finish the sweep in DIRECTORY, or go on with the evolution in it.

    Every trial without a counting attempt (interrupted, void, never begun) gets a new one.
    A changed input (a subject's version, a scenario, an option) is refused by name.
    """
    with Progress() as progress:
        how = SweepOptions(
            out=None,
            scratch=scratch,
            keep_workspaces=keep_workspaces,
            lock_wait_s=lock_wait,
            report=write_reports,
            say=progress.say,
            watch=progress.watch,
            provider_wait_s=provider_wait,
        )
        if is_evolution(directory):
            evolved = resume_evolution(open_evolution(directory), how, n_workers=workers)
            return finish_evolution(evolved, as_json=as_json)
        results = open_results(directory)
        is_bench = read_sweep(results).lane == "bench"
        begun = (
            resume_bench(results, how, n_workers=workers, promoter=Gate()) if is_bench else resume_loop(results, how)
        )
    return finish_bench(begun, as_json=as_json) if is_bench else finish(begun, as_json=as_json)
