"""`fairtrial loop`: a sweep of the tool lane."""

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click

from fairtrial.cli.finish import finish
from fairtrial.cli.options import Seconds, path_option
from fairtrial.cli.output import print_json
from fairtrial.cli.progress import Progress
from fairtrial.cli.reports import write_reports
from fairtrial.cli.subjects import read_variants
from fairtrial.config.names import require_known
from fairtrial.errors import UsageError
from fairtrial.evidence.tokens import ADMITTED_CHARACTERS
from fairtrial.loop.fault_cases import FAULT_CASES
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.loop.seed import N_SEED_FILES
from fairtrial.model.loop import Play, Transport, Variant
from fairtrial.store.layout import require_free
from fairtrial.sweep.loop_sweep import SweepOptions, begin_loop, plan_dry
from fairtrial.sweep.plan import LoopOptions

__all__ = ["command"]

SEED = 20260908


@click.command("loop")
@click.option("--subjects", default="git", show_default=True, help="Comma list of subjects (see `fairtrial plugins`).")
@path_option("--subjects-file", "TOML file that names variants of subjects.")
@click.option("--scenarios", default="task_loop", show_default=True, help="Comma list of scenarios, or `all`.")
@click.option(
    "--faults",
    default="all",
    show_default=True,
    help="Comma list of fault cases of publication_under_fault_v1, or `all`.",
)
@click.option("--transport", default="file", show_default=True, help="Comma list of file, http, native, ssh, hosted.")
@click.option("--runs", type=click.IntRange(1, 10_000), default=3, show_default=True, help="Runs of each cell.")
@click.option("--seed", type=int, default=SEED, show_default=True, help="Seed of the order inside blocks.")
@path_option("--out", "The results directory to make [default: results/loop-<UTC>].")
@path_option("--scratch", "Where to work [default: $TMPDIR, else /var/tmp].")
@click.option(
    "--remote-is-disposable", metavar="URL", help="A hosted remote that may be written to under refs/heads/fairtrial/."
)
@click.option(
    "--credential-env", multiple=True, metavar="NAME", help="A variable that the client of the hosted remote may see."
)
@click.option(
    "--admitted-output-characters",
    type=click.IntRange(0),
    default=ADMITTED_CHARACTERS,
    show_default=True,
    help="Output characters of a command that count towards its token estimate.",
)
@click.option("--keep-workspaces", is_flag=True, help="Leave the scratch directory behind.")
@click.option(
    "--lock-wait",
    type=Seconds(0),
    default=3600.0,
    show_default=True,
    help="Seconds to wait for another measurement.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    *,
    subjects: str,
    subjects_file: Path | None,
    scenarios: str,
    faults: str,
    transport: str,
    runs: int,
    seed: int,
    out: Path | None,
    scratch: Path | None,
    remote_is_disposable: str | None,
    credential_env: tuple[str, ...],
    admitted_output_characters: int,
    keep_workspaces: bool,
    lock_wait: float,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Drive version-control tools through whole tasks and measure what the tasks cost.

    Every subject of a block runs in a seeded order beside a null control; what was published is read back by
    independent means.
    """
    variants = read_variants(_names(subjects, "--subjects"), subjects_file)
    asked = list(SCENARIOS) if scenarios == "all" else _names(scenarios, "--scenarios")
    transports = tuple(
        Transport(require_known(each, [known.value for known in Transport], what="transport", where="--transport"))
        for each in _names(transport, "--transport")
    )
    options = LoopOptions(
        scenarios=tuple(require_known(name, tuple(SCENARIOS), what="scenario", where="--scenarios") for name in asked),
        subjects=tuple(variant.name for variant in variants),
        transports=transports,
        runs=runs,
        seed=seed,
        admitted_output_characters=admitted_output_characters,
        n_seed_files=N_SEED_FILES,
        hosted_remote=_hosted(remote_is_disposable, transports),
        credential_env=_credentials(credential_env, transports),
        faults=_faults(faults, asked),
    )
    if dry_run:
        require_free(out)
        return _print_plan(options, variants, as_json=as_json)
    with Progress() as progress:
        how = SweepOptions(
            out=out,
            scratch=scratch,
            keep_workspaces=keep_workspaces,
            lock_wait_s=lock_wait,
            report=write_reports,
            say=progress.say,
            watch=progress.watch,
        )
        begun = begin_loop(options, variants, how)
    return finish(begun, as_json=as_json)


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{option} names nothing; give a comma list")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{option} names {', '.join(twice)} more than once; name each once")
    return names


def _faults(text: str, scenarios: Sequence[str]) -> tuple[str, ...]:
    if text == "all":
        return ()
    known, playing = tuple(FAULT_CASES), [name for name, each in SCENARIOS.items() if each.play is Play.FAULTS]
    cases = tuple(require_known(each, known, what="fault case", where="--faults") for each in _names(text, "--faults"))
    if not set(playing) & set(scenarios):
        raise UsageError(f"--faults is given, but --scenarios names none that plays faults; add {', '.join(playing)}")
    return cases


def _hosted(url: str | None, transports: Sequence[Transport]) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.password or (parts.username and parts.scheme in {"http", "https"}):
        raise UsageError(
            "--remote-is-disposable: the address holds a credential; pass it by a variable and --credential-env NAME"
        )
    if not url.strip() or url.startswith("-"):
        raise UsageError(f"--remote-is-disposable: {url!r} is no address")
    if Transport.HOSTED not in transports:
        raise UsageError("--remote-is-disposable is given, but --transport does not name hosted; add it")
    return url


def _credentials(names: tuple[str, ...], transports: Sequence[Transport]) -> tuple[str, ...]:
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(f"--credential-env: {name!r:.80} is no name of a variable; give its name, not its value")
    if names and Transport.HOSTED not in transports:
        raise UsageError("--credential-env is given, but --transport does not name hosted; add it")
    return names


def _print_plan(options: LoopOptions, variants: tuple[Variant, ...], *, as_json: bool) -> int:
    plan = plan_dry(options, variants)
    if as_json:
        print_json(
            {
                "schema": "plan/1",
                "plan": [
                    {
                        "plan_index": trial.plan_index,
                        "key": trial.key,
                        "block": trial.loop.block,
                        "skip_reason": trial.loop.skip_reason,
                    }
                    for trial in plan
                ],
            }
        )
        return 0
    for trial in plan:
        click.echo(
            f"{trial.plan_index:4d}  {trial.key}"
            + (f"  skipped: {trial.loop.skip_reason}" if trial.loop.skip_reason else "")
        )
    return 0
