"""The tool host and the bridge as real processes around a small server."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from fairtrial.host.listener import listen_unix
from fairtrial.payload import __path__ as payload_path

HOST: Final = Path(payload_path[0]) / "tool_host.py"
BRIDGE: Final = Path(payload_path[0]) / "bridge.py"
SERVER: Final = """
import json, sys
print("no message")
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    method, params = asked["method"], asked.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "t", "version": "7"}}
    elif method == "tools/list" and not params.get("cursor"):
        result = {"tools": [{"name": "look"}, {"name": "change"}], "nextCursor": "2"}
    elif method == "tools/list":
        result = {"tools": [{"name": "fail"}]}
    else:
        result = {"content": [{"type": "text", "text": params["name"]}], "isError": params["name"] == "fail"}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
COMMAND: Final = (sys.executable, "-I", "-S", "-c", SERVER)

Message = dict[str, Any]


class Served:
    """A tool host that withholds `change`, and what it prints."""

    def __init__(self, process: subprocess.Popen[str], path: Path) -> None:
        self.process = process
        self.path = path

    def events(self, last: str) -> list[Message]:
        """What it has printed up to an event of this kind."""
        found: list[Message] = []
        assert self.process.stdout is not None
        while not found or found[-1]["event"] != last:
            found.append(json.loads(self.process.stdout.readline()))
        return found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    path = tmp_path / "s"
    listener = listen_unix(path)
    words = ["serve", str(listener), "--withhold", "change", "--", *COMMAND]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(HOST), *words], pass_fds=(listener,), stdout=subprocess.PIPE, text=True
    ) as process:
        os.close(listener)
        yield Served(process, path)
        process.kill()


@pytest.fixture
def ask(served: Served) -> Iterator[Callable[[bytes], Message]]:
    """Write a line and read the answer, on one connection."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(served.path))
        with client.makefile("rb") as answers:

            def send(line: bytes) -> Message:
                client.sendall(line + b"\n")
                answer: Message = json.loads(answers.readline())
                return answer

            yield send


def call(tool: object, number: int = 1) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool}}
    return json.dumps(message).encode()


def test_a_call_reaches_the_server_and_its_answer_the_client(ask: Callable[[bytes], Message], served: Served) -> None:
    assert ask(call("look"))["result"]["content"][0]["text"] == "look"
    assert [event["event"] for event in served.events("answered")] == ["opened", "called", "answered"]


def test_a_withheld_tool_is_neither_listed_nor_called(ask: Callable[[bytes], Message], served: Served) -> None:
    listed = ask(b'{"jsonrpc":"2.0","id":4,"method":"tools/list"}')
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["look"]
    assert "there is no tool change" in ask(call("change", 5))["error"]["message"]
    *_, refused = served.events("called")
    assert (refused["tool"], refused["withheld"]) == ("change", True)


def test_a_name_given_twice_is_judged_as_it_is_passed_on(ask: Callable[[bytes], Message]) -> None:
    twice = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look","name":"change"}}'
    assert "error" in ask(twice)
    turned = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"change","name":"look"}}'
    assert ask(turned)["result"]["content"][0]["text"] == "look"


def test_a_name_that_is_no_text_is_refused(ask: Callable[[bytes], Message]) -> None:
    assert "error" in ask(call(["change"]))


def test_a_batch_and_what_is_no_json_go_no_further(ask: Callable[[bytes], Message], served: Served) -> None:
    assert ask(b"[" + call("change") + b"]\nrubbish\n" + call("look", 2))["id"] == 2
    kinds = [event["event"] for event in served.events("answered")]
    assert kinds == ["opened", "unreadable", "unreadable", "called", "answered"]


def test_a_failed_call_is_told_from_a_good_one(ask: Callable[[bytes], Message], served: Served) -> None:
    ask(call("fail"))
    *_, answered = served.events("answered")
    assert (answered["tool"], answered["is_error"]) == ("fail", True)


def test_the_server_ends_with_its_client_and_another_client_gets_another(served: Served) -> None:
    for number in (1, 2):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(served.path))
            client.sendall(call("look") + b"\n")
            client.shutdown(socket.SHUT_WR)
            with client.makefile("rb") as answers:
                assert json.loads(answers.readline())["id"] == 1
                assert answers.read() == b""
        *_, closed = served.events("closed")
        assert (closed["connection"], closed["exit_code"]) == (number, 0)


def test_a_server_describes_itself_page_by_page() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(HOST), "describe", "--", sys.executable, "-I", "-S", "-c", QUIET],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {
        "name": "t",
        "version": "7",
        "protocol": "2025-06-18",
        "tools": ["change", "fail", "look"],
    }


QUIET: Final = SERVER.replace('print("no message")\n', "")


@pytest.mark.parametrize("command", [("/bin/true",), ("/nonexistent",)])
def test_what_is_no_server_does_not_describe_itself(command: tuple[str, ...]) -> None:
    argv = [sys.executable, "-I", "-S", str(HOST), "describe", "--", *command]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("tool_host: ")


@pytest.mark.parametrize(
    "words", [(), ("serve", "x", "--", "a"), ("describe",), ("serve", "3", "--withhold", "--", "a")]
)
def test_the_host_says_how_it_is_used(words: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-I", "-S", str(HOST), *words], capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"tool_host: usage: ")


def test_the_bridge_carries_both_ways_and_ends_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        argv = [sys.executable, "-I", "-S", str(BRIDGE), str(path)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bridge:
            server, _ = listener.accept()
            assert bridge.stdin is not None
            assert bridge.stdout is not None
            large = os.urandom(1 << 20)
            echo = threading.Thread(target=lambda: server.sendall(server.recv(1 << 20, socket.MSG_WAITALL)))
            echo.start()
            bridge.stdin.write(large)
            bridge.stdin.flush()
            assert bridge.stdout.read(1 << 20) == large
            echo.join()
            bridge.stdin.close()
            assert server.recv(1) == b"", "the end of its input is passed on"
            server.close()
            assert bridge.wait() == 0


def test_the_bridge_ends_with_the_server_while_its_input_is_open(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        argv = [sys.executable, "-I", "-S", str(BRIDGE), str(path)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bridge:
            listener.accept()[0].close()
            assert bridge.wait() == 0


def test_the_bridge_says_that_nobody_is_there(tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-S", str(BRIDGE), str(tmp_path / "s")]
    done = subprocess.run(argv, capture_output=True, check=False)
    assert (done.returncode, b"No such file" in done.stderr) == (125, True)
    assert subprocess.run(argv[:-1], capture_output=True, check=False).returncode == 2
