"""A second process for a share of the work: a fork that computes beside us, where a processor may be idle.

For pure work on what is in memory already. What the child would print, raise or change in memory is lost with it.
"""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from fairtrial.host.life import die_with_parent

__all__ = ["can_work_beside", "working_beside"]

_CHUNK_BYTES = 1 << 16


def can_work_beside() -> bool:
    """Tell whether a fork is safe (it takes no threads along, but the locks that they hold) and may be of use."""
    return len(os.sched_getaffinity(0)) > 1 and len(list(Path("/proc/self/task").iterdir())) == 1


@contextmanager
def working_beside(work: Callable[[], bytes]) -> Generator[Callable[[], bytes | None]]:
    """Let a child do some work meanwhile; the child is gone when the block is left, however it is left.

    Args:
        work: Runs in the child.

    Yields:
        A function that waits for what `work` returned; None when it raised or was killed. Call it once.

    Raises:
        OSError: The kernel starts no process.
    """
    parent = os.getpid()
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
        if pid == 0:
            _work_and_exit(work, write_fd, parent)
    except BaseException:
        os.close(read_fd)
        raise
    finally:
        os.close(write_fd)
    is_reaped = False

    def wait_result() -> bytes | None:
        nonlocal is_reaped
        data = b"".join(iter(lambda: os.read(read_fd, _CHUNK_BYTES), b""))
        _, status = os.waitpid(pid, 0)
        is_reaped = True
        return data if status == 0 else None

    try:
        yield wait_result
    finally:
        os.close(read_fd)
        if not is_reaped:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _work_and_exit(work: Callable[[], bytes], fd: int, parent: int) -> None:
    """Be the child: whatever happens, no frame of the parent's may go on in it."""
    code = 1
    try:
        die_with_parent(parent)
        unwritten = memoryview(work())
        while unwritten:
            unwritten = unwritten[os.write(fd, unwritten) :]
        code = 0
    finally:
        os._exit(code)
