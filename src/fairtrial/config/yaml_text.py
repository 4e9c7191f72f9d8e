"""YAML text to `Document`, from the parser's events.

Built from events, not by ruamel's constructors: those recurse, keep habits of YAML 1.1 (dates, `1_000`), and would
follow a few hundred bytes of nested aliases into gigabytes. Scalars are those of the YAML 1.2 core schema: `no` is
a string.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (the attributes of ruamel's events and errors carry no types; what is kept of them is made str, int or Position here)

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StreamMark
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from fairtrial.config.document import MAX_DEPTH, TOO_DEEP, Document, KeyPath, PlainValue, Position, show_path
from fairtrial.config.names import show_name, show_text
from fairtrial.errors import ConfigError

__all__ = ["parse_yaml"]

_MAX_NODES: Final = 50_000
"""Values and keys in one file, aliases counted as often as they are used; the parser takes 75 µs for each."""

_MAX_INTEGER_CHARACTERS: Final = 24
"""As many as 64 bits need in base 8, with the prefix."""

_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

_Parent: TypeAlias = "_Sequence | _Mapping"


def parse_yaml(text: str, *, path: Path, sha256: str) -> Document:
    """Parse one YAML 1.2 document; an empty one is None.

    Raises:
        ConfigError: It is not YAML, or it has a tag, a duplicate or non-string key, a second document, an alias of an
            enclosing value, a NaN, or too many or too deeply nested values.
    """
    composer = _Composer(path)
    # `pure`: the parser in C, where someone has installed it, reports other positions.
    events = cast("Iterator[Event]", YAML(typ="safe", pure=True).parse(text))
    try:
        for event in events:
            composer.take(event)
    except MarkedYAMLError as error:
        problem = show_text(", ".join(str(part) for part in (error.problem, error.context) if part))
        mark = error.problem_mark or error.context_mark
        raise composer.error(problem, mark and _position_of(mark)) from error
    except ReaderError as error:
        # Its position counts from the start of the buffer, and the buffer is the whole text.
        before = text[: error.position]
        position = Position(before.count("\n") + 1, error.position - before.rfind("\n"))
        message = f"character {error.character!r} is not allowed"
        raise ConfigError(message, path=path, line=position.line, column=position.column) from error
    except (ValueError, OverflowError) as error:
        # The scanner passes "\UFFFFFFFF" to chr(), and version numbers of any length to int().
        message = f"not valid YAML: {error}"
        raise composer.error(message) from error
    return Document(path=path, sha256=sha256, value=composer.value, positions=composer.positions)


@dataclass(slots=True, kw_only=True)
class _Sequence:
    path: KeyPath
    anchor: str | None
    n_nodes_before: int
    value: list[PlainValue]


@dataclass(slots=True, kw_only=True)
class _Mapping:
    path: KeyPath
    anchor: str | None
    n_nodes_before: int
    value: dict[str, PlainValue]
    key: str | None


class _Composer:
    """Puts one document together from its events, on a stack of its own instead of Python's."""

    def __init__(self, path: Path) -> None:
        self.value: PlainValue = None
        self.positions: dict[KeyPath, Position] = {}
        self._path = path
        self._stack: list[_Parent] = []
        self._anchors: dict[str, tuple[PlainValue, int]] = {}
        self._n_nodes = 0
        self._n_documents = 0
        self._at = Position(1, 1)

    def error(self, message: str, at: Position | None = None) -> ConfigError:
        """A `ConfigError` at the position, or else where the last event began."""
        line, column = at or self._at
        key = show_path(self._stack[-1].path) if self._stack else ""
        return ConfigError(message, path=self._path, line=line, column=column, key=key or None)

    def take(self, event: Event) -> None:
        self._at = _position_of(event.start_mark)
        match event:
            case DocumentStartEvent():
                self._n_documents += 1
                if self._n_documents > 1:
                    raise self.error("a second document begins here; one file holds one")
                if event.version not in (None, (1, 2)):
                    raise self.error("only YAML 1.2 is read; remove the %YAML directive")
            case CollectionEndEvent():
                frame = self._stack.pop()
                self._remember(frame.anchor, frame.value, self._n_nodes - frame.n_nodes_before)
            case AliasEvent():
                if event.anchor not in self._anchors:
                    message = f"alias {show_name(f'*{event.anchor}')} names no complete value above it"
                    raise self.error(message)
                value, n_nodes = self._anchors[event.anchor]
                self._count(n_nodes)
                self._add(value)
            case NodeEvent():
                self._begin(event)
            case _:
                pass

    def _begin(self, event: NodeEvent) -> None:
        self._count(1)
        if (tag := event.ctag) is not None:  # type: ignore[attr-defined]
            message = f"tag {show_name(str(tag))} is not supported; remove it (quote a value to make it text)"
            raise self.error(message)
        n_before = self._n_nodes - 1
        match event:
            case ScalarEvent():
                value = self._scalar(event)
                self._add(value)
                self._remember(event.anchor, value, 1)
            case SequenceStartEvent():
                items: list[PlainValue] = []
                self._push(_Sequence(path=self._add(items), anchor=event.anchor, n_nodes_before=n_before, value=items))
            case MappingStartEvent():
                pairs: dict[str, PlainValue] = {}
                at = self._add(pairs)
                self._push(_Mapping(path=at, anchor=event.anchor, n_nodes_before=n_before, value=pairs, key=None))
            case _:
                message = f"unexpected {type(event).__name__}"
                raise self.error(message)

    def _count(self, n_nodes: int) -> None:
        self._n_nodes += n_nodes
        if self._n_nodes > _MAX_NODES:
            message = f"more than {_MAX_NODES} values, aliases expanded; split the file"
            raise self.error(message)

    def _push(self, frame: _Parent) -> None:
        self._stack.append(frame)
        if len(self._stack) > MAX_DEPTH:
            raise self.error(TOO_DEEP)

    def _remember(self, anchor: str | None, value: PlainValue, n_nodes: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, n_nodes)

    def _add(self, value: PlainValue) -> KeyPath:
        """Put a value into the innermost collection, or take it as the next key there; return its path."""
        if not self._stack:
            self.value = value
            return ()
        frame = self._stack[-1]
        if isinstance(frame, _Sequence):
            at = (*frame.path, len(frame.value))
            frame.value.append(value)
            self.positions[at] = self._at
            return at
        if frame.key is None:
            frame.key = self._key(frame, value)
            self.positions[(*frame.path, frame.key)] = self._at
            return frame.path
        at = (*frame.path, frame.key)
        frame.value[frame.key] = value
        frame.key = None
        return at

    def _key(self, frame: _Mapping, value: PlainValue) -> str:
        if not isinstance(value, str):
            raise self.error("a key must be text; quote it")
        if value in frame.value:
            first = self.positions[(*frame.path, value)].line
            message = f"duplicate key {show_name(value)}; it stands in line {first} too"
            raise self.error(message)
        return value

    def _scalar(self, event: ScalarEvent) -> PlainValue:
        text = str(event.value)
        if event.style is not None:  # quoted, or a block
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            if len(text) > _MAX_INTEGER_CHARACTERS:
                raise self.error(
                    f"an integer of {len(text)} characters is longer than 64 bits need; quote it to make it text"
                )
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            return int(text, base)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _NOT_FINITE.fullmatch(text):
            message = f"{text} is not a finite number"
            raise self.error(message)
        return text


def _position_of(mark: StreamMark) -> Position:
    return Position(int(mark.line) + 1, int(mark.column) + 1)
