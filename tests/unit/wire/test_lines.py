"""A line each way: who may talk, how long a line may be, and how each end learns that the other is gone."""

import asyncio
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairtrial.wire.lines import LineClient, LineServer


class Session:
    """Says everything twice, and counts."""

    def __init__(self, server: "Serving") -> None:
        self._server = server

    async def answer(self, line: bytes) -> bytes:
        if line == b"fail\n":
            raise LookupError("ours")
        if line == b"wait\n":
            await asyncio.get_running_loop().create_future()
        return line[:-1] * 2 + b"\n"

    async def end(self) -> None:
        self._server.n_ended += 1
        self._server.ended.set()


class Serving:
    """A line server on a loop in a thread of its own, since its clients block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_ended = 0
        self.ended = threading.Event()
        self.failures: list[object] = []
        self._ready = threading.Event()
        self._stopped: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, context: self.failures.append(context["exception"]))
        self._stopped = asyncio.Event()
        server = LineServer(lambda: Session(self), max_line_bytes=1000)
        await server.listen(self.path)
        self._ready.set()
        await self._stopped.wait()
        await server.stop()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()


@contextmanager
def serving(directory: Path) -> Iterator[Serving]:
    server = Serving(directory / "s")
    server.start()
    try:
        yield server
    finally:
        server.stop()


def test_each_line_is_answered_by_one_line(tmp_path: Path) -> None:
    with serving(tmp_path) as server, LineClient(server.path) as client:
        assert client.ask(b"a\n", timeout_s=20) == b"aa"
        assert client.ask(b"b\n", timeout_s=20) == b"bb"
        assert not client.server_gone
        with LineClient(server.path) as other:
            assert other.ask(b"c\n", timeout_s=20) == b"cc"


def test_the_server_is_told_when_its_client_is_gone(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        with LineClient(server.path) as client:
            client.ask(b"a\n", timeout_s=20)
        assert server.ended.wait(60)
        assert (server.n_ended, server.failures) == (1, [])


def test_the_client_is_told_when_its_server_is_gone(tmp_path: Path) -> None:
    with serving(tmp_path) as server, LineClient(server.path) as client:
        client.ask(b"a\n", timeout_s=20)
        server.stop()
        assert client.server_gone
        with pytest.raises(ConnectionError):
            client.ask(b"b\n", timeout_s=20)
        assert server.n_ended == 1


def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_was_said(tmp_path: Path) -> None:
    with serving(tmp_path) as server, LineClient(server.path) as client, pytest.raises(TimeoutError):
        client.ask(b"wait\n", timeout_s=0.05)


def test_a_line_beyond_the_limit_ends_the_session(tmp_path: Path) -> None:
    with serving(tmp_path) as server, LineClient(server.path) as client:
        with pytest.raises(ConnectionError):
            client.ask(b"x" * 5000 + b"\n", timeout_s=20)
        assert server.ended.wait(60)
        assert server.failures == []


def test_half_a_line_is_no_question(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(server.path))
            client.sendall(b"half")
            client.shutdown(socket.SHUT_WR)
            client.settimeout(20)
            assert client.recv(100) == b""
        assert server.ended.wait(60)


def test_a_bug_of_a_session_ends_it_and_is_reported(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        with LineClient(server.path) as client, pytest.raises(ConnectionError):
            client.ask(b"fail\n", timeout_s=20)
        assert server.ended.wait(60)
        with LineClient(server.path) as other:
            assert other.ask(b"a\n", timeout_s=20) == b"aa"
        assert [type(failure) for failure in server.failures] == [LookupError]


def test_nobody_listens_where_there_is_no_server(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        LineClient(tmp_path / "s")


def test_the_socket_is_its_own_users_alone(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert stat.S_IMODE(server.path.stat().st_mode) == 0o600


@pytest.mark.root
def test_another_user_who_can_reach_the_socket_gets_no_answer() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name, serving(Path(name)) as server:
        Path(name).chmod(0o711)
        server.path.chmod(0o666)
        child = os.fork()
        if not child:
            code = 1
            try:
                os.setuid(65534)
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(str(server.path))
                    client.settimeout(20)
                    client.sendall(b"a\n")
                    code = 0 if client.recv(100) == b"" else 2
            except (BrokenPipeError, ConnectionResetError):
                code = 0  # it hung up before it read anything
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert server.n_ended == 0
