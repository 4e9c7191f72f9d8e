"""Options that the commands of the agent lane share, and the one that takes several words."""

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from typing_extensions import override

from fairtrial.bench.plugin_files import is_exact_version
from fairtrial.errors import UsageError
from fairtrial.model.bench import MAX_STEP_S
from fairtrial.sweep.bench_plan import PluginOptions
from fairtrial.wire.upstream import parse_origin

__all__ = [
    "DEFAULT_SEED",
    "Finite",
    "PlacePath",
    "Seconds",
    "WordsCommand",
    "existing",
    "expect_option",
    "pass_options",
    "path_option",
    "plan_options",
    "plugin_places",
    "require_digest",
    "require_provider",
    "session_options",
    "skill_directories",
    "split_names",
    "treatment_options",
]

F = TypeVar("F", bound=Callable[..., object])
WORDS = ("--arms", "--only")
DEFAULT_SEED: Final = 20260908


class WordsCommand(click.Command):
    """A command whose `--arms a b c` means `--arms a,b,c`."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join the words behind such an option before click sees them."""
        joined: list[str] = []
        for word in args:
            if len(joined) >= 2 and joined[-2] in WORDS and not word.startswith("-"):
                joined[-1] += f",{word}"
            else:
                joined.append(word)
        return super().parse_args(ctx, joined)


class PlacePath(click.Path):
    """A path that says something: the empty one would be the current directory."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse the empty path, then do as click does."""
        if value == "":
            self.fail("the path is empty; name one, or leave the option out", param, ctx)
        return super().convert(value, param, ctx)


class Finite(click.FloatRange):
    """A number, and a finite one."""

    unit = ""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse nan, which lies in every range, and infinity; then do as click does."""
        if not math.isfinite(click.FLOAT.convert(value, param, ctx)):
            self.fail(f"{value} is no number{self.unit}", param, ctx)
        return super().convert(value, param, ctx)


class Seconds(Finite):
    """A number of seconds that this machine can count: at most `MAX_STEP_S`."""

    unit = " of seconds"

    def __init__(self, least: float, *, open_below: bool = False) -> None:
        """Take the least number, which with `open_below` is itself too small."""
        super().__init__(min=least, max=MAX_STEP_S, min_open=open_below)


def path_option(name: str, text: str, *, required: bool = False) -> Callable[[F], F]:
    """An option that takes a path."""
    return click.option(name, type=PlacePath(path_type=Path), required=required, help=text)


def treatment_options(command: F) -> F:
    """What is measured: skills, plugins, runs, model, agent and context; of `bench` and `evolve`."""
    return _with(
        command,
        path_option("--arms-file", "YAML file with arms of your own."),
        click.option(
            "--skill", "skills", multiple=True, metavar="ROLE=DIR", help="Directory of a skill that an arm calls ROLE."
        ),
        click.option(
            "--plugin",
            "plugins",
            multiple=True,
            metavar="NAME@VERSION=DIR",
            help="Directory of a plugin that an arm works with.",
        ),
        click.option("--runs", type=click.IntRange(1, 10_000), default=3, show_default=True, help="Runs of each cell."),
        click.option("--model", required=True, help="The model, by a name that always means the same."),
        click.option("--agent", default="claude-code", show_default=True, help="The agent (see `fairtrial plugins`)."),
        click.option("--effort", help="How hard the model shall think, in the agent's word."),
        click.option(
            "--context", metavar="NAME", help="The context of arms that do not name one (see `fairtrial plugins`)."
        ),
    )


def session_options(command: F) -> F:
    """How a trial's sessions are run and what answers them; of `bench` and `evolve`."""
    return _with(
        command,
        click.option(
            "--timeout",
            type=Seconds(0, open_below=True),
            default=3600.0,
            show_default=True,
            help="Seconds of a session, check or oracle.",
        ),
        click.option(
            "--engine", default="local", show_default=True, help="What starts workers (see `fairtrial plugins`)."
        ),
        click.option("--seed", type=int, default=DEFAULT_SEED, show_default=True, help="Seed of the order in blocks."),
        click.option(
            "--outage-streak",
            type=click.IntRange(0),
            default=5,
            show_default=True,
            help="Stop after so many endings in a row that an outage causes; 0 = never.",
        ),
        click.option(
            "--allow-unenforced", multiple=True, metavar="LIMIT", help="Go on where this limit cannot be enforced."
        ),
        path_option("--script", "A scripted model that stands for the provider."),
        click.option(
            "--record", is_flag=True, help="Keep the model's answers, session by session, as scripts for --script."
        ),
        click.option("--base-url", metavar="URL", help="Address of the provider [default: the dialect's own]."),
        click.option(
            "--key-env", metavar="NAME", help="Variable that holds the provider's key [default: the dialect's own]."
        ),
        path_option("--key-file", "File that holds the provider's key and nothing else, instead of a variable."),
    )


