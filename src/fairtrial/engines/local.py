"""Workers on this machine: child processes, each PID 1 of its own user and PID namespace where the host allows it."""

import os
import select
from collections.abc import Mapping, Sequence

from fairtrial.errors import HostError
from fairtrial.host.namespace import isolated_argv, probe_isolation
from fairtrial.host.process import Plumbing, Running
from fairtrial.host.process import start as start_process
from fairtrial.host.slot import probe_slot, slot_argv
from fairtrial.protocols import Worker

__all__ = ["Local", "LocalWorker"]

READ_BYTES = 1 << 16


class Local:
    """The default engine. Each worker has a slot of its own, so that no two of them share a uid."""

    def __init__(self) -> None:
        self._has_slots: bool | None = None
        self._n_started = 0

    def start(self, argv: Sequence[str], n: int, env: Mapping[str, str]) -> tuple[Worker, ...]:
        """Start `n` workers that read specs on standard input and answer on standard output.

        Raises:
            HostError: A worker could not be started.
        """
        if self._has_slots is None:
            self._has_slots = probe_slot(dict(env)) is None
        workers: list[LocalWorker] = []
        try:
            for _ in range(n):
                workers.append(LocalWorker(_start(self._command(argv), env)))  # noqa: PERF401 - what started must be ended on failure
        except (HostError, OSError):
            for worker in workers:
                worker.end(0)
            raise
        return tuple(workers)

    def _command(self, argv: Sequence[str]) -> tuple[str, ...]:
        if not self._has_slots:
            return isolated_argv(tuple(argv), probe_isolation().isolation)
        self._n_started += 1
        return slot_argv(argv, self._n_started - 1)


def _start(command: Sequence[str], env: Mapping[str, str]) -> Running:
    return start_process(command, env=env, stdin=Plumbing.PIPE, stdout=Plumbing.PIPE, stderr=Plumbing.INHERIT)


class LocalWorker:
    """One child process behind two pipes."""

    def __init__(self, process: Running) -> None:
        if process.stdin_fd is None or process.stdout_fd is None:
            raise HostError(f"{process.argv[0]}: the worker's pipes are missing")
        self._process = process
        self._stdin_fd = process.stdin_fd
        self._stdout_fd = process.stdout_fd
        self._pending = b""

    def fileno(self) -> int:
        """The read end of its standard output."""
        return self._stdout_fd

    def send(self, line: bytes) -> bool:
        """Write one line; a worker that is gone makes it False."""
        view = memoryview(line)
        while view:
            try:
                view = view[os.write(self._stdin_fd, view) :]
            except BrokenPipeError:
                return False
        return True

    def receive(self) -> tuple[bytes, ...] | None:
        """Lines that are there now."""
        if not select.select([self._stdout_fd], [], [], 0)[0]:
            return ()
        data = os.read(self._stdout_fd, READ_BYTES)
        if not data:
            return None
        *lines, self._pending = (self._pending + data).split(b"\n")
        return tuple(lines)

    def end(self, grace_s: float) -> int:
        """Close its input: the worker kills everything below it and ends; after the grace it is killed."""
        self._process.close_stdin()
        self._process.wait(grace_s)
        try:
            return self._process.kill()
        finally:
            self._process.close()
