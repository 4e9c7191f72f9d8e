"""TOML text to `Document`: tomllib says what it means, tree-sitter where each key stands.

tomllib gives no positions, and no maintained TOML library does. Where the two disagree about a file, tomllib is
right and `Document.locate` falls back to a parent.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import tree_sitter_toml
from tree_sitter import Language, Node, Parser, Tree

from fairtrial.config.document import MAX_DEPTH, TOO_DEEP, Document, KeyPath, PlainValue, Position
from fairtrial.config.names import show_text
from fairtrial.errors import ConfigError

__all__ = ["parse_toml"]

_LANGUAGE: Final = Language(tree_sitter_toml.language())

_WHERE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")

_MAX_TREE_DEPTH: Final = 4 * MAX_DEPTH
"""Levels of syntax for `MAX_DEPTH` levels of values; `a.b.c` is one level of syntax a dot."""


def parse_toml(text: str, *, path: Path, sha256: str) -> Document:
    """Parse one TOML 1.0 document.

    Raises:
        ConfigError: It is not TOML, or is nested too deeply.
    """
    source = text.encode()
    tree = Parser(_LANGUAGE).parse(source)
    # Before tomllib: a long dotted key keeps it busy for minutes (its time grows with the square of the dots).
    if (deep := _first_node_below(tree, _MAX_TREE_DEPTH)) is not None:
        position = _position(deep, source.split(b"\n"))
        raise ConfigError(TOO_DEEP, path=path, line=position.line, column=position.column)
    try:
        value: dict[str, PlainValue] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(str(error), text, path) from error
    except RecursionError as error:
        # Arrays that never end are one flat error to tree-sitter; tomllib descends into them.
        raise ConfigError(TOO_DEEP, path=path) from error
    except ValueError as error:
        # int() refuses numbers of more than 4,300 digits; datetime refuses the 30th of February.
        message = f"not valid TOML: {error}"
        raise ConfigError(message, path=path) from error
    positions: dict[KeyPath, Position] = {}
    for key_path, position in _positions(tree, source):
        positions.setdefault(key_path, position)  # `a.b` and `a.c` both define `a`: where it was defined first
    return Document(path=path, sha256=sha256, value=value, positions=positions)


def _syntax_error(message: str, text: str, path: Path) -> ConfigError:
    where = _WHERE.search(message)
    if where is None:
        return ConfigError(show_text(message), path=path)
    if where[1] is None:
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    else:
        line, column = int(where[1]), int(where[2])
    return ConfigError(f"not valid TOML: {show_text(message[: where.start()])}", path=path, line=line, column=column)


def _first_node_below(tree: Tree, depth: int) -> Node | None:
    """Walk with a cursor: neither recursion nor a list of all nodes."""
    cursor = tree.walk()
    while cursor.depth <= depth:
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return None
    return cursor.node


def _positions(tree: Tree, source: bytes) -> Iterator[tuple[KeyPath, Position]]:
    """Each key's path and place, in the order of the file; a path may come more than once."""
    lines = source.split(b"\n")
    n_tables: dict[KeyPath, int] = {}  # of each array of tables so far
    for node in tree.root_node.named_children:
        if node.type == "pair":
            yield from _pair_positions(node, (), lines)
        if node.type not in ("table", "table_array_element") or not node.named_children:
            continue
        header, *pairs = node.named_children
        path: KeyPath = ()
        for key in _key_nodes(header):
            path = (*path, _key_text(key))
            yield path, _position(key, lines)
            if node.type == "table_array_element" and key.end_byte == header.end_byte:
                n_tables[path] = n_tables.get(path, 0) + 1
            if path in n_tables:
                path = (*path, n_tables[path] - 1)
                yield path, _position(key, lines)
        for pair in pairs:
            yield from _pair_positions(pair, path, lines)


def _pair_positions(pair: Node, base: KeyPath, lines: list[bytes]) -> Iterator[tuple[KeyPath, Position]]:
    if pair.type != "pair" or pair.has_error:  # a comment, or something that tree-sitter did not understand
        return
    key_node, *values = (child for child in pair.named_children if child.type != "comment")
    path = base
    for key in _key_nodes(key_node):
        path = (*path, _key_text(key))
        yield path, _position(key, lines)
    for value in values:
        yield from _value_positions(value, path, lines)


def _value_positions(value: Node, path: KeyPath, lines: list[bytes]) -> Iterator[tuple[KeyPath, Position]]:
    """What stands inside a value; it recurses no deeper than `_MAX_TREE_DEPTH`."""
    children = [child for child in value.named_children if child.type != "comment"]
    if value.type == "inline_table":
        for child in children:
            yield from _pair_positions(child, path, lines)
    elif value.type == "array":
        for index, child in enumerate(children):
            yield (*path, index), _position(child, lines)
            yield from _value_positions(child, (*path, index), lines)


def _key_nodes(key: Node) -> list[Node]:
    """The parts of `a.b.c`, which is a dotted key of a dotted key."""
    parts: list[Node] = []
    while key.type == "dotted_key":
        key, last = key.named_children[0], key.named_children[-1]
        parts.append(last)
    return [key, *reversed(parts)]


def _key_text(key: Node) -> str:
    text = (key.text or b"").decode()
    if key.type != "quoted_key":
        return text
    (decoded,) = tomllib.loads(f"{text} = 0")
    return decoded


def _position(node: Node, lines: list[bytes]) -> Position:
    row, column_bytes = node.start_point
    return Position(row + 1, len(lines[row][:column_bytes].decode()) + 1)
