"""Subjects named on the command line or in a TOML file of variants."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairtrial.config.document import Document, KeyPath
from fairtrial.config.names import require_known, show_name
from fairtrial.config.read import read_toml
from fairtrial.config.validate import validate
from fairtrial.model.loop import Variant
from fairtrial.plugins import load_plugin, plugin_names
from fairtrial.protocols import Subject

__all__ = ["SubjectsFile", "VariantEntry", "read_variants"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantEntry:
    """One table `[subject.NAME]` of a subjects file.

    Attributes:
        subject: The subject that it is a variant of.
        label: What reports call it; its name when left out.
        binary: The program to run; the subject's own on PATH when left out.
        settings: The tool's own configuration keys and values.
        acquire_options: Extra arguments of a clone: of a fresh acquisition, and of the base that warm ones share.
    """

    subject: str
    label: str | None = None
    binary: str | None = None
    settings: dict[str, str] = field(default_factory=dict[str, str])
    acquire_options: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectsFile:
    """A TOML file that names variants of subjects.

    Attributes:
        subject: The variants by name.
    """

    subject: dict[str, VariantEntry]


def read_variants(names: Sequence[str], path: Path | None) -> tuple[Variant, ...]:
    """The variants of those names: from the file, else the plugin of that name untuned.

    Raises:
        UsageError: A name is neither a variant nor a subject.
        ConfigError: The file is wrong.
    """
    subjects = plugin_names("fairtrial.subjects")
    variants: dict[str, Variant] = {name: Variant(name=name, subject=name, label=name) for name in subjects}
    if path is not None:
        document = read_toml(path)
        for name, entry in validate(document, SubjectsFile).subject.items():
            if name in subjects or not name or name != name.strip() or any(each in name for each in "(/,"):
                message = (
                    f"'{name}' cannot name a variant: it is a subject's own name, is empty, begins or ends with a"
                    " space, or holds '(', '/' or ','; choose another"
                )
                raise document.error(("subject", name), message)
            _refuse_controls(document, name, entry)
            line, column = document.locate(("subject", name, "subject"))
            require_known(entry.subject, subjects, what="subject", where=f"{path}:{line}:{column}")
            if entry.binary is not None and not Path(entry.binary).is_absolute():
                message = f"'{entry.binary}' is no absolute path; write the program's whole path"
                raise document.error(("subject", name, "binary"), message)
            variants[name] = Variant(
                name=name,
                subject=entry.subject,
                label=entry.label or name,
                binary=entry.binary,
                settings=entry.settings,
                acquire_options=tuple(entry.acquire_options),
            )
            if name in names:
                _check_settings(document, variants[name])
    return tuple(variants[require_known(name, tuple(variants), what="subject", where="--subjects")] for name in names)


def _refuse_controls(document: Document, name: str, entry: VariantEntry) -> None:
    """What a variant says goes into rows, keys, configuration files and commands: a line break would be two of them."""
    said: dict[KeyPath, str] = {
        (): name,
        ("label",): entry.label or "",
        ("binary",): entry.binary or "",
        **{("settings", key): f"{key}{value}" for key, value in entry.settings.items()},
        **{("acquire_options", index): option for index, option in enumerate(entry.acquire_options)},
    }
    for path, text in said.items():
        if any(unicodedata.category(character) == "Cc" for character in text):
            message = f"{show_name(text)} holds a control character, such as a line break; leave it out"
            raise document.error(("subject", name, *path), message)


def _check_settings(document: Document, variant: Variant) -> None:
    """Ask the subject itself.

    Raises:
        ConfigError: It cannot take a setting.
    """
    subject: Subject = load_plugin("fairtrial.subjects", variant.subject).target(variant)
    for key, problem in subject.check_settings().items():
        raise document.error(("subject", variant.name, "settings", key), f"variant '{variant.name}': {problem}")
