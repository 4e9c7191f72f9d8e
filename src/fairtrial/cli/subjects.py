"""Subjects named on the command line or in a TOML file of variants."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairtrial.config.names import require_known
from fairtrial.config.read import read_toml
from fairtrial.config.validate import validate
from fairtrial.errors import ConfigError
from fairtrial.model.loop import Variant
from fairtrial.plugins import plugin_names

__all__ = ["SubjectsFile", "VariantEntry", "read_variants"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantEntry:
    """One table `[subject.NAME]` of a subjects file.

    Attributes:
        subject: The subject that it is a variant of.
        label: What reports call it; its name when left out.
        binary: The program to run; the subject's own on PATH when left out.
        settings: The tool's own configuration keys and values.
        acquire_options: Extra arguments of a fresh acquisition.
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
            if name in subjects or "(" in name or "/" in name:
                line, column = document.locate(("subject", name))
                message = (
                    f"'{name}' cannot name a variant: it is a subject's own name or holds '(' or '/'; choose another"
                )
                raise ConfigError(message, path=path, line=line, column=column, key=f"subject.{name}")
            line, column = document.locate(("subject", name, "subject"))
            require_known(entry.subject, subjects, what="subject", where=f"{path}:{line}:{column}")
            if entry.binary is not None and not Path(entry.binary).is_absolute():
                line, column = document.locate(("subject", name, "binary"))
                message = f"'{entry.binary}' is no absolute path; write the program's whole path"
                raise ConfigError(message, path=path, line=line, column=column, key=f"subject.{name}.binary")
            variants[name] = Variant(
                name=name,
                subject=entry.subject,
                label=entry.label or name,
                binary=entry.binary,
                settings=entry.settings,
                acquire_options=tuple(entry.acquire_options),
            )
    return tuple(variants[require_known(name, tuple(variants), what="subject", where="--subjects")] for name in names)
