"""From names to subjects on this host, and the digests that pin what a sweep measures."""

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

from fairtrial import __version__
from fairtrial.errors import UsageError
from fairtrial.loop.scenarios import SCENARIOS, scenario_digest
from fairtrial.loop.seed import seed_digest
from fairtrial.model.loop import Variant
from fairtrial.plugins import load_plugin
from fairtrial.protocols import Subject
from fairtrial.sweep.plan import LoopOptions, SubjectFound

__all__ = ["changed_inputs", "find_subjects", "new_subject", "pin_inputs"]


def new_subject(variant: Variant) -> Subject:
    """The subject object of a variant."""
    plugin = load_plugin("fairtrial.subjects", variant.subject)
    return cast("type[Subject]", plugin.target)(variant)


def find_subjects(variants: Sequence[Variant]) -> tuple[SubjectFound, ...]:
    """Probe each variant on this host.

    Raises:
        UsageError: A variant names a plugin that is not installed, or two variants share a name.
    """
    found: list[SubjectFound] = []
    for variant in variants:
        if any(variant.name == other.variant.name for other in found):
            raise UsageError(f"subject '{variant.name}' is asked for twice; name it once")
        plugin = load_plugin("fairtrial.subjects", variant.subject)
        target = cast("type[Subject]", plugin.target)
        probe = target(variant).probe()
        found.append(
            SubjectFound(
                variant=replace(variant, binary=probe.binary) if probe.binary else variant,
                kind=target.kind,
                transports=target.transports,
                probe=probe,
                plugin_sha256=plugin.file_sha256,
            )
        )
    return tuple(found)


def pin_inputs(options: LoopOptions, subjects: Sequence[SubjectFound]) -> dict[str, str]:
    """Every input that a result depends on, by name; ports, paths and clocks are no inputs."""
    pinned = {
        "fairtrial.version": __version__,
        "python.version": platform.python_version(),
        "options": _digest({**asdict(options), "transports": [each.value for each in options.transports]}),
        "seed_tree.sha256": seed_digest(options.n_seed_files),
    }
    for name in options.scenarios:
        pinned[f"scenario.{name}.sha256"] = scenario_digest(SCENARIOS[name])
    for subject in subjects:
        variant = {**asdict(subject.variant), "binary": None}
        pinned[f"subject.{subject.variant.name}.variant"] = _digest(variant)
        pinned[f"subject.{subject.variant.name}.plugin_sha256"] = subject.plugin_sha256
        pinned[f"subject.{subject.variant.name}.version"] = subject.probe.version or "absent"
        for detail, value in sorted(subject.probe.details.items()):
            pinned[f"subject.{subject.variant.name}.{detail}"] = value
    return pinned


def changed_inputs(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """One sentence for each input that is not what it was."""
    names = sorted(before.keys() | now.keys())
    return tuple(
        f"{name} was {before.get(name, 'absent')}, is {now.get(name, 'absent')}"
        for name in names
        if before.get(name) != now.get(name)
    )


def _digest(value: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, frozenset):
        return sorted(cast("frozenset[str]", value))
    raise TypeError(f"{value!r} has no place in an input digest")
