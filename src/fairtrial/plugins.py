"""Entry points to objects by name, each with the version and file digest that go into the records."""

import hashlib
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError, UsageError

__all__ = ["GROUPS", "Plugin", "load_plugin", "plugin_names"]

GROUPS: Final = ("fairtrial.agents", "fairtrial.subjects", "fairtrial.engines")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One loaded plugin.

    Attributes:
        group: Entry-point group.
        name: Entry-point name.
        target: The class it names.
        distribution: Distribution that declares it, with its version.
        file_sha256: Digest of the source file that defines it.
    """

    group: str
    name: str
    target: type
    distribution: str
    file_sha256: str


def plugin_names(group: str) -> tuple[str, ...]:
    """Names declared in a group, sorted; nothing is imported."""
    return tuple(sorted({point.name for point in entry_points(group=group)}))


def load_plugin(group: str, name: str) -> Plugin:
    """Load one plugin by name.

    Raises:
        UsageError: No such name, or two distributions declare it.
        HostError: It is declared but cannot be loaded.
    """
    found = [point for point in entry_points(group=group) if point.name == name]
    if not found:
        known = ", ".join(plugin_names(group)) or "none"
        raise UsageError(f"no plugin '{name}' in {group}; installed: {known}")
    if len({point.value for point in found}) > 1:
        declared = ", ".join(sorted(_distribution_of(point) for point in found))
        raise UsageError(f"plugin '{name}' of {group} is declared more than once ({declared}); uninstall one")
    point = found[0]
    try:
        target: object = point.load()
    except Exception as problem:
        raise HostError(
            f"plugin '{name}' of {group} ({point.value}) cannot be loaded: {type(problem).__name__}: {problem}; "
            "reinstall or remove its distribution"
        ) from problem
    if not isinstance(target, type):
        raise HostError(f"plugin '{name}' of {group} ({point.value}) is no class; its author must name one")
    source = sys.modules[target.__module__].__file__
    digest = hashlib.sha256(Path(source).read_bytes()).hexdigest() if source else ""
    return Plugin(group=group, name=name, target=target, distribution=_distribution_of(point), file_sha256=digest)


def _distribution_of(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "unknown distribution"
