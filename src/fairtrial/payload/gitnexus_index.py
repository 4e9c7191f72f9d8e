"""GitNexus in a sandbox of a context: makes its index, proves it, serves it.

    python3 -I -S gitnexus_index.py build INDEX COMMAND...
    python3 -I -S gitnexus_index.py prove INDEX COMMAND... -- MARKER...
    python3 -I -S gitnexus_index.py serve INDEX COMMAND...

COMMAND begins a command line of `gitnexus`; the working directory is the tree. `build` leaves the database and its
metadata in INDEX and nothing else. `prove` asks for every node and every relation that holds a marker, and prints each
in which one stands that is no part of a longer word. `serve` becomes the server. The last two need a registry in the
home directory, which is written from the metadata: that of the build is gone, and INDEX may be read-only.

Runs on the system's Python 3.9 or newer with nothing but the standard library, and is imported by nobody. Exit codes:
2 wrong usage, 1 with one line that says what is wrong.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

__all__ = ["WrongError", "build", "entities_of", "main", "prove", "query_for", "read_metadata", "serve"]

NAME = "benchmark-target"
KEPT = ("gitnexus.json", "meta.json", "lbug")
METADATA = KEPT[:2]
MOST_BYTES = 2 << 20
MOST_ANSWERED_BYTES = 64 << 20
MOST_ENTITIES = 10_000
QUERY_S = 300
BAD_USAGE, FAILED = 2, 1
ANALYZE = (
    *("--force", "--pdg", "--index-only", "--no-stats", "--name", NAME, "--default-branch", "main"),
    *("--max-file-size", "512", "--workers", "1"),
    "--skip-fts",  # its extension would be downloaded
)
PATTERNS = ("MATCH (e)", "MATCH ()-[e]->()")
TABLE = ["| entity |", "| --- |"]


class WrongError(Exception):
    """What is wrong, in one line."""


def parse(text: bytes, what: str, most_bytes: int = MOST_BYTES) -> Any:  # noqa: ANN401 - JSON
    """Strict JSON.

    Raises:
        WrongError: It is none, or too long.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) != len(pairs):
            raise WrongError(f"{what}: a key is there twice")
        return dict(pairs)

    def no_constant(word: str) -> Any:  # noqa: ANN401 - raises
        raise WrongError(f"{what}: {word} is no JSON")

    if len(text) > most_bytes:
        raise WrongError(f"{what}: more than {most_bytes} bytes")
    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=no_constant)
    except (ValueError, RecursionError) as problem:
        raise WrongError(f"{what}: no JSON: {problem}") from problem


