"""Starting what was meant for a sandbox as a plain process, where nobody can make sandboxes: for a look.

Nothing is contained: the process sees the host's files, processes and network, and writes whatever its user may. What
it is promised inside (the workspace, a home directory, generated files) lies below a directory of its own, and where
its words, variables and files name such a place they are changed to name the real one. Wall time, output and
descriptors are limited as in a sandbox.
"""

import errno
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import Final

from fairtrial.host.bwrap import check_spec
from fairtrial.host.files import remove_tree
from fairtrial.host.launch import Launched
from fairtrial.host.running import start
from fairtrial.host.slot import Slot
from fairtrial.host.spawn import Plumbing
from fairtrial.model.sandbox import Capture, SandboxSpec

__all__ = ["launch_plain", "rename_places"]

_FIRST_PASSED_FD: Final = 3
_HOSTS_OWN: Final = frozenset({"/tmp", "/dev/shm", "/run"})  # noqa: S108 - what is there stays there
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_EMPTY: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST})
_SCRIPT: Final = 'trap : TERM INT HUP; "$@" {fd}>&-; printf \'{{"exit-code": %d}}\\n\' "$?" >&{fd}'
"""Says how the command ended, as Bubblewrap would. What asks the group to end must not end this shell."""


def launch_plain(spec: SandboxSpec, *, slot: Slot) -> Launched:
    """Start a command; errors as in `run_sandbox`."""
    check_spec(spec)
    with ExitStack() as stack:
        root = Path(mkdtemp(prefix="n", dir=slot.root))
        stack.callback(remove_tree, root)
        sources = stack.enter_context(slot.reach([bind.source for bind in spec.binds]))
        places = _places(spec, root, sources)
        env = {name: rename_places(value, places) for name, value in spec.env.items()}
        _furnish(spec, root, places, slot)
        _link_mounts(spec, sources, places, stack)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        stack.callback(os.close, status_read)
        try:
            script = _SCRIPT.format(fd=_FIRST_PASSED_FD + len(spec.pass_fds))
            limited = ("/usr/bin/prlimit", f"--nofile={spec.limits.files}:{spec.limits.files}", "--core=0:0", "--")
            words = [rename_places(word, places) for word in spec.argv]
            started_ns = time.perf_counter_ns()
            running = start(
                slot.argv(("/bin/sh", "-c", script, "sh", *limited, *words)),
                env={**env, "TMPDIR": str(root / "tmp")},
                cwd=Path(rename_places(spec.cwd, places)),
                stdin=Plumbing.PIPE if spec.stdin else Plumbing.NULL,
                stdout=Plumbing.SOCKET if spec.capture is Capture.SOCKET else Plumbing.PIPE,
                stderr=Plumbing.PIPE,
                pass_fds=[*spec.pass_fds, status_write],
            )
        finally:
            os.close(status_write)
        held = stack.pop_all()
    return Launched(running=running, started_ns=started_ns, status_fd=status_read, group=None, held=held)


def rename_places(text: str, places: Mapping[str, str]) -> str:
    """Replace each place of the sandbox by where it really is, longest name first; pure."""
    if not places:
        return text
    names = "|".join(re.escape(name) for name in sorted(places, key=len, reverse=True))
    return re.sub(rf"(?<![\w./~-])(?:{names})(?![\w.-])", lambda found: places[found[0]], text)


def _places(spec: SandboxSpec, root: Path, sources: Sequence[str]) -> dict[str, str]:
    """Where each mount is really found, and each directory that holds a generated file."""
    places = {each.target: f"{root}{each.target}" for each in spec.tmpfs if each.target not in _HOSTS_OWN}
    parents = (str(PurePosixPath(file.target).parent) for file in spec.files)
    places |= {parent: f"{root}{parent}" for parent in parents if parent != "/"}
    places |= {bind.target: source for bind, source in zip(spec.binds, sources, strict=True) if bind.target != source}
    return places


def _furnish(spec: SandboxSpec, root: Path, places: Mapping[str, str], slot: Slot) -> None:
    """Make its directories and generated files; all of it belongs to the slot."""
    for name in ("tmp", *(each.target[1:] for each in spec.tmpfs if each.target not in _HOSTS_OWN)):
        (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in spec.files:
        path = root / file.target[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_content(file.content, places))
        path.chmod(file.mode)
    for each in (root, *root.rglob("*")):
        slot.give(each)


def _content(content: bytes, places: Mapping[str, str]) -> bytes:
    """A generated file as it must read here; a program stays as it is."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    return content if "\0" in text else rename_places(text, places).encode()


def _link_mounts(spec: SandboxSpec, sources: Sequence[str], places: Mapping[str, str], stack: ExitStack) -> None:
    """Show by a link what is mounted in another mount, as dependencies are in the workspace, while the command runs.

    An earlier command may have put anything there, and its links would lead us, who may be root, to the host's own
    files: so none is followed, and what is in the way stays there.
    """
    for bind, source in zip(spec.binds, sources, strict=True):
        above = [str(parent) for parent in PurePosixPath(bind.target).parents if str(parent) in places]
        if not above:
            continue
        *parents, name = PurePosixPath(bind.target).relative_to(above[0]).parts
        at = _enter(places[above[0]], parents)
        if at is None:
            continue
        stack.callback(os.close, at)
        try:
            os.rmdir(name, dir_fd=at)  # the empty place of a mount
        except OSError as problem:
            if problem.errno not in _NOT_EMPTY:
                raise
        try:
            os.symlink(source, name, dir_fd=at)
        except FileExistsError:
            continue  # an oracle's own file lies there already
        stack.callback(_unlink, at, name)


def _enter(root: str, parents: Sequence[str]) -> int | None:
    """Open a directory below another one, made where there is none; None where something else is in the way."""
    at = os.open(root, _DIRECTORY)
    for name in parents:
        try:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=at)
            below = os.open(name, _DIRECTORY, dir_fd=at)
        except OSError as problem:
            if problem.errno not in {errno.ENOTDIR, errno.ELOOP}:
                raise
            return None
        finally:
            os.close(at)
        at = below
    return at


def _unlink(at: int, name: str) -> None:
    """Take a link away, or what the command put in its place; a directory is its own work and stays."""
    with suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(name, dir_fd=at)
