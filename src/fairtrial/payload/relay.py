"""The gateway's small end inside a sandbox, and the supervisor of the session that runs there.

    python3 -I -S relay.py PORT SOCKET -- COMMAND [ARGUMENT...]

Listens on 127.0.0.1:PORT (0: a free port), passes each connection on to the unix socket SOCKET, and runs COMMAND with
its own standard streams, in a process group of its own. It ends when COMMAND ends, with its exit code or 128 + n for
signal n; if it is PID 1 the kernel then ends everything else. Runs on the system's Python 3.9 or newer with nothing but
the standard library, and is imported by nobody.

Environment: FAIRTRIAL_DEADLINE = seconds since the epoch at which the session is asked to stop (TERM, as when TERM or
INT is sent to the relay), FAIRTRIAL_GRACE_S = seconds from that until KILL (10). COMMAND gets them too, so that it can
know its deadline, and FAIRTRIAL_RELAY_PORT. Exit codes of its own: 2 wrong usage, 125 it cannot listen, 126 COMMAND
cannot be started, 127 there is no COMMAND of that name.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import NoReturn, overload

__all__ = ["Half", "Link", "Relay", "complain", "main", "on_any_signal", "seconds_from", "start", "start_child"]

READ_BYTES = 256 * 1024
MAX_CONNECTIONS = 256
GRACE_S = 10.0
BAD_USAGE, CANNOT_LISTEN, CANNOT_START, NOT_FOUND = 2, 125, 126, 127
# HUP is passed on like the rest, but what ends a session in order is TERM.
STOPPING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
PASSED_ON = STOPPING | {signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT}


class Half:
    """One direction of a connection: at most one buffer is under way, so a slow reader slows the writer.

    Attributes:
        unsent: What the reader has not taken yet.
        ended: The writer has said its last; all of it is sent by then, since nothing is read while something is unsent.
    """

    # One for all: what the reader does not take at once is copied out of it.
    buffer = memoryview(bytearray(READ_BYTES))

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.unsent = memoryview(b"")
        self.ended = False

    def read(self) -> bool:
        """Take what is there; False when the connection has failed."""
        try:
            n_bytes = self.source.recv_into(self.buffer)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if n_bytes:
            self.unsent = self.buffer[:n_bytes]
            alive = self.write()
            if self.unsent:
                self.unsent = memoryview(bytes(self.unsent))
            return alive
        self.ended = True
        return True

    def write(self) -> bool:
        """Send what is left; False when the connection has failed."""
        try:
            self.unsent = self.unsent[self.target.send(self.unsent) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


class Link:
    """A client's connection and its connection to the gateway.

    A client that ends its side is gone, and the gateway must know. When the gateway ends its side the client may still
    be sending: closing at once would make the kernel throw away a reply that the client has not read yet.
    """

    def __init__(self, relay: Relay, client: socket.socket, server: socket.socket) -> None:
        self.relay = relay
        self.client = client
        self.server = server
        self.sockets = (client, server)
        self.halves = {client: Half(client, server), server: Half(server, client)}
        self.opposite = {client: server, server: client}
        self.watched = {client: 0, server: 0}
        for each in self.sockets:
            each.settimeout(0)
            self.watch(each)

    def on_event(self, ready: socket.socket, events: int) -> None:
        """Move bytes; close when there are no more to come."""
        half, wanted = self.halves[ready], self.watched[ready]
        alive = True
        # An error and a hang-up, which nobody asks for, are found out by trying what was asked for: who has hung up may
        # have sent its last before.
        if wanted & select.EPOLLOUT and events & ~select.EPOLLIN:
            alive = self.halves[self.opposite[ready]].write()
        if alive and wanted & select.EPOLLIN and events & ~select.EPOLLOUT:
            alive = half.read()
        if alive and events == select.EPOLLIN and not half.unsent and not half.ended:
            return  # all that came went on, as nearly always: what is waited for stays the same
        if not alive or self.halves[self.client].ended:
            self.close()
            return
        if ready is self.server and self.halves[self.server].ended:
            try:
                self.client.shutdown(socket.SHUT_WR)
            except OSError:
                self.close()
                return
        for each in self.sockets:
            self.watch(each)

    def watch(self, each: socket.socket) -> None:
        """Wait for what can go on: reading while nothing is under way, writing while something is."""
        wanted = 0 if self.halves[each].unsent or self.halves[each].ended else select.EPOLLIN
        if self.halves[self.opposite[each]].unsent:
            wanted |= select.EPOLLOUT
        watched, self.watched[each] = self.watched[each], wanted
        if wanted == watched:
            return
        # Level-triggered readiness of a socket that nobody wants to read would spin: it is left out of the set.
        if not watched:
            self.relay.watch(each, wanted, partial(self.on_event, each))
        elif not wanted:
            self.relay.forget(each)
        else:
            self.relay.poll.modify(each, wanted)

    def close(self) -> None:
        """End both connections."""
        for each in self.sockets:
            if self.watched[each]:
                self.relay.forget(each)
            each.close()
        self.relay.links.discard(self)


class Relay:
    """The loop: connections, signals, and the child."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        self.listener = listener
        self.path = path
        self.links: set[Link] = set()
        # Not `selectors`: what it puts between is a fifth of what a small request costs here.
        self.poll = select.epoll()
        self.handlers: dict[int, Callable[[int], None]] = {}
        self.child = 0
        self.ended_with: int | None = None
        self.kill_at: float | None = None
        self.grace_s = seconds_from("FAIRTRIAL_GRACE_S", GRACE_S)
        deadline = seconds_from("FAIRTRIAL_DEADLINE", None)
        self.stop_at = None if deadline is None else time.monotonic() + deadline - time.time()  # noqa: TID251 - stands alone
        listener.settimeout(0)
        self.watch(listener, select.EPOLLIN, self.on_client)
        self.wake, wake_end = socket.socketpair()
        self.wake.settimeout(0)
        wake_end.settimeout(0)
        self.wake_end = wake_end
        self.watch(self.wake, select.EPOLLIN, self.on_signal)
        for number in PASSED_ON | {signal.SIGCHLD}:
            signal.signal(number, on_any_signal)
        signal.set_wakeup_fd(wake_end.fileno(), warn_on_full_buffer=False)

    def watch(self, each: socket.socket, events: int, handler: Callable[[int], None]) -> None:
        """Call the handler with the events of a socket, until it is forgotten."""
        self.poll.register(each, events)
        self.handlers[each.fileno()] = handler

    def forget(self, each: socket.socket) -> None:
        """Watch a socket no longer."""
        self.poll.unregister(each)
        del self.handlers[each.fileno()]

    def on_client(self, _events: int) -> None:
        """Accept, and connect to the gateway; a client that the gateway does not take sees its connection end."""
        try:
            client, _ = self.listener.accept()
        except OSError:
            return
        if len(self.links) >= MAX_CONNECTIONS:
            client.close()
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self.path)
        except OSError:
            server.close()
            client.close()
            return
        self.links.add(Link(self, client, server))

    def on_signal(self, _events: int) -> None:
        """Pass signals on, begin the end, reap."""
        try:
            numbers = set(self.wake.recv(4096))
        except BlockingIOError:
            return
        for number in numbers & PASSED_ON:
            self.signal_child(number)
        if numbers & STOPPING:
            self.begin_end()
        self.reap()

    def begin_end(self) -> None:
        """Start the grace, once."""
        if self.kill_at is None:
            self.kill_at = time.monotonic() + self.grace_s

    def signal_child(self, number: int) -> None:
        """Signal the command's process group."""
        if self.child and self.ended_with is None:
            try:
                os.killpg(self.child, number)
            except OSError as problem:
                if problem.errno != errno.ESRCH:
                    raise

    def reap(self) -> None:
        """Reap the child, and as PID 1 every orphan."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.ended_with = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)

    def run(self, command: Sequence[str]) -> int:
        """Run the command to its end and return the exit code."""
        self.child = start(command, dict(os.environ, FAIRTRIAL_RELAY_PORT=str(self.listener.getsockname()[1])))
        self.reap()
        while self.ended_with is None:
            for number, events in self.poll.poll(self.pause_s()):
                # What was handled before it may have closed this one. If its number is another's by now, that one
                # finds nothing to do, since nothing here blocks.
                if (handler := self.handlers.get(number)) is not None:
                    handler(events)
            now = time.monotonic()
            if self.stop_at is not None and now >= self.stop_at:
                self.stop_at = None
                self.signal_child(signal.SIGTERM)
                self.begin_end()
            if self.kill_at is not None and now >= self.kill_at:
                self.signal_child(signal.SIGKILL)
                self.kill_at = now + GRACE_S  # not to spin while the kernel takes its time
        self.end_group()
        return self.ended_with

    def pause_s(self) -> float | None:
        """How long nothing needs to be done; None for ever."""
        times = [each for each in (self.stop_at, self.kill_at) if each is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def end_group(self) -> None:
        """Take what the command left in its group along: outside a PID namespace nobody else would."""
        try:
            os.killpg(self.child, signal.SIGKILL)
        except OSError as problem:
            if problem.errno not in {errno.ESRCH, errno.EPERM}:
                raise


def on_any_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the number arrives on the wake-up socket, if a handler of Python's is in place."""


