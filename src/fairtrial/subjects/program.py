"""What every subject needs of its program: finding it, and reading what a finished command said."""

import hashlib
import re
import shutil
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError
from fairtrial.host.process import run as run_process
from fairtrial.model.loop import Probe, Step
from fairtrial.model.process import ProcessResult, ProcessState
from fairtrial.protocols import RunProbe

__all__ = [
    "PATH",
    "ask_program",
    "ended_by_itself",
    "find_program",
    "first_line",
    "linked_version",
    "look_up",
    "remove_workspace",
    "said",
    "text_of",
    "unused_path",
]

PATH: Final = "/usr/local/bin:/usr/bin:/bin"
SAID_CHARACTERS: Final = 400
_MOST_ASKED: Final = 3


def find_program(
    name: str, *, ask: Sequence[str], pattern: str, oldest: tuple[int, int], install: str, label: str
) -> Probe:
    """Find a program and its version, and refuse one that is too old to be driven.

    Args:
        name: Its name, looked up on our own PATH, or its path.
        ask: Arguments that make it tell its version.
        pattern: What the answer must match; its first two groups are the numbers to compare.
        oldest: The oldest version that will do.
        install: The command that installs it.
        label: What messages call it: its usual name.
    """
    needed = f"{label} {oldest[0]}.{oldest[1]} or newer"
    is_named = name != label  # by the variant: to install another one would not help
    remedy = f"let the variant's `binary` name {needed}" if is_named else f"install {needed}: {install}"
    found = shutil.which(name)
    if found is None:
        what = f"binary '{name}' is no program that can be run" if is_named else f"no program '{name}' on PATH"
        return _missing(f"{what}; {remedy}")
    binary = str(Path(found).absolute())  # not resolved: a program may be a link that tells by its name what it is
    result = ask_program([binary, *ask])
    text = text_of(result.stdout.head).strip()
    numbers = re.search(pattern, text)
    if not result.ok or numbers is None:
        asked = " ".join((binary, *ask))
        return _missing(f"{asked} says {(text or result.detail)[:SAID_CHARACTERS]!r}, not a {label} version; {remedy}")
    if (int(numbers[1]), int(numbers[2])) < oldest:
        return _missing(f"{binary} is {numbers[0]}, which is too old; {remedy}")
    digest = hashlib.sha256(Path(binary).read_bytes()).hexdigest()
    return Probe(binary=binary, version=numbers[0], details={"binary_sha256": digest}, missing=None)


def ask_program(argv: Sequence[str]) -> ProcessResult:
    """Ask a program about itself; again when somebody killed it, for that tells nothing of what is installed."""
    for _ in range(_MOST_ASKED - 1):
        result = run_process(argv, env={"PATH": PATH, "LC_ALL": "C"}, timeout_s=20, capture_bytes=65536)
        if result.timed_out or (result.returncode or 0) >= 0:
            return result
    return run_process(argv, env={"PATH": PATH, "LC_ALL": "C"}, timeout_s=20, capture_bytes=65536)


def linked_version(program: Path, library: str) -> str | None:
    """The version of a shared library that a program is linked to, as the library tells it; None when it does not.

    Args:
        program: The program.
        library: The library's name, as in the word `NAME/1.2.3` that it holds.
    """
    linked = ask_program(["ldd", str(program)])
    found = re.search(rf"\b{library}\S* => (/\S+)", text_of(linked.stdout.head)) if linked.ok else None
    if found is None:
        return None
    told = re.search(rf"\b{library}/(\d+\.\d+\.\d+)".encode(), Path(found[1]).read_bytes())
    return told[1].decode() if told else None


def text_of(data: bytes) -> str:
    """Decode what a command printed."""
    return data.decode("utf-8", "replace")


def said(result: ProcessResult) -> str:
    """The end of what a command printed, on both streams, as one short text."""
    text = (text_of(result.stdout.tail) + "\n" + text_of(result.stderr.tail)).strip()
    return text[-SAID_CHARACTERS:] or result.detail


def first_line(run: RunProbe, argv: Sequence[str], *, cwd: Path) -> str | None:
    """The first line that a command prints; None when it fails or prints none."""
    result = run(argv, cwd=cwd)
    lines = text_of(result.stdout.head).split("\n")
    return lines[0].strip() or None if result.ok else None


def look_up(run: RunProbe, argv: Sequence[str], *, cwd: Path, absent: int) -> str | None:
    """The first line of what a look at a store found; None when it tells, without a complaint, that nothing is there.

    Args:
        run: Runs it.
        argv: The look.
        cwd: Where.
        absent: The exit status by which it tells that nothing is there.

    Raises:
        HostError: It could not look.
    """
    result = run(argv, cwd=cwd)
    line = text_of(result.stdout.head).split("\n")[0].strip()
    if result.ok and line:
        return line
    if ended_by_itself(result) and result.returncode == absent and not result.stderr.n_bytes:
        return None
    raise HostError(f"{cwd}: the store cannot be read: {said(result)}")


def ended_by_itself(result: ProcessResult) -> bool:
    """Whether a command lived to its own end: one that was killed or timed out claims nothing.

    One that ended by itself and left descendants (a hook of a server that had died) which were then killed, did.
    """
    ended = result.state in {ProcessState.EXITED, ProcessState.FORCED_KILL}
    return ended and not result.timed_out and (result.returncode or 0) >= 0


def unused_path(parent: Path, name: str, suffix: str = "") -> Path:
    """A path below `parent` where nothing is yet: a store is looked at more than once, and each look is a fresh one."""
    paths = (parent / f"{name.replace('/', '-')}-{n}{suffix}" for n in count())
    return next(path for path in paths if not path.exists())


def remove_workspace(workspace: Path) -> Step:
    """What an agent types to be rid of a workspace whose tool has no command for it."""
    return Step(argv=("/bin/rm", "-rf", str(workspace)), cwd=workspace.parent, name=".remove")


def _missing(reason: str) -> Probe:
    return Probe(binary=None, version=None, details={}, missing=reason)
