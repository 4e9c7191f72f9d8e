"""`fairtrial plugins`: what is installed."""

import click

from fairtrial.cli.output import print_json
from fairtrial.errors import HostError, UsageError
from fairtrial.plugins import GROUPS, load_plugin, plugin_names

__all__ = ["command"]


@click.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(*, as_json: bool) -> int:
    """List every plugin with its distribution, its file's digest, and why it cannot be loaded where it cannot."""
    found: list[dict[str, str | None]] = []
    for group in GROUPS:
        for name in plugin_names(group):
            try:
                plugin = load_plugin(group, name)
                entry = {"distribution": plugin.distribution, "file_sha256": plugin.file_sha256, "problem": None}
            except (HostError, UsageError) as problem:
                entry = {"distribution": None, "file_sha256": None, "problem": str(problem)}
            found.append({"group": group, "name": name, **entry})
    if as_json:
        print_json({"schema": "plugins/1", "plugins": found})
    else:
        for each in found:
            what = each["problem"] or f"{each['distribution']}, file {str(each['file_sha256'])[:12]}"
            click.echo(f"{each['group']}: {each['name']}: {what}")
    return 1 if any(each["problem"] for each in found) else 0
