"""`fairtrial report`: render again."""

from pathlib import Path

import click

from fairtrial.cli.output import print_json, result_console
from fairtrial.cli.reports import summarize_file, summarize_results
from fairtrial.errors import UsageError
from fairtrial.store.layout import open_results
from fairtrial.store.seal import seals_last_row

__all__ = ["command"]


@click.command("report")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--markdown", is_flag=True, help="Markdown on standard output.")
def command(*, path: Path, as_json: bool, markdown: bool) -> int:
    """Render the report of PATH, a results directory or a bare JSONL file of rows, to standard output.

    Nothing in the directory is changed. `sealed` says that a seal names the last row; the other rows are believed as
    they stand, and the report says so. `fairtrial audit` reads everything.
    """
    if as_json and markdown:
        raise UsageError("--json and --markdown are two forms of one report; ask for one")
    if path.is_dir():
        results = open_results(path)
        report, sealed = summarize_results(results), seals_last_row(results)
    else:
        report, sealed = summarize_file(path), False
    if as_json:
        print_json(report.as_json(sealed=sealed))
    elif markdown:
        click.echo(report.as_markdown(), nl=False)
    else:
        report.print_to(result_console())
    return 0
