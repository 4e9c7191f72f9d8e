"""What a proposer is given, gathered from the project and from measured sweeps."""

import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError, IntegrityError, UsageError
from fairtrial.evidence.endings import VOID_MEMBERS, is_void
from fairtrial.evolve.evidence import ChosenRow, choose_rows
from fairtrial.host.git import git
from fairtrial.promote.base import read_base
from fairtrial.store.artifacts import FileDigest, digest_bytes
from fairtrial.store.attempts import read_outcome
from fairtrial.store.audit import audit
from fairtrial.store.layout import Results, open_results
from fairtrial.store.rows import read_rows
from fairtrial.store.sweep_file import read_sweep
from fairtrial.workspace.skill_layout import SkillLayout

__all__ = ["MAX_TRANSCRIPTS", "SkillBase", "read_evidence_rows", "read_skill_base", "read_transcripts"]

MAX_TRANSCRIPTS: Final = 24
MAX_TRANSCRIPTS_OF_A_ROW: Final = 2
MAX_TRANSCRIPT_BYTES: Final = 256 << 10
_MOST_READ_BYTES: Final = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillBase:
    """The skills as the project's commit and its work tree hold them.

    Attributes:
        commit: The project's commit.
        files: Bytes of every file of the skills, by path below the project.
        digests: Digest of every Markdown file of theirs and of its mirrors, by path: what a candidate would replace.
    """

    commit: str
    files: Mapping[str, bytes]
    digests: Mapping[str, str]


def read_skill_base(project: Path, layout: SkillLayout, skills: Collection[str]) -> SkillBase:
    """Read the skills of a project.

    Raises:
        UsageError: A skill has no Markdown file there, or a file is not as it is committed; all are named.
        HostError: git cannot read the project.
    """
    commit, _ = read_base(project, ())
    files: dict[str, bytes] = {}
    for skill in sorted(skills):
        below = f"{layout.root}/{skill}"
        listed = git(["ls-tree", "-r", "-z", "--name-only", commit, "--", below], cwd=project)
        paths = [path.decode(errors="surrogateescape") for path in listed.split(b"\0")[:-1]]
        if not any(path.endswith(".md") for path in paths):
            raise UsageError(
                f"{project}: {below} has no Markdown file in the commit; commit the skill, or name its --skill-layout"
            )
        for path in paths:
            files[path] = git(["cat-file", "blob", f"{commit}:./{path}"], cwd=project)
    targets = [target for path in files if path.endswith(".md") for target in layout.targets(path)]
    _, digests = read_base(project, targets)
    return SkillBase(commit=commit, files=files, digests=digests)


def read_evidence_rows(directory: Path, learning_tasks: Iterable[str]) -> tuple[Results, tuple[ChosenRow, ...]]:
    """Choose the evidence in a results directory of the agent lane, after an audit.

    Raises:
        UsageError: It is none.
        IntegrityError: Something in it is not what was written.
    """
    results = open_results(directory)
    found = audit(results, is_void=is_void, final_members=VOID_MEMBERS)
    if not found.is_intact:
        raise IntegrityError(f"{directory}: {found.problems[0].as_line()}; see `fairtrial audit {directory}`")
    sweep = read_sweep(results)
    if sweep.lane != "bench":
        raise UsageError(f"{directory}: holds a sweep of the {sweep.lane} lane; name one of the agent lane")
    return results, choose_rows(read_rows(results.results_jsonl, sweep_id=sweep.sweep), learning_tasks)


def read_transcripts(results: Results, chosen: Sequence[ChosenRow]) -> dict[str, tuple[bytes, ...]]:
    """Read the ends of the chosen rows' transcripts, by the row's key: what stands in their records, or nothing.

    All are looked at before the first is read.

    Raises:
        IntegrityError: One is not what was recorded.
        HostError: One is open to others.
    """
    wanted: list[tuple[str, Path, FileDigest]] = []
    for row in chosen:
        outcome = read_outcome(results, row.key, row.attempt)
        if outcome is None:
            raise IntegrityError(f"{results.root}: {row.key} has no record of its attempt {row.attempt}")
        for name in dict.fromkeys(row.transcripts[:MAX_TRANSCRIPTS_OF_A_ROW]):
            recorded = outcome.artifacts.get(name)
            path = results.attempt_dir(row.key, row.attempt) / name
            if recorded is None or not _is_whole(path, recorded.n_bytes):
                raise IntegrityError(
                    f"{path}: is not the transcript that was recorded; believe nothing derived from it"
                )
            if not _is_ours_alone(path):
                raise HostError(
                    f"{path}: others may read or write this transcript; `chown` it to yourself and `chmod 600` it"
                )
            wanted.append((row.key, path, recorded))
    found: dict[str, tuple[bytes, ...]] = {}
    for key, path, recorded in wanted[:MAX_TRANSCRIPTS]:
        content = path.read_bytes()
        if digest_bytes(content) != recorded:
            raise IntegrityError(f"{path}: is not the transcript that was recorded; believe nothing derived from it")
        found[key] = (*found.get(key, ()), _end_of(content))
    return found


def _is_whole(path: Path, n_bytes: int) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == n_bytes <= _MOST_READ_BYTES


def _is_ours_alone(path: Path) -> bool:
    status = path.lstat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _end_of(content: bytes) -> bytes:
    """The last whole lines that fit."""
    if len(content) <= MAX_TRANSCRIPT_BYTES:
        return content
    end = content[-MAX_TRANSCRIPT_BYTES:]
    return end[end.find(b"\n") + 1 :]