def pass_options(command: F) -> F:
    """How one pass is run, which is no part of what is measured; of `bench`, `evolve` and `resume`."""
    return _with(
        command,
        click.option(
            "--workers",
            type=click.IntRange(1, 64),
            default=1,
            show_default=True,
            help="Trials at the same time (agent lane).",
        ),
        path_option("--scratch", "Where to work [default: $TMPDIR, else /var/tmp]."),
        click.option(
            "--lock-wait",
            type=Seconds(0),
            default=3600.0,
            show_default=True,
            help="Seconds to wait for another measurement.",
        ),
        click.option(
            "--provider-wait",
            type=Seconds(0),
            default=3600.0,
            show_default=True,
            help="Seconds to stand still for a provider that is down before the sweep ends (agent lane).",
        ),
        click.option("--keep-workspaces", is_flag=True, help="Leave the scratch directory behind."),
    )


def plan_options(command: F) -> F:
    """The plan alone, and an answer for programs; of `bench` and `evolve`."""
    return _with(
        command,
        click.option("--dry-run", is_flag=True, help="Print the plan and stop."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output."),
    )


def expect_option(command: F) -> F:
    """The seal as it is known from elsewhere; of `apply` and `gate`."""
    text = "The seal's digest as it was printed or signed elsewhere."
    return click.option("--expect", metavar="SHA256", help=text)(command)


def _with(command: F, *options: Callable[[F], F]) -> F:
    """A command with options, which its help shows in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def split_names(text: str, option: str) -> tuple[str, ...]:
    """A comma list.

    Raises:
        UsageError: It is empty, or names something twice.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{option} names nothing; give one or more names")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{option} names {', '.join(twice)} more than once; name each once")
    return tuple(names)


def require_digest(expect: str | None) -> None:
    """Check that `--expect` can be the digest of a seal.

    Raises:
        UsageError: It cannot.
    """
    if expect is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", expect):
        raise UsageError(f"--expect: {expect!r} is no SHA-256 in hex; pass the 64 digits that the sweep printed")


def require_provider(*, script: Path | None, base_url: str | None, key_env: str | None, key_file: Path | None) -> None:
    """Check what was said of the provider, before anything is made.

    Raises:
        UsageError: The address is none, the variable is not set, or the file cannot be read; the message shows none of
            their secrets.
    """
    if base_url is not None:
        try:
            parse_origin(base_url)
        except UsageError as problem:
            raise UsageError(f"--base-url: {problem}") from None
    if script is None and key_env is not None and not os.environ.get(key_env):
        raise UsageError(f"--key-env: variable {key_env!r:.80} is not set; it must hold the provider's key")
    if key_env is not None and key_file is not None:
        raise UsageError("--key-env and --key-file both say where the provider's key is; give one of them")
    # Only whether it can be read: the gateway alone reads it.
    if script is None and key_file is not None and not (key_file.is_file() and os.access(key_file, os.R_OK)):
        raise UsageError(f"--key-file: {key_file} is no file that can be read; it must hold the provider's key alone")


def existing(path: Path | None) -> str | None:
    """A path as a sweep records it: absolute."""
    return None if path is None else str(path.absolute())


def skill_directories(given: tuple[str, ...]) -> dict[str, str]:
    """`--skill ROLE=DIR`, by role.

    Raises:
        UsageError: One has another form.
    """
    found: dict[str, str] = {}
    for each in given:
        role, equals, directory = each.partition("=")
        if not equals or not role or not directory:
            raise UsageError(f"--skill: {each!r} is not ROLE=DIRECTORY, as in work=.claude/skills/acme-work")
        if role in found:
            raise UsageError(f"--skill: {role!r} is given twice; give it once")
        found[role] = str(Path(directory).absolute())
    return found


def plugin_places(given: tuple[str, ...]) -> dict[str, PluginOptions]:
    """`--plugin NAME@VERSION=DIR`, by name.

    Raises:
        UsageError: One has another form, or no exact version.
    """
    found: dict[str, PluginOptions] = {}
    for each in given:
        named, equals, directory = each.partition("=")
        name, at, version = named.rpartition("@")
        if not equals or not at or not name or not directory or not is_exact_version(version):
            raise UsageError(
                f"--plugin: {each!r} is not NAME@VERSION=DIRECTORY with an exact version, as in"
                " compound-engineering@1.2.3=plugins/compound-engineering"
            )
        if name in found:
            raise UsageError(f"--plugin: {name!r} is given twice; give it once")
        found[name] = PluginOptions(version=version, directory=str(Path(directory).absolute()))
    return found
