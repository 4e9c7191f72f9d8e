"""git as the harness itself uses it: nothing of a person's or a repository's configuration decides what it does.

Hooks, filters, file-system monitors and transports are off. A command that looks at what an agent could write runs
under the slot's ids.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError
from fairtrial.host.process import run
from fairtrial.host.slot import SEARCH_PATH, Slot, find_system_program

__all__ = ["GitError", "git"]

TIMEOUT_S: Final = 600.0
MOST_OUTPUT_BYTES: Final = 512 << 20
_SETTINGS: Final = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.protectHFS": "false",  # they refuse names that a Linux tree may well have, such as one with a backslash
    "core.protectNTFS": "false",
    "core.quotePath": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "safe.directory": "*",  # whose repository it is was decided by who named it
}
_ENVIRONMENT: Final = {
    "PATH": SEARCH_PATH,
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


class GitError(HostError):
    """A git command of ours failed.

    Attributes:
        returncode: Its exit status; None when it never ran or was killed.
    """

    def __init__(self, message: str, returncode: int | None) -> None:
        super().__init__(message)
        self.returncode = returncode


def git(
    arguments: Sequence[str],
    *,
    cwd: Path,
    slot: Slot | None = None,
    git_dir: Path | None = None,
    work_tree: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    accept: frozenset[int] = frozenset({0}),
    keep_bytes: int | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Run git and return its standard output.

    Args:
        arguments: The subcommand and its arguments.
        cwd: Its directory.
        slot: Under whose ids; None = ours, for repositories that a person named.
        git_dir: The repository; None = found from `cwd`.
        work_tree: The work tree; None = git's own choice.
        env: More variables.
        stdin: What it reads.
        accept: Exit statuses that are no failure.
        keep_bytes: How much of the output is wanted; None = all of it.
        timeout_s: Time limit in seconds.

    Raises:
        GitError: It ended otherwise, or wrote more than can be kept.
    """
    words = [find_system_program("git", "git")]
    for name, value in _SETTINGS.items():
        words += ["-c", f"{name}={value}"]
    if git_dir is not None:
        words.append(f"--git-dir={git_dir}")
    if work_tree is not None:
        words.append(f"--work-tree={work_tree}")
    argv = (*words, *arguments)
    result = run(
        argv if slot is None else slot.argv(argv),
        env={**_ENVIRONMENT, **(env or {})},
        cwd=cwd,
        stdin=stdin,
        timeout_s=timeout_s,
        capture_bytes=MOST_OUTPUT_BYTES if keep_bytes is None else keep_bytes,
    )
    lacking = keep_bytes is None and result.stdout.head_truncated
    if result.returncode not in accept or result.timed_out or lacking:
        said = result.stderr.tail.decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else result.detail or f"ended with {result.returncode}"
        if lacking:
            reason = f"wrote more than {MOST_OUTPUT_BYTES} bytes"
        raise GitError(f"git {arguments[0]} in {cwd}: {reason}", result.returncode)
    return result.stdout.head