def object_of(value: object) -> dict[str, Any]:
    """An object as it is, anything else as an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def read_metadata(index: Path) -> dict[str, Any]:
    """What GitNexus noted of an index: the first of its files that is there.

    Raises:
        WrongError: There is none, it is no regular file, or it does not say when and of which commit it was made.
    """
    for path in (index / name for name in METADATA):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(mode):
            raise WrongError(f"{path.name}: no regular file")
        with path.open("rb") as file:
            found = object_of(parse(file.read(MOST_BYTES + 1), path.name))
        for key in ("indexedAt", "lastCommit"):
            if not isinstance(found.get(key), str) or not found[key]:
                raise WrongError(f"{path.name}: no {key}")
        return found
    raise WrongError(f"neither {' nor '.join(METADATA)} was written")


def build(index: Path, command: Sequence[str]) -> None:
    """Make the index of the working directory's tree.

    Raises:
        WrongError: It cannot be made, or is not of this tree's commit, or has no dependence graph.
    """
    words = [*command, "analyze", str(Path.cwd()), *ANALYZE]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        lines = [line.strip() for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
        why = next((line for line in lines if line.startswith("Analysis failed")), " ".join(lines[-3:]))
        raise WrongError(f"it ended with {done.returncode}: {why}")
    for path in index.iterdir():
        if path.name in KEPT:
            if not stat.S_ISREG(path.lstat().st_mode):
                raise WrongError(f"{path.name}: no regular file")
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    if not (index / "lbug").is_file():
        raise WrongError("no database was written")
    found = read_metadata(index)
    head = subprocess.run(
        ["/usr/bin/git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if found["lastCommit"] != head:
        raise WrongError(f"it is an index of {found['lastCommit']}, not of {head}")
    if not isinstance(found.get("pdg"), dict) or not found["pdg"]:
        raise WrongError("it has no dependence graph")


def register(index: Path) -> None:
    """Tell GitNexus of the index, in the home directory, as though it had been made there."""
    found = read_metadata(index)
    entry = {"name": NAME, "path": str(Path.cwd()), "storagePath": str(index)}
    entry.update({key: found[key] for key in ("indexedAt", "lastCommit")})
    entry.update({key: found[key] for key in ("remoteUrl", "stats", "branch") if key in found})
    place = Path.home() / ".gitnexus"
    place.mkdir(mode=0o700, exist_ok=True)
    with open(place / "registry.json", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        json.dump([entry], file)


def query_for(pattern: str, markers: Sequence[str]) -> str:
    """The query for every entity of a pattern that has a marker in any of its values, also within a longer word.

    Asked for by a regular expression its database dies (gitnexus 1.6.12).
    """
    quoted = [marker.replace("\\", "\\\\").replace("'", "\\'") for marker in markers]
    condition = " OR ".join(f"CAST(e AS STRING) CONTAINS '{marker}'" for marker in quoted)
    return f"{pattern} WHERE {condition} RETURN CAST(e AS STRING) AS entity LIMIT {MOST_ENTITIES}"


def entities_of(answer: object) -> list[str]:
    """The entities of an answer to a query: rows of a table, of one line each, in which a line's end is a blank.

    Raises:
        WrongError: It is no answer, or there are so many that not all of them may have been told.
    """
    if answer == []:
        return []
    told = object_of(answer)
    table, n_rows = told.get("markdown"), told.get("row_count")
    rows = table.split("\n")[2:] if isinstance(table, str) else []
    is_whole = n_rows == len(rows) and (not rows or str(table).split("\n")[:2] == TABLE)
    if "error" in told or type(n_rows) is not int or not is_whole:
        raise WrongError(f"no answer to a query: {json.dumps(answer)[:500]}")
    if n_rows >= MOST_ENTITIES:
        raise WrongError(
            f"{MOST_ENTITIES} entities or more hold a hidden name, within longer words perhaps: not all can be looked"
            " at; hide a longer path, or use another context"
        )
    return rows


def bounded(marker: str) -> str:
    """A pattern for a marker that is no part of a longer word: letters, digits and `_` of ASCII."""
    begins, ends = re.match(r"\w", marker, re.ASCII), re.match(r"\w", marker[-1:], re.ASCII)
    return (r"(?<!\w)" if begins else "") + re.escape(marker) + (r"(?!\w)" if ends else "")


def prove(index: Path, command: Sequence[str], markers: Sequence[str]) -> None:
    """Print each entity of the index in which a marker stands that is no part of a longer word.

    Raises:
        WrongError: It does not answer.
    """
    register(index)
    named = re.compile("|".join(map(bounded, markers)), re.ASCII)
    for pattern in PATTERNS:
        words = [*command, "cypher", query_for(pattern, markers), "--repo", NAME]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=QUERY_S, check=True)
        for entity in entities_of(parse(done.stdout, "an answer to a query", MOST_ANSWERED_BYTES)):
            if named.search(entity):
                print(entity)  # noqa: T201 - what it was asked for


def serve(index: Path, command: Sequence[str]) -> None:
    """Become the server."""
    register(index)
    os.execv(command[0], [*command, "mcp"])  # noqa: S606 - no shell is wanted


def main(arguments: Sequence[str]) -> int:
    """Build, prove or serve."""
    words = list(arguments)
    command, markers = words[2:], list[str]()
    if "--" in command:
        command, markers = command[: command.index("--")], command[command.index("--") + 1 :]
    if not command or words[0] not in {"build", "prove", "serve"} or (words[0] == "prove") != bool(markers):
        sys.stderr.write("gitnexus_index: usage: build|serve INDEX COMMAND... | prove INDEX COMMAND... -- MARKER...\n")
        return BAD_USAGE
    try:
        if words[0] == "build":
            build(Path(words[1]), command)
        elif words[0] == "prove":
            prove(Path(words[1]), command, markers)
        else:
            serve(Path(words[1]), command)
    except (WrongError, OSError, subprocess.SubprocessError) as problem:
        sys.stderr.write(f"gitnexus_index: {problem}\n")
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