def start(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start the command in a process group of its own; return its pid."""
    pid = os.fork()
    if not pid:
        start_child(command, environment)
    try:
        os.setpgid(pid, pid)  # both sides do: whichever comes first, a signal finds the group
    except OSError as problem:
        if problem.errno not in {errno.EACCES, errno.ESRCH}:
            raise
    return pid


def start_child(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Become the command, signals at their defaults; report a failure by exit code, as a shell does."""
    code = CANNOT_START
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in PASSED_ON | {signal.SIGCHLD, signal.SIGPIPE}:
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(command[0], list(command), environment)  # noqa: S606 - the session's command, from our own argv
    except OSError as problem:
        code = NOT_FOUND if isinstance(problem, FileNotFoundError) else CANNOT_START
        complain(f"{command[0]}: {problem.strerror}")
    finally:
        os._exit(code)


@overload
def seconds_from(name: str, default: float) -> float: ...
@overload
def seconds_from(name: str, default: None) -> float | None: ...
def seconds_from(name: str, default: float | None) -> float | None:
    """A number of seconds from the environment; what is no number counts as absent, and is said."""
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        complain(f"{name} is {text!r}, not seconds")
        return default


def complain(message: str) -> None:
    """Say one line on standard error."""
    os.write(2, f"relay: {message}\n".encode("utf-8", "replace"))


def main(arguments: Sequence[str]) -> int:
    """Listen, run, return the exit code."""
    if len(arguments) < 4 or arguments[2] != "--" or not arguments[0].isdigit():
        complain("usage: relay.py PORT SOCKET -- COMMAND [ARGUMENT...]")
        return BAD_USAGE
    listener = socket.socket(socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int(arguments[0])))
        listener.listen(128)
    except (OSError, OverflowError) as problem:
        complain(f"cannot listen on 127.0.0.1:{arguments[0]}: {problem}")
        return CANNOT_LISTEN
    return Relay(listener, arguments[1]).run(arguments[3:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
