"""Starting one process with posix_spawn: everything is prepared before the clock starts.

Owns the call and the child's standard streams. Knows nothing of waiting, draining or killing.

Why not `subprocess.Popen`: its own work around the fork costs 0.08 ms on a machine where `/bin/true` takes 0.55 ms,
most of the 0.1 ms that our clock may be off. Why ctypes and not `os.posix_spawn`: that one cannot change the child's
directory or close what it inherits, and it returns the process id as a Python value, which an interrupt between the
call and the assignment would lose together with the child. Here the C library writes the id into memory that the
clean-up path reads.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fairtrial.errors import HostError

__all__ = ["Plumbing", "Spawn", "Stdio", "explain_spawn_error", "find_program"]

# <spawn.h>, the same values in glibc on every architecture.
_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80
# The C types are opaque to us: glibc needs 80, 336 and 128 bytes on 64-bit machines.
_OPAQUE_BYTES = 1024


def _libc_function(name: str) -> Any:  # noqa: ANN401 - ctypes has no public type for a foreign function
    function = getattr(ctypes.CDLL(None), name, None)
    if function is None:
        message = f"the C library has no {name}: fairtrial needs glibc 2.34 or newer (Debian 12, Ubuntu 22.04, RHEL 9)"
        raise HostError(message)
    return function


_posix_spawn = _libc_function("posix_spawn")
_actions_init = _libc_function("posix_spawn_file_actions_init")
_actions_destroy = _libc_function("posix_spawn_file_actions_destroy")
_add_chdir = _libc_function("posix_spawn_file_actions_addchdir_np")
_add_dup2 = _libc_function("posix_spawn_file_actions_adddup2")
_add_closefrom = _libc_function("posix_spawn_file_actions_addclosefrom_np")


def _clean_attributes() -> ctypes.Array[ctypes.c_char]:
    """Build spawn attributes: a new session, every signal at its default and none blocked, whatever ours are."""
    attributes = ctypes.create_string_buffer(_OPAQUE_BYTES)
    signals = ctypes.create_string_buffer(_OPAQUE_BYTES)
    _check(_libc_function("posix_spawnattr_init")(attributes))
    _libc_function("sigfillset")(signals)
    _check(_libc_function("posix_spawnattr_setsigdefault")(attributes, signals))
    _libc_function("sigemptyset")(signals)
    _check(_libc_function("posix_spawnattr_setsigmask")(attributes, signals))
    _check(_libc_function("posix_spawnattr_setflags")(attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID)))
    return attributes


def _check(code: int) -> None:
    if code:
        raise OSError(code, os.strerror(code))


_ATTRIBUTES = _clean_attributes()


class Plumbing(Enum):
    """What one standard stream of a child is connected to."""

    NULL = "null"
    PIPE = "pipe"
    SOCKET = "socket"
    """Like a pipe, but no other process can open it through /proc. Output only."""
    INHERIT = "inherit"


class Stdio:
    """The three standard streams of a child: its ends and ours.

    Every descriptor is close-on-exec and above 2. Closing twice is harmless.

    Attributes:
        child_fds: What the child gets as 0, 1, 2 and on; None = it inherits ours.
        our_fds: Our end of each pipe, else None.
    """

    __slots__ = ("_open", "child_fds", "our_fds")

    def __init__(self, *, stdin: Plumbing, stdout: Plumbing, stderr: Plumbing, pass_fds: Sequence[int] = ()) -> None:
        """Open the streams.

        Args:
            stdin: What its standard input is connected to.
            stdout: What its standard output is connected to.
            stderr: What its standard error is connected to.
            pass_fds: Descriptors of the caller, who keeps them; the child gets them as 3, 4, ... in this order.
        """
        self._open: set[int] = set()
        child: list[int | None] = []
        ours: list[int | None] = []
        try:
            for number, plumbing in enumerate((stdin, stdout, stderr)):
                child_fd, our_fd = self._connect(number, plumbing)
                child.append(child_fd)
                ours.append(our_fd)
            child += [self._copy_above(fd, 3 + len(pass_fds)) for fd in pass_fds]
        except BaseException:
            self.close()
            raise
        self.child_fds = tuple(child)
        self.our_fds = tuple(ours)

    def _copy_above(self, fd: int, lowest: int) -> int:
        """Copy a descriptor to a number that no descriptor of the child will overwrite."""
        copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
        self._open.add(copy)
        return copy

    def _connect(self, number: int, plumbing: Plumbing) -> tuple[int | None, int | None]:
        if plumbing is Plumbing.INHERIT:
            return None, None
        if plumbing is Plumbing.NULL:
            return self._own(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)), None
        if plumbing is Plumbing.SOCKET:
            if number == 0:
                raise ValueError("standard input cannot be a socket here")
            ours, childs = (end.detach() for end in socket.socketpair())
            self._open |= {ours, childs}
            return self._own(childs), self._own(ours)
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        self._open |= {read_fd, write_fd}
        read_fd, write_fd = self._own(read_fd), self._own(write_fd)
        return (read_fd, write_fd) if number == 0 else (write_fd, read_fd)

    def _own(self, fd: int) -> int:
        """Keep a descriptor, moved above 2: one that *is* 0, 1 or 2 would be overwritten by the child's."""
        self._open.add(fd)
        if fd > 2:
            return fd
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        self._open.add(moved)
        self.close_fd(fd)
        return moved

    def close_fd(self, fd: int) -> None:
        """Close one of our descriptors; one that is closed already is left alone."""
        if fd in self._open:
            self._open.remove(fd)
            os.close(fd)

    def close_child_ends(self) -> None:
        """Close what the child has its own copy of by now."""
        for fd in self.child_fds:
            if fd is not None:
                self.close_fd(fd)

    def close(self) -> None:
        """Close every descriptor that is still open."""
        while self._open:
            os.close(self._open.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Spawn:
    """One prepared start of a process, in a new session.

    The child's directory is set before its program is looked up, so a relative program path means a path below `cwd`.

    Attributes:
        argv: The arguments, program name first.
    """

    __slots__ = ("_actions", "_arguments", "_pid", "argv")

    def __init__(
        self,
        argv: Sequence[str],
        *,
        program: str,
        env: Mapping[str, str],
        cwd: Path | None,
        stdio: Stdio,
    ) -> None:
        """Prepare the call.

        Raises:
            ValueError: An argument, variable or path holds a NUL, or a variable's name is empty or holds "=".
        """
        self.argv = tuple(argv)
        self._pid = ctypes.c_int(0)
        self._actions = ctypes.create_string_buffer(_OPAQUE_BYTES)
        directory = None if cwd is None else _c_string(os.fspath(cwd))
        self._arguments = (
            ctypes.byref(self._pid),
            _c_string(program),
            self._actions,
            _ATTRIBUTES,
            _c_strings([_c_string(word) for word in argv]),
            _c_strings([_c_variable(name, value) for name, value in env.items()]),
        )
        _check(_actions_init(self._actions))
        try:
            if directory is not None:
                _check(_add_chdir(self._actions, directory))
            for number, fd in enumerate(stdio.child_fds):
                if fd is not None:
                    _check(_add_dup2(self._actions, fd, number))
            # Our own descriptors are close-on-exec, but what our parent left open in us is not.
            _check(_add_closefrom(self._actions, len(stdio.child_fds)))
        except BaseException:
            _actions_destroy(self._actions)
            raise

    @property
    def pid(self) -> int:
        """The child's process id and process group; 0 until it exists."""
        return self._pid.value

    def launch(self) -> int:
        """Start the child; return 0, or the errno of what failed in us or in the child before its program ran."""
        error: int = _posix_spawn(*self._arguments)
        return error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _actions_destroy(self._actions)


def _c_string(text: str) -> bytes:
    data = os.fsencode(text)
    if b"\0" in data:
        message = f"a NUL cannot be passed to a process: {text!r}"
        raise ValueError(message)
    return data


def _c_variable(name: str, value: str) -> bytes:
    if not name or "=" in name:
        message = f"not the name of an environment variable: {name!r}"
        raise ValueError(message)
    return _c_string(name) + b"=" + _c_string(value)


def _c_strings(words: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def find_program(name: str, env: Mapping[str, str]) -> str | None:
    """Find the program that `name` means, before any clock runs.

    A name with a slash is taken as it is. Others are searched on the PATH of `env`, where only absolute directories
    count: the child's directory is often a repository, which must not be able to plant a program.
    """
    if "/" in name:
        return name
    directories = [entry for entry in env.get("PATH", "").split(os.pathsep) if entry.startswith("/")]
    return shutil.which(name, path=os.pathsep.join(directories)) if directories else None


def explain_spawn_error(code: int, *, program: str, cwd: Path | None) -> str:
    """Say in one line what kept a program from starting; an errno does not tell a bad directory from a bad program."""
    if cwd is not None and code in {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG}:
        try:
            os.close(os.open(cwd, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            searchable = os.access(cwd, os.X_OK)
        except OSError as problem:
            return f"cannot start {program}: working directory {cwd}: {problem.strerror}"
        if not searchable:
            return f"cannot start {program}: working directory {cwd}: {os.strerror(errno.EACCES)}"
    return f"cannot start {program}: {os.strerror(code)}"
