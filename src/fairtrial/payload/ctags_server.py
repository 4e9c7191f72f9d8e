"""The tool server of the context `ctags`: symbols of a tree, by name, by file and by part of a name.

    python3 ctags_server.py serve INDEX
    python3 ctags_server.py prove INDEX MARKER...

INDEX is what `ctags --output-format=json` wrote. `serve` speaks MCP on its standard streams, on the package `mcp`;
`prove` prints every entry of which a value holds a marker that is no part of a longer word, and needs the standard
library only. Imported by nobody.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Symbols", "main", "prove", "read_entries", "serve", "shown"]

MOST_SHOWN = 200
BAD_USAGE = 2


def read_entries(index: Path) -> Iterator[dict[str, Any]]:
    """The entries of an index in their order: one JSON object a line."""
    with index.open("rb") as lines:
        for line in lines:
            yield json.loads(line.decode("utf-8", "surrogateescape"))


def prove(index: Path, markers: Sequence[str]) -> None:
    """Print each entry of which a value holds a marker, as its values are and not as JSON writes them.

    A marker within a longer word is none: letters, digits and `_` of ASCII.
    """
    sought = [re.compile(_bounded(marker), re.ASCII) for marker in markers]
    for entry in read_entries(index):
        values = "\n".join(str(value) for value in entry.values())
        if any(pattern.search(values) for pattern in sought):
            print(json.dumps(entry))  # noqa: T201 - what it was asked for


def _bounded(marker: str) -> str:
    begins, ends = re.match(r"\w", marker, re.ASCII), re.match(r"\w", marker[-1:], re.ASCII)
    return (r"(?<!\w)" if begins else "") + re.escape(marker) + (r"(?!\w)" if ends else "")


def shown(entry: dict[str, Any]) -> str:
    """One line: where a symbol is and what it is."""
    scope = f" in {entry['scopeKind']} {entry['scope']}" if "scope" in entry and "scopeKind" in entry else ""
    return f"{entry['path']}:{entry.get('line', '?')}: {entry.get('kind', 'symbol')} {entry['name']}{scope}" + (
        f" {entry['signature']}" if "signature" in entry else ""
    )


class Symbols:
    """The whole index, held in memory."""

    def __init__(self, index: Path) -> None:
        self.entries = list(read_entries(index))

    def find_symbol(self, name: str) -> str:
        """Where a symbol of exactly this name is defined: path, line, kind, scope and signature of each definition."""
        return self._answer([entry for entry in self.entries if entry["name"] == name], f"no symbol {name!r}")

    def list_symbols(self, path: str) -> str:
        """All symbols that a file defines, by line; the path is relative to the repository."""
        wanted = path.removeprefix("/workspace/").removeprefix("./")
        found = [entry for entry in self.entries if entry["path"] == wanted]
        return self._answer(sorted(found, key=lambda entry: int(entry.get("line", 0))), f"no symbols in {wanted!r}")

    def search_symbols(self, text: str) -> str:
        """All symbols whose name has this text in it, whatever the case."""
        wanted = text.casefold()
        return self._answer([e for e in self.entries if wanted in e["name"].casefold()], f"no symbol has {text!r}")

    def _answer(self, found: list[dict[str, Any]], nothing: str) -> str:
        lines = [shown(entry) for entry in found[:MOST_SHOWN]] or [nothing]
        if len(found) > MOST_SHOWN:
            lines.append(f"... and {len(found) - MOST_SHOWN} more")
        return "\n".join(lines).encode("utf-8", "replace").decode()


def serve(index: Path) -> None:
    """Answer until the client ends."""
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - an extra, and `prove` does without

    symbols = Symbols(index)
    server = MCPServer("ctags", version="1", instructions="Symbols of this repository as it was when you began.")
    for tool in (symbols.find_symbol, symbols.list_symbols, symbols.search_symbols):
        server.tool(structured_output=False)(tool)
    server.run("stdio")


def main(arguments: Sequence[str]) -> int:
    """Serve or prove."""
    match list(arguments):
        case ["serve", index]:
            serve(Path(index))
        case ["prove", index, *markers]:
            prove(Path(index), markers)
        case _:
            sys.stderr.write("ctags_server: usage: serve INDEX | prove INDEX MARKER...\n")
            return BAD_USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
