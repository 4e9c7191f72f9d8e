"""Where a project keeps the skills that a candidate may change: data of the project, not of this program."""

import re
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from fairtrial.config.names import require_known
from fairtrial.config.read import read_yaml
from fairtrial.config.validate import validate
from fairtrial.errors import ConfigError

__all__ = ["DEFAULT_LAYOUT", "SKILL_NAME", "SkillLayout", "read_layout"]

DEFAULT_LAYOUT: Final = "plain"
SKILL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillLayout:
    """One project's places for skills.

    Attributes:
        root: The canonical directory of skills, below the project's top.
        mirrors: Other directories that hold the same skills, byte for byte.
        skills: Skills that a candidate may change; None for any.
    """

    root: str
    mirrors: tuple[str, ...] = ()
    skills: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        roots = (self.root, *self.mirrors)
        for path in roots:
            parts = path.split("/")
            if path.startswith("/") or "\\" in path or "\0" in path or {"", ".", ".."} & set(parts) or ".git" in parts:
                raise ValueError(f"{path!r:.80} is no plain path below the project's top")
        for path in roots:
            if any(path != other and f"{other}/".startswith(f"{path}/") for other in roots):
                raise ValueError(f"{path!r:.80} holds another of the places; name places that lie apart")
        if len(set(roots)) != len(roots):
            raise ValueError("a place is named twice; name each once")
        if self.skills is not None and not self.skills:
            raise ValueError("skills is empty; name the skills that may be changed, or leave the key out for any")
        for name in self.skills or ():
            if not SKILL_NAME.fullmatch(name):
                raise ValueError(f"skill {name!r:.80} must be letters, digits, '.', '_' or '-'")

    def targets(self, path: str) -> tuple[str, ...]:
        """Where a file of an overlay belongs: its canonical place, then each mirror's."""
        below = path.removeprefix(f"{self.root}/")
        return (path, *(f"{mirror}/{below}" for mirror in self.mirrors))


@dataclass(frozen=True, slots=True, kw_only=True)
class _LayoutFile:
    layouts: dict[str, SkillLayout]


def read_layout(named: str) -> SkillLayout:
    """Give the shipped layout of that name, or read a file of one.

    Args:
        named: A shipped layout's name, or the path of a YAML file with the keys of `SkillLayout`.

    Raises:
        ConfigError: The file is wrong.
        UsageError: It is neither a file nor a shipped layout.
    """
    path = Path(named)
    if path.suffix in {".yaml", ".yml"} or "/" in named:
        if not path.is_file():
            raise ConfigError("no such file; give a YAML file with 'root', 'mirrors' and 'skills'", path=path)
        return validate(read_yaml(path), SkillLayout)
    with as_file(files("fairtrial.workspace") / "layouts.yaml") as shipped:
        layouts = validate(read_yaml(shipped), _LayoutFile).layouts
    return layouts[require_known(named, layouts, what="skill layout", where="--skill-layout")]
