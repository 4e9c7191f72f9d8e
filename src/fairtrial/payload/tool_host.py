"""What a tool server runs below, in its own sandbox: one server process for each client, and a look at what passes.

    python3 -I -S tool_host.py serve FD [--withhold TOOL]... -- COMMAND [ARGUMENT...]
    python3 -I -S tool_host.py describe -- COMMAND [ARGUMENT...]

`serve` accepts clients on the listening unix socket FD and starts COMMAND for each, which speaks MCP (one JSON object a
line) on its standard streams. A tool that is withheld is left out of what the server lists, and a call of it is
answered with an error here. Every line is parsed and written anew: what two readers could take differently, such as a
key given twice, reaches the server as it was judged. Each event is printed as one line: {"event", "connection", "tool",
...}. `describe` starts COMMAND once, asks for its name and tools, and prints one object.

Runs on the system's Python 3.9 or newer with nothing but the standard library, and is imported by nobody. Exit codes:
2 wrong usage, 1 the server cannot be started or does not describe itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any, cast

__all__ = ["Client", "Log", "describe", "main", "message_of", "object_of", "serve", "start", "text_of"]

MAX_CLIENTS = 16
MAX_LINE_BYTES = 16 << 20
MAX_NAME_CHARACTERS = 200
BAD_USAGE, FAILED = 2, 1
REFUSED_CODE = -32602
PROTOCOL = "2025-06-18"


def text_of(value: object) -> str:
    """A name as it may be logged; anything else than text is shown as JSON."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:MAX_NAME_CHARACTERS]


def message_of(line: bytes) -> dict[str, Any] | None:
    """One message of the protocol; None for what is none."""
    try:
        message: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", message) if isinstance(message, dict) else None


def object_of(value: object) -> dict[str, Any]:
    """An object as it is, anything else as an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class Log:
    """Events, one line each, whole even when clients speak at the same time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def write(self, **event: object) -> None:
        """Print one event."""
        with self.lock:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()


class Client:
    """One client and the server process that answers it.

    Attributes:
        number: Which client, from 1.
        pending: What was asked, by the request's id as JSON: the method, and the tool of a call.
    """

    def __init__(
        self, number: int, connection: socket.socket, command: Sequence[str], withheld: set[str], log: Log
    ) -> None:
        self.number = number
        self.connection = connection
        self.withheld = withheld
        self.log = log
        self.pending: dict[str, tuple[str, str]] = {}
        self.sending = threading.Lock()
        self.server, self.questions, self.answers = start(command)

    def run(self) -> None:
        """Carry both directions until the client or the server ends."""
        self.log.write(event="opened", connection=self.number)
        answers = threading.Thread(target=self.carry_answers, daemon=True)
        answers.start()
        self.carry_questions()
        answers.join()
        code = self.server.wait()
        self.connection.close()
        self.log.write(event="closed", connection=self.number, exit_code=code)

    def carry_questions(self) -> None:
        """Client to server, until the client's end."""
        with contextlib.suppress(OSError), self.connection.makefile("rb") as lines:  # OSError: one of the two has gone
            while line := lines.readline(MAX_LINE_BYTES):
                message = self.judge_question(line)
                if message is not None:
                    tell(self.questions, message)
        with contextlib.suppress(OSError):
            self.questions.close()

    def judge_question(self, line: bytes) -> dict[str, Any] | None:
        """What goes on to the server; None for nothing."""
        message = message_of(line)
        if message is None:
            self.log.write(event="unreadable", connection=self.number)
            return None
        method, request = message.get("method"), message.get("id")
        if method == "tools/call":
            name = object_of(message.get("params")).get("name")
            tool = text_of(name)
            is_withheld = not isinstance(name, str) or name in self.withheld
            self.log.write(event="called", connection=self.number, tool=tool, withheld=is_withheld)
            if is_withheld:
                error = {"code": REFUSED_CODE, "message": f"there is no tool {tool}"}
                self.answer({"jsonrpc": "2.0", "id": request, "error": error})
                return None
            self.pending[json.dumps(request)] = ("tools/call", tool)
        elif method == "tools/list":
            self.pending[json.dumps(request)] = ("tools/list", "")
        return message

    def carry_answers(self) -> None:
        """Server to client, until the server's end."""
        try:
            while line := self.answers.readline(MAX_LINE_BYTES):
                self.judge_answer(line)
        except OSError:
            self.server.kill()  # nobody reads its answers any more
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def judge_answer(self, line: bytes) -> None:
        """Note what an answer says; take withheld tools out of a list."""
        message = message_of(line)
        if message is None:
            return  # what is no message has no place on this stream; its log belongs to standard error
        asked = None
        if "method" not in message and "id" in message:
            asked = self.pending.pop(json.dumps(message["id"]), None)
        result = object_of(message.get("result"))
        if asked is not None and asked[0] == "tools/call":
            is_error = not result or result.get("isError") is True
            self.log.write(event="answered", connection=self.number, tool=asked[1], is_error=is_error)
        elif asked is not None and isinstance(result.get("tools"), list):
            listed = [object_of(tool) for tool in cast("list[object]", result["tools"])]
            kept = [tool for tool in listed if tool.get("name") not in self.withheld]
            result["tools"] = kept
            self.log.write(event="listed", connection=self.number, tools=[text_of(tool.get("name")) for tool in kept])
        self.answer(message)

    def answer(self, message: dict[str, Any]) -> None:
        """Send one message to the client."""
        with self.sending:
            self.connection.sendall(json.dumps(message).encode() + b"\n")


