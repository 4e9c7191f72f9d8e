"""`fairtrial audit`: is the evidence intact?"""

from dataclasses import asdict
from pathlib import Path

import click

from fairtrial.cli.options import require_digest
from fairtrial.cli.output import print_json
from fairtrial.errors import IntegrityError, NotEnoughEvidenceError
from fairtrial.evidence.endings import VOID_MEMBERS, is_void
from fairtrial.store.audit import AuditReport, audit
from fairtrial.store.layout import open_results
from fairtrial.sweep.rejudge import rejudge
from fairtrial.sweep.scratch import scratch_base

__all__ = ["command"]


@click.command("audit")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--expect", metavar="SHA256", help="The seal's digest as it was printed or signed elsewhere.")
@click.option(
    "--rejudge", "again", is_flag=True, help="Ask oracles and checks again about the stored changes (agent lane)."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(*, directory: Path, expect: str | None, again: bool, as_json: bool) -> int:
    """Name every row or artifact of DIRECTORY that was changed, dropped, added, duplicated or reordered.

    Exit code 0: intact and complete; 4: something is not what was written; 5: intact, but planned trials lack a
    counting attempt. Against someone who rewrites the whole chain only a digest kept elsewhere helps: pass it as
    --expect.
    """
    require_digest(expect)
    results = open_results(directory)
    found = audit(results, expect=expect, is_void=is_void, final_members=VOID_MEMBERS)
    rejudged = tuple(rejudge(results, scratch_base(None))) if again else ()
    changed = [each for each in rejudged if each.changes]
    code = IntegrityError.exit_code if changed else _exit_code(found)
    if as_json:
        verdicts = {"rejudged": [asdict(each) for each in rejudged]} if again else {}
        whole = {"schema": "audit/1", "intact": found.is_intact, "complete": found.is_complete, **asdict(found)}
        print_json(whole | verdicts)
        return code
    for each in changed:
        click.echo(f"{each.key}#{each.attempt} {each.record}: {'; '.join(each.changes)}")
    if again:
        click.echo(f"{len(rejudged) - len(changed)} of {len(rejudged)} verdicts were repeated")
    for problem in found.problems:
        click.echo(problem.as_line())
    n_left_out = sum(found.counts.values()) - len(found.problems)
    if n_left_out:
        click.echo(f"and {n_left_out} more problems")
    click.echo(_verdict(found))
    return code


def _exit_code(found: AuditReport) -> int:
    if not found.is_intact:
        return IntegrityError.exit_code
    return 0 if found.is_complete else NotEnoughEvidenceError.exit_code


def _verdict(found: AuditReport) -> str:
    if found.sweep is None:
        return "damaged: sweep.json cannot be read, so nothing else can be checked"
    state = "damaged" if not found.is_intact else "intact" if found.is_complete else "intact, not complete"
    seal = f"seal {found.seal_digest}" if found.sealed else "not sealed"
    counting = f"{found.n_counting} of {found.n_planned} planned trials have a counting attempt"
    return f"{state}: {found.n_rows} rows, {found.n_attempts} attempts, {counting}; {seal}"
