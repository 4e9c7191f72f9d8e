"""Entry points to objects by name, each with the version and file digest that go into the records."""

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError, UsageError

__all__ = ["GROUPS", "Plugin", "load_plugin", "name_of", "plugin_names"]

GROUPS: Final = ("fairtrial.agents", "fairtrial.contexts", "fairtrial.subjects", "fairtrial.engines")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One loaded plugin.

    Attributes:
        group: Entry-point group.
        name: Entry-point name.
        target: The class it names.
        distribution: Distribution that declares it, with its version.
        file_sha256: Digest of its sources: of one line `<SHA-256>  <module>` for the module that defines it and for
            each module of the same package that it imports, directly or not, in order of names.
    """

    group: str
    name: str
    target: type
    distribution: str
    file_sha256: str


def plugin_names(group: str) -> tuple[str, ...]:
    """Names declared in a group, sorted; nothing is imported."""
    return tuple(sorted({point.name for point in entry_points(group=group)}))


def name_of(group: str, target: type) -> str:
    """The name that people know a class of a group by; its own where no distribution declares it."""
    value = f"{target.__module__}:{target.__qualname__}"
    return next((point.name for point in entry_points(group=group) if point.value == value), target.__qualname__)


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
    digest = _digest_sources(target.__module__)
    return Plugin(group=group, name=name, target=target, distribution=_distribution_of(point), file_sha256=digest)


def _digest_sources(module: str) -> str:
    """Digest a module and the modules of its package that it imports, and those that they import.

    By what their sources say and not by what is loaded: that would depend on which plugins were loaded before.
    """
    package = module.rpartition(".")[0]
    digests: dict[str, str] = {}
    due = [module]
    while due:
        name = due.pop()
        source = _source_of(name)
        if name in digests or source is None:
            continue
        data = source.read_bytes()
        digests[name] = hashlib.sha256(data).hexdigest()
        if package:
            due += [taken for taken in _imported_names(name, data) if f"{taken}.".startswith(f"{package}.")]
    lines = [f"{digest}  {name}\n" for name, digest in sorted(digests.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _source_of(name: str) -> Path | None:
    """The source of a module; None for a name that is no module, or one without source."""
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:  # what stands before the dot is no package
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin is not None else None


def _imported_names(module: str, source: bytes) -> Iterator[str]:
    """Full names of what a source imports, at any depth in it: modules, and their members, which may be modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            begin = resolve_name("." * node.level, module.rpartition(".")[0]) if node.level else ""
            parent = ".".join(part for part in (begin, node.module) if part)
            yield parent
            yield from (f"{parent}.{alias.name}" for alias in node.names)


def _distribution_of(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "unknown distribution"
