"""Options that the commands of the agent lane share, and the one that takes several words."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
from typing_extensions import override

from fairtrial.bench.plugin_files import is_exact_version
from fairtrial.errors import UsageError
from fairtrial.sweep.bench_plan import PluginOptions

__all__ = [
    "WordsCommand",
    "existing",
    "path_option",
    "plugin_places",
    "require_digest",
    "skill_directories",
    "split_names",
]

F = TypeVar("F", bound=Callable[..., object])
WORDS = ("--arms", "--only")


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


def path_option(name: str, text: str, *, required: bool = False) -> Callable[[F], F]:
    """An option that takes a path."""
    return click.option(name, type=click.Path(path_type=Path), required=required, help=text)


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
