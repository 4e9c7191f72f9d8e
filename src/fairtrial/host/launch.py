"""Starting Bubblewrap for one sandbox: its options and files by descriptor, its groups joined, nothing in any argv."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.host.bwrap import check_spec, command_argv, etc_files, options
from fairtrial.host.cgroup import ControlGroup, Controller
from fairtrial.host.kernel import join_new_session_keyring
from fairtrial.host.limits import Enforcement
from fairtrial.host.running import Running, start
from fairtrial.host.seccomp import key_filter
from fairtrial.host.slot import Slot, find_system_program
from fairtrial.host.spawn import Plumbing
from fairtrial.model.sandbox import Capture, SandboxSpec

__all__ = ["Launched", "launch"]

_ROOT_LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_FIRST_PASSED_FD: Final = 3
_HIDDEN: Final = ("/proc/keys", "/proc/key-users")
"""They list by name what the user has; a kernel without keyrings lacks them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A sandbox that is being built.

    Attributes:
        running: Bubblewrap's outer process.
        started_ns: When it was started.
        status_fd: Where Bubblewrap reports.
        group: Its memory group, if that is the mechanism.
        held: What must be let go of when nothing of it is left: descriptors, mounts, the groups.
    """

    running: Running
    started_ns: int
    status_fd: int
    group: ControlGroup | None
    held: ExitStack


def launch(spec: SandboxSpec, *, slot: Slot, enforcement: Enforcement) -> Launched:
    """Start building a sandbox; errors as in `run_sandbox`."""
    check_spec(spec)
    join_new_session_keyring()  # the filter denies keyrings inside; this keeps ours from being held there at all
    bwrap = find_system_program("bwrap", "bubblewrap")
    with ExitStack() as stack:
        memory_group = None
        joined: list[ControlGroup] = []
        for place in enforcement.groups:
            group = place.make(spec.limits)
            stack.callback(group.remove)
            joined.append(group)
            if Controller.MEMORY in place.controllers:
                memory_group = group
        with ExitStack() as opened:
            passed = _Passed()
            for fd in spec.pass_fds:
                passed.add(fd)
            file_fds = {
                file.target: passed.add(_memory_file(opened, file.content)) for file in (*etc_files(spec), *spec.files)
            }
            sources = stack.enter_context(slot.reach([bind.source for bind in spec.binds]))
            status_read, status_write = os.pipe2(os.O_CLOEXEC)
            stack.callback(os.close, status_read)
            opened.callback(os.close, status_write)
            words = options(
                spec,
                sources=sources,
                file_fds=file_fds,
                status_fd=passed.add(status_write),
                filter_fd=passed.add(_memory_file(opened, key_filter(os.uname().machine))),
                root_links=_root_links(),
                hidden=[path for path in _HIDDEN if Path(path).exists()],
            )
            args_fd = passed.add(_memory_file(opened, b"".join(os.fsencode(word) + b"\0" for word in words)))
            command = command_argv(spec, rlimits_processes=enforcement.sets_process_rlimit)
            argv = _in_groups(joined, slot.argv((bwrap, "--args", str(args_fd), "--", *command)))
            started_ns = time.perf_counter_ns()
            running = start(
                argv,
                env={},
                cwd=Path("/"),
                stdin=Plumbing.PIPE if spec.stdin else Plumbing.NULL,
                stdout=Plumbing.SOCKET if spec.capture is Capture.SOCKET else Plumbing.PIPE,
                stderr=Plumbing.PIPE,
                pass_fds=passed.fds,
            )
        held = stack.pop_all()
    return Launched(running=running, started_ns=started_ns, status_fd=status_read, group=memory_group, held=held)


class _Passed:
    """Descriptors for the child, and the numbers that it will know them by."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def add(self, fd: int) -> int:
        """Add one of ours; return the child's number of it."""
        self.fds.append(fd)
        return _FIRST_PASSED_FD + len(self.fds) - 1


def _memory_file(stack: ExitStack, content: bytes) -> int:
    """Put bytes into a file without a name, at whose start the child begins to read."""
    fd = os.memfd_create("f", os.MFD_CLOEXEC)
    stack.callback(os.close, fd)
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _root_links() -> Mapping[str, str]:
    links: dict[str, str] = {}
    for name in _ROOT_LINKS:
        path = Path(name)
        if path.is_symlink():
            links[name] = str(path.readlink()).lstrip("/")
        elif path.is_dir():
            links[name] = ""
    return links


def _in_groups(groups: Sequence[ControlGroup], argv: Sequence[str]) -> tuple[str, ...]:
    """Join the control groups before anything else, so that the group namespace made later begins there."""
    if not groups:
        return tuple(argv)
    joins = "".join('echo 0 >"$1" && shift && ' for _ in groups)
    script = f'{joins}unset PWD && exec "$@"'  # the shell adds a PWD of its own
    return ("/bin/sh", "-c", script, "sh", *(str(group.join) for group in groups), *argv)
