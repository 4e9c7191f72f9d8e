"""`seal.json`: what the finished directory holds, so that one digest kept elsewhere covers everything.

The journal is covered by the chain's head, `sweep.json` by its digest, every other file by its own.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError, IntegrityError
from fairtrial.store.artifacts import (
    EntryKind,
    FileDigest,
    NotRegularError,
    digest_file,
    render_digest,
    take_digests,
    walk,
)
from fairtrial.store.documents import BrokenDocumentError, move_aside, parse_document, read_bytes, write_document
from fairtrial.store.journal import Journal
from fairtrial.store.layout import Results, explain_failure
from fairtrial.store.reserve import keeping_reserve
from fairtrial.store.strict_json import JsonObject, MalformedJsonError, take

__all__ = ["SEAL_SCHEMA", "Seal", "read_seal", "seals_last_row", "set_aside_seal", "uncovered_names", "write_seal"]

SEAL_SCHEMA = "seal/1"
_TAIL_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """A seal as its file tells it.

    Attributes:
        sweep: Id of the sweep.
        chain_head: Digest of the journal's last line, in hex.
        n_rows: Rows in the journal.
        sweep_json: Digest of `sweep.json`, in hex.
        artifacts: Every other file, by path relative to the results directory.
        digest: Digest of `seal.json` itself, in hex: what is printed, and kept elsewhere.
    """

    sweep: str
    chain_head: str
    n_rows: int
    sweep_json: str
    artifacts: dict[str, FileDigest]
    digest: str


def uncovered_names(results: Results) -> frozenset[str]:
    """Name the files that the seal does not list: itself, what it covers otherwise, and the reserve (no evidence)."""
    paths = (results.seal_json, results.sweep_json, results.results_jsonl, results.reserve)
    return frozenset(path.name for path in paths)


def write_seal(results: Results, journal: Journal) -> str:
    """Seal the directory as it is now; return the seal's digest.

    Args:
        results: The directory, held by this process.
        journal: Its journal.

    Raises:
        IntegrityError: It holds a symbolic link, a special file, or a name that is not UTF-8.
        HostError: The file system refuses.
    """
    try:
        artifacts = _digest_everything(results)
        sweep_json = digest_file(results.sweep_json)
    except NotRegularError as error:
        message = f"{error}: not a regular file, so no evidence; remove it, or put what it stands for in its place"
        raise IntegrityError(message) from None
    except OSError as error:
        message = f"{error.filename}: cannot be read ({error.strerror}); check its permissions"
        raise HostError(message) from error
    document: JsonObject = {
        "schema": SEAL_SCHEMA,
        "sweep": journal.sweep,
        "chain_head": journal.head,
        "n_rows": journal.n_rows,
        "sweep_json": sweep_json.sha256,
        "artifacts": artifacts,
    }
    data = keeping_reserve(results, lambda: write_document(results.seal_json, document))
    return hashlib.sha256(data).hexdigest()


def _digest_everything(results: Results) -> JsonObject:
    uncovered = uncovered_names(results)
    artifacts: JsonObject = {}
    for entry in walk(results.root):
        if entry.kind is EntryKind.DIRECTORY or entry.relative in uncovered:
            continue
        path = results.root / entry.relative
        if not _is_text(entry.relative):
            message = f"{str(path)!r}: its name is not UTF-8, so no seal can list it; rename it"
            raise IntegrityError(message)
        artifacts[entry.relative] = render_digest(digest_file(path))
    return artifacts


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_seal(results: Results) -> Seal | None:
    """Read the seal; None when the directory is not sealed.

    Raises:
        IntegrityError: It is damaged, or of a schema that is not known here.
        HostError: It cannot be read.
    """
    path = results.seal_json
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return None
    document = parse_document(path, data, schema=SEAL_SCHEMA)
    try:
        return Seal(
            sweep=take(document, "sweep", str),
            chain_head=take(document, "chain_head", str),
            n_rows=take(document, "n_rows", int),
            sweep_json=take(document, "sweep_json", str),
            artifacts=take_digests(document),
            digest=hashlib.sha256(data).hexdigest(),
        )
    except MalformedJsonError as error:
        message = f"{path}: is damaged ({error}); restore it from a copy"
        raise BrokenDocumentError(message) from None


def set_aside_seal(results: Results) -> None:
    """Break the seal before a sealed sweep is resumed; the old one stays under `set-aside/`.

    Raises:
        HostError: The file system refuses.
    """
    try:
        if results.seal_json.exists():
            move_aside(results, results.seal_json, results.seal_json.name)
    except OSError as error:
        raise explain_failure(results.root, error) from error


def seals_last_row(results: Results) -> bool:
    """Tell whether there is a seal and it names the journal's last line; only `audit` checks everything.

    Raises:
        IntegrityError: The seal is damaged.
        HostError: A file cannot be read.
    """
    seal = read_seal(results)
    if seal is None:
        return False
    try:
        last = _last_line(results.results_jsonl)
    except OSError as error:
        raise explain_failure(results.root, error) from error
    return seal.n_rows == 0 if not last else hashlib.sha256(last).hexdigest() == seal.chain_head


def _last_line(path: Path) -> bytes:
    """Read the last line of a file with its newline, without reading what stands before it."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        last = b""
        while end > 0 and b"\n" not in last[:-1]:
            begin = max(0, end - _TAIL_BYTES)
            file.seek(begin)
            last = file.read(end - begin) + last
            end = begin
    return last[last.rfind(b"\n", 0, -1) + 1 :]
