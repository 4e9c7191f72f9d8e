"""How much a change changed, and how it looks to a person: numbers and a patch, made by git in a repository of ours.

The agent's repository, configuration and attributes have no say: blobs are converted as the base's own rule files say.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fairtrial.host.files import remove_tree
from fairtrial.host.git import GitError, git
from fairtrial.host.slot import Slot
from fairtrial.workspace.change import MOST_BYTES, Change, Entry, Kind
from fairtrial.workspace.template import RULE_FILES, Template
from fairtrial.workspace.tree import Tree

__all__ = ["MOST_PATCH_BYTES", "Churn", "measure_churn"]

MOST_PATCH_BYTES: Final = 300_000
_MODES: Final = {Kind.FILE: b"100644", Kind.EXECUTABLE: b"100755", Kind.LINK: b"120000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """The size of a change.

    Attributes:
        files: Paths that changed.
        insertions: Lines added in text files; None where git could not compare.
        deletions: Lines removed in text files, likewise.
        reason: Why they are None, else None.
        patch: The first bytes of a binary git patch.
        patch_truncated: The patch went on.
        digest: SHA-256 of what changed to what, whole and as it is: equal for two changes of one base that are byte for
            byte the same; None where nothing changed.
    """

    files: int
    insertions: int | None
    deletions: int | None
    reason: str | None = None
    patch: bytes = b""
    patch_truncated: bool = False
    digest: str | None = None


def measure_churn(change: Change, template: Template, *, slot: Slot, exclude: Sequence[str] = ()) -> Churn:
    """Measure a change against its template; paths at or below `exclude` count for nothing.

    Raises:
        HostError: git failed.
    """
    left_out = tuple(path.encode().rstrip(b"/") for path in exclude)
    entries = [
        entry
        for entry in change.entries
        if not any(entry.path == path or entry.path.startswith(path + b"/") for path in left_out)
    ]
    if not entries:
        return Churn(files=0, insertions=0, deletions=0)
    directory = slot.root / f"c{secrets.token_hex(6)}"
    directory.mkdir(mode=0o755)
    with ExitStack() as stack:
        stack.callback(remove_tree, directory)
        slot.give(directory)
        repository = _Repository(directory, template, slot)
        try:
            churn = repository.compare(entries)
        except GitError as problem:
            # What an agent wrote may be something that git dies of; that is no fault of the host's.
            churn = Churn(files=len(entries), insertions=None, deletions=None, reason=str(problem))
    return replace(churn, digest=_digest(entries))


def _digest(entries: Iterable[Entry]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        for part in (entry.path, entry.kind.encode(), entry.content):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()


class _Repository:
    """A repository that borrows the template's objects, and a work tree that has the base's rules."""

    def __init__(self, directory: Path, template: Template, slot: Slot) -> None:
        self._files = directory / "files"
        self._git_dir = directory / "git"
        self._aside = directory / "aside"
        self._template = template
        self._slot = slot
        self._borrowing = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(template.tree / ".git" / "objects")}
        made = ["init", "--quiet", "--template=", f"--object-format={template.object_format}", str(self._files)]
        git(made, cwd=directory, slot=slot)
        (self._files / ".git").rename(self._git_dir)
        self._aside.mkdir(mode=0o755)

    def _git(self, *arguments: str, stdin: bytes = b"", keep_bytes: int | None = None) -> bytes:
        return git(
            arguments,
            cwd=self._files,
            slot=self._slot,
            git_dir=self._git_dir,
            work_tree=self._files,
            env=self._borrowing,
            stdin=stdin,
            keep_bytes=keep_bytes,
        )

    def compare(self, entries: Sequence[Entry]) -> Churn:
        """Put the entries into an index over the base's tree, and let git compare."""
        self._git("read-tree", self._template.commit)
        lines: list[bytes] = []
        zero = b"0" * (64 if self._template.object_format == "sha256" else 40)
        # What is gone goes first: a directory that takes the place of a file would clash with it.
        lines += [b"0 " + zero + b"\t" + entry.path for entry in entries if entry.kind is Kind.GONE]
        written = [entry for entry in entries if entry.kind is not Kind.GONE]
        for entry, blob in zip(written, self._write_blobs(written), strict=True):
            lines.append(_MODES[entry.kind] + b" " + blob + b"\t" + entry.path)
        self._git(
            "update-index",
            "-z",
            "--replace",
            "--index-info",
            stdin=b"".join(line + b"\0" for line in lines),
        )
        options = ("--cached", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all")
        numbers = self._git("diff", *options, "--numstat", "-z", self._template.commit)
        patch = self._git(
            "diff", *options, "--binary", "--full-index", self._template.commit, keep_bytes=MOST_PATCH_BYTES + 1
        )
        counted = [line.split(b"\t", 2) for line in numbers.split(b"\0")[:-1]]
        return Churn(
            files=len(counted),
            insertions=sum(int(added) for added, _, _ in counted if added != b"-"),
            deletions=sum(int(removed) for _, removed, _ in counted if removed != b"-"),
            patch=patch[:MOST_PATCH_BYTES],
            patch_truncated=len(patch) > MOST_PATCH_BYTES,
        )

    def _write_blobs(self, entries: Sequence[Entry]) -> list[bytes]:
        """Write blobs: rule files and links as they are, all else as the base's rules convert it."""
        plain = [entry for entry in entries if _is_plain(entry)]
        converted = [entry for entry in entries if not _is_plain(entry)]
        tree, rules = Tree(self._files), Tree(self._template.rules)
        for item in rules.walk():
            if stat.S_ISREG(item.mode):
                tree.put_file(item.path, rules.read_file(item.path, MOST_BYTES), 0o644, self._slot)
        for entry in converted:
            tree.put_file(entry.path, entry.content, 0o644, self._slot)
        for entry in plain:
            # Where the work tree has no attributes git takes those in the index, which are the agent's.
            if entry.kind is not Kind.LINK and rules.mode(entry.path) is None:
                tree.put_file(entry.path, b"", 0o644, self._slot)
        blobs = self._hash([entry.path for entry in converted])
        aside = Tree(self._aside)
        for number, entry in enumerate(plain):
            aside.put_file(b"%d" % number, entry.content, 0o644, self._slot)
        root = os.fsencode(self._aside)
        blobs += self._hash([root + b"/%d" % number for number in range(len(plain))], "--no-filters")
        by_path = dict(zip([entry.path for entry in (*converted, *plain)], blobs, strict=True))
        return [by_path[entry.path] for entry in entries]

    def _hash(self, paths: Sequence[bytes], *options: str) -> list[bytes]:
        if not paths:
            return []
        names = b"".join(_quoted(path) + b"\n" for path in paths)
        return self._git("hash-object", "-w", *options, "--stdin-paths", stdin=names).split()


def _is_plain(entry: Entry) -> bool:
    return entry.kind is Kind.LINK or os.path.basename(entry.path) in RULE_FILES  # noqa: PTH119 - bytes


def _quoted(path: bytes) -> bytes:
    """Quote a path as git reads it from a list of lines."""
    quoted = b"".join(
        b"\\" + bytes([byte]) if byte in b'"\\' else b"\\%03o" % byte if byte < 0x20 or byte > 0x7E else bytes([byte])
        for byte in path
    )
    return b'"' + quoted + b'"'