def start(command: Sequence[str]) -> tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]:
    """Start a server; return it with what takes questions and what gives answers."""
    server = subprocess.Popen(list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if server.stdin is None or server.stdout is None:
        raise AssertionError("pipes were asked for")
    return server, server.stdin, server.stdout


def serve(listener: socket.socket, command: Sequence[str], withheld: set[str]) -> None:
    """Accept clients until the sandbox ends."""
    log, clients = Log(), list[threading.Thread]()
    number = 0
    while True:
        connection, _ = listener.accept()
        number += 1
        clients = [each for each in clients if each.is_alive()]
        if len(clients) >= MAX_CLIENTS:
            log.write(event="turned-away", connection=number)
            connection.close()
            continue
        client = Client(number, connection, command, withheld, log)
        clients.append(threading.Thread(target=client.run, daemon=True))
        clients[-1].start()


def describe(command: Sequence[str]) -> dict[str, object]:
    """Ask a server for its name and all its tools.

    Raises:
        ValueError: It answers otherwise than the protocol says, or not at all.
    """
    server, questions, answers = start(command)
    try:
        client = {"name": "fairtrial", "version": "1"}
        params: dict[str, object] = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}
        hello = ask(questions, answers, 1, "initialize", params)
        tell(questions, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools: list[str] = []
        number, cursor = 2, None
        while True:
            page = ask(questions, answers, number, "tools/list", {"cursor": cursor} if cursor else {})
            tools += [tool["name"] for tool in page["tools"]]
            number, cursor = number + 1, page.get("nextCursor")
            if not cursor:
                break
        info = hello["serverInfo"]
        return {
            "name": str(info["name"]),
            "version": str(info["version"]),
            "protocol": str(hello["protocolVersion"]),
            "tools": sorted(tools),
        }
    except (KeyError, TypeError, OSError) as problem:
        raise ValueError(f"not an answer of MCP: {type(problem).__name__}: {problem}") from problem
    finally:
        server.kill()
        server.wait()


def tell(stream: IO[bytes], message: dict[str, object]) -> None:
    """Send one message."""
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def ask(
    questions: IO[bytes], answers: IO[bytes], number: int, method: str, params: dict[str, object]
) -> dict[str, Any]:
    """Ask and wait for the result; notifications in between are passed over."""
    tell(questions, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    while line := answers.readline(MAX_LINE_BYTES):
        message = json.loads(line)
        if message.get("id") == number and "method" not in message:
            result: dict[str, Any] = message["result"]
            return result
    raise ValueError(f"it ended without an answer to {method}")


def main(arguments: Sequence[str]) -> int:
    """Serve or describe."""
    words = list(arguments)
    options, command = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    if command and options == ["describe"]:
        try:
            print(json.dumps(describe(command)))  # noqa: T201 - what it was asked for
        except (ValueError, OSError) as problem:
            os.write(2, f"tool_host: {problem}\n".encode("utf-8", "replace"))
            return FAILED
        return 0
    withheld = options[2:]
    if not command or options[:1] != ["serve"] or not "".join(options[1:2]).isdigit() or len(withheld) % 2:
        os.write(2, b"tool_host: usage: serve FD [--withhold TOOL]... -- COMMAND... | describe -- COMMAND...\n")
        return BAD_USAGE
    serve(socket.socket(fileno=int(options[1])), command, set(withheld[1::2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
