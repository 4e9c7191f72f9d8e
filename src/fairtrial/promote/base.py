"""What a project holds now where a candidate would go: the same bytes committed and live, or no sweep begins."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError, UsageError
from fairtrial.host.exchange import open_below, open_without_links
from fairtrial.host.process import run
from fairtrial.model.process import ProcessResult, ProcessState
from fairtrial.promote.target import look_at, sha256_of

__all__ = ["MAX_BASE_BYTES", "Base", "read_base"]

MAX_BASE_BYTES: Final = 4 << 20
GIT_TIMEOUT_S: Final = 60.0
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENVIRONMENT: Final = {
    "PATH": _PATH,
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
_SETTINGS: Final = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*")

Base = tuple[str, dict[str, str]]
"""A commit, and the digest of each path's bytes there and in the work tree."""


def read_base(project: Path, paths: Iterable[str]) -> Base:
    """Give the commit that HEAD names now, and the digest of each path in it.

    Raises:
        UsageError: A path is missing, no regular file, or its live bytes are not the committed ones; all are named.
        HostError: git cannot read the project.
    """
    project = project.resolve()
    if not project.is_dir():
        raise UsageError(f"{project}: no such directory; name the project whose skills the candidate changes")
    commit = _git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", "HEAD^{commit}")
    if commit.returncode != 0:
        raise UsageError(f"{project}: not a git repository with a commit; commit the skills first")
    sha = commit.stdout.head.decode().strip()
    digests: dict[str, str] = {}
    problems: list[str] = []
    for path in paths:
        committed = _git(project, "cat-file", "blob", f"{sha}:./{path}")
        live = _live_digest(project, path)
        if committed.returncode != 0:
            problems.append(f"{path}: not in the commit: an overlay changes files, it adds none")
        elif committed.stdout.head_truncated:
            problems.append(f"{path}: larger than {MAX_BASE_BYTES} bytes")
        elif live is None:
            problems.append(f"{path}: missing, or no regular file of its own")
        else:
            digests[path] = hashlib.sha256(committed.stdout.head).hexdigest()
            if live != digests[path]:
                problems.append(f"{path}: differs from what is committed")
    if problems:
        raise UsageError(f"{project}: {'; '.join(problems)}; commit or undo that first")
    return sha, digests


def _live_digest(project: Path, path: str) -> str | None:
    parent_path, _, name = path.rpartition("/")
    opened: list[int] = []
    try:
        opened.append(open_without_links(project))
        opened.append(open_below(opened[0], parent_path))
        seen = look_at(opened[1], name)
    except OSError:  # a directory on the way is missing or a link: the file is not where it must be
        return None
    finally:
        for fd in opened:
            os.close(fd)
    return None if seen is None else sha256_of(seen.content)


def _git(project: Path, *arguments: str) -> ProcessResult:
    result = run(
        ("git", *_SETTINGS, *arguments),
        env=_ENVIRONMENT,
        cwd=project,
        timeout_s=GIT_TIMEOUT_S,
        capture_bytes=MAX_BASE_BYTES,
    )
    if result.state is not ProcessState.EXITED:
        raise HostError(f"git {arguments[0]} in {project}: {result.detail or result.state}; see `fairtrial doctor`")
    return result
