"""A change as one file: the same bytes for the same change, readable with tar and a JSON reader.

`change.json` comes first and names each path; contents follow as `contents/<sha256>`, each once, in the order of their
digests. Paths stand in the JSON only, so that unpacking the file by hand writes nothing outside `contents`.
"""

import io
import json
import tarfile
from typing import Final

from fairtrial.errors import IntegrityError
from fairtrial.workspace.change import Change, Entry, Kind

__all__ = ["SCHEMA", "pack_change", "unpack_change"]

SCHEMA: Final = "change/1"
_INDEX: Final = "change.json"


def pack_change(change: Change, *, commit: str, tree_id: str) -> bytes:
    """Pack a change.

    Args:
        change: The change; one that is too large has no entries.
        commit: The template's commit that it is against.
        tree_id: That commit's tree.
    """
    index = {
        "schema": SCHEMA,
        "commit": commit,
        "tree": tree_id,
        "entries": [_describe(entry) for entry in change.entries],
        "refused": [{**_name(refusal.path), "reason": refusal.reason} for refusal in change.refused],
        "excess": change.excess,
    }
    contents = {entry.sha256: entry.content for entry in change.entries if entry.kind is not Kind.GONE}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        _add(archive, _INDEX, json.dumps(index, ensure_ascii=True, indent=1).encode() + b"\n")
        for digest, content in sorted(contents.items()):
            _add(archive, f"contents/{digest}", content)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)  # time, owner and group are 0, the mode is 0644
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _name(path: bytes) -> dict[str, str]:
    """A path as text, or in hexadecimal where it is none."""
    try:
        return {"path": path.decode()}
    except UnicodeDecodeError:
        return {"path_hex": path.hex()}


def _describe(entry: Entry) -> dict[str, object]:
    described: dict[str, object] = {**_name(entry.path), "kind": entry.kind, "existed": entry.existed}
    if entry.kind is not Kind.GONE:
        described |= {"sha256": entry.sha256, "n_bytes": len(entry.content)}
    return described


def unpack_change(data: bytes) -> tuple[Change, str]:
    """Read a packed change; return it and the commit that it is against.

    Raises:
        IntegrityError: It is not one, or not whole.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            files = {member.name: _content(archive, member) for member in archive}
        index = json.loads(files.pop(_INDEX))
        if index["schema"] != SCHEMA:
            raise IntegrityError(f"a change of schema {index['schema']}; read it with the version that wrote it")
        entries = tuple(_entry(described, files) for described in index["entries"])
        change = Change(entries=entries)
        commit, tree_id = str(index["commit"]), str(index["tree"])
    except (tarfile.TarError, KeyError, ValueError, TypeError) as problem:
        raise IntegrityError(f"not a change as it was packed: {problem}; believe nothing derived from it") from problem
    if not index["refused"] and index["excess"] is None and pack_change(change, commit=commit, tree_id=tree_id) != data:
        raise IntegrityError("a change that is not packed as it would be; believe nothing derived from it")
    return change, commit


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    if file is None:
        raise ValueError(f"{member.name} is no file")
    return file.read()


def _entry(described: dict[str, str], files: dict[str, bytes]) -> Entry:
    path = bytes.fromhex(described["path_hex"]) if "path_hex" in described else described["path"].encode()
    kind = Kind(described["kind"])
    content = b"" if kind is Kind.GONE else files[f"contents/{described['sha256']}"]
    entry = Entry(path=path, kind=kind, existed=bool(described["existed"]), content=content)
    if kind is not Kind.GONE and entry.sha256 != described["sha256"]:
        raise ValueError(f"{path!r} has other bytes than its digest says")
    return entry
