"""A context's tool server beside a session: in a sandbox of its own, reached by one unix socket.

The session has the socket and a bridge, a script that carries its standard streams there; it sees neither the index
nor the server. The server sees the session's tree, read-only, and can reach nothing else. What passes between them is
noted on the server's side, in a log that neither can write.
"""

import os
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, Self, cast

from fairtrial.bench.index import TOOL_HOST, BuiltIndex, FoundContext, Host, context_sandbox
from fairtrial.errors import HostError
from fairtrial.gateway.ledger import Ending, WireRow
from fairtrial.host.files import remove_tree, write_durably
from fairtrial.host.listener import listen_unix
from fairtrial.host.payload import payload_file
from fairtrial.host.sandbox import Sandbox, blame, start_sandbox
from fairtrial.model.agent import McpServer
from fairtrial.model.sandbox import Bind, Capture, Limits, SandboxState
from fairtrial.store.redact import Redactor
from fairtrial.store.strict_json import MalformedJsonError, parse_object

__all__ = ["OTHER", "ServerSeen", "ToolServer", "WireTools", "bridge_to", "read_log", "tool_markers", "wire_tools"]

SOCKET_ROOT: Final = "/run/tools"
BRIDGE: Final = "/opt/bridge/bridge.py"
SOCKET: Final = "s"
MOST_LOGGED_BYTES: Final = 64 << 20
PROCESSES: Final = 256
OTHER: Final = "(other)"
"""All names that are no tool of the server: a session can make up as many as it likes."""
_FIRST_PASSED_FD: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSeen:
    """What was seen of a tool server beside one session, on its own side. Tools that it has not are one, `OTHER`.

    Attributes:
        ended: How its sandbox ended: "stopped" when it lived as long as the session, "broken" when what an earlier
            session made of the tree kept it from starting.
        connections: Clients that it had.
        listed: Tools that it told a client of.
        calls: Calls that reached it, by tool.
        failed_calls: Calls that it answered with an error, by tool.
        refused_calls: Calls of tools that are withheld, by the name that was called.
    """

    ended: str
    connections: int
    listed: tuple[str, ...]
    calls: Mapping[str, int]
    failed_calls: Mapping[str, int]
    refused_calls: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireTools:
    """What the wire saw of a context's tools in some sessions.

    Attributes:
        offered: Those that the model was told of before it called them, by the server's name for them: in the request's
            list of tools, or by name in its text, as an agent does that keeps tools back until they are searched for.
        calls: Calls in whole replies, by tool.
    """

    offered: tuple[str, ...]
    calls: Mapping[str, int]


def bridge_to(context: str) -> McpServer:
    """How an agent is told of a context: a program inside its sandbox that speaks MCP."""
    return McpServer(name=context, argv=("/usr/bin/python3", "-I", "-S", BRIDGE, f"{SOCKET_ROOT}/{SOCKET}"))


class ToolServer:
    """One server for one session. Use as a context manager; leaving it ends the server.

    Attributes:
        sandbox: The server's; whoever waits for the session looks after it meanwhile.
        binds: What is mounted in the session's sandbox.
        files: What else the session's sandbox gets.
    """

    def __init__(self, found: FoundContext, built: BuiltIndex, host: Host, *, tree: Path) -> None:
        """Start it.

        Args:
            found: The context.
            built: Its index.
            host: What it is served with.
            tree: The session's tree.

        Raises:
            HostError: The socket or the sandbox cannot be made.
        """
        self._tools, self._host = built.server.tools, host
        with ExitStack() as stack:
            self._raw = host.scratch / f"q{secrets.token_hex(6)}"
            room = host.slot.root / f"c{secrets.token_hex(6)}"
            try:
                room.mkdir(mode=0o755)
                stack.callback(remove_tree, room)
                listener = listen_unix(room / SOCKET)
                self._sink: BinaryIO = stack.enter_context(self._raw.open("wb"))
                stack.callback(self._raw.unlink, missing_ok=True)
            except OSError as problem:
                raise HostError(f"{room}: {problem.strerror}; name a shorter place with --scratch DIR") from problem
            command = found.context.serve(found.installation)
            withheld = [word for tool in built.mutating for word in ("--withhold", tool)]
            words = ("/usr/bin/python3", "-I", "-S", TOOL_HOST, "serve", str(_FIRST_PASSED_FD), *withheld, "--")
            served = replace(command, argv=(*words, *command.argv))
            self._spec = replace(
                context_sandbox(found, served, tree=tree, index=built.directory(host.scratch)),
                pass_fds=(listener,),
                capture=Capture.SOCKET,
                limits=Limits(processes=PROCESSES, output_bytes=MOST_LOGGED_BYTES, wall_s=float(1 << 20)),
            )
            try:
                self.sandbox: Sandbox = stack.enter_context(
                    start_sandbox(self._spec, slot=host.slot, enforcement=host.enforcement, sink=self._sink)
                )
            finally:
                os.close(listener)  # with the server's own it is gone, and whoever calls is told so
            self._held = stack.pop_all()
        self.binds = (Bind(source=room, target=SOCKET_ROOT),)
        self.files = (payload_file(BRIDGE),)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def end(self, log: Path, redactor: Redactor) -> ServerSeen:
        """End it, keep its log without secrets, and read that: names of tools are what the session made of them.

        Raises:
            HostError: It never started, and not for what sessions made of the tree.
            OSError: The log cannot be kept.
        """
        host = self._host
        result = blame(self.sandbox.stop(), self._spec, slot=host.slot, enforcement=host.enforcement)
        if result.state is SandboxState.START_FAILURE:
            raise HostError(f"the context's server could not be started: {result.detail}")
        self._sink.flush()
        seen = redactor.redact(self._raw.read_bytes())
        write_durably(log, seen, mode=0o644)
        self._held.close()
        return read_log(seen.splitlines(), tools=self._tools, ended=str(result.state))


def read_log(lines: Iterable[bytes], *, tools: Collection[str], ended: str) -> ServerSeen:
    """Sum up the events that a tool host printed, by the server's own tools; its last line may be torn."""
    known = {tool: tool for tool in tools}
    connections, listed = 0, set[str]()
    counts = {kind: Counter[str]() for kind in ("calls", "failed", "refused")}
    for line in lines:
        try:
            event = parse_object(line)
        except MalformedJsonError:
            continue
        tool, listing = known.get(str(event.get("tool")), OTHER), event.get("tools")
        match event.get("event"):
            case "opened":
                connections += 1
            case "listed" if isinstance(listing, list):
                listed.update(known.get(str(each), OTHER) for each in cast("list[object]", listing))
            case "called":
                counts["refused" if event.get("withheld") is True else "calls"][tool] += 1
            case "answered" if event.get("is_error") is True:
                counts["failed"][tool] += 1
            case _:
                pass
    return ServerSeen(
        ended=ended,
        connections=connections,
        listed=tuple(sorted(listed)),
        calls=dict(counts["calls"]),
        failed_calls=dict(counts["failed"]),
        refused_calls=dict(counts["refused"]),
    )


def tool_markers(context: str, tools: Iterable[str]) -> tuple[str, ...]:
    """What names a context's tools in the text of a request, in the ways that agents write them."""
    return tuple(text for tool in tools for text in (f"mcp__{context}__{tool}", f"{context}_{tool}"))


def wire_tools(rows: Sequence[WireRow], context: str, tools: Iterable[str]) -> WireTools:
    """What the wire says of a context's tools; pure.

    Agents write server and tool together in ways of their own: `mcp__ctags__find_symbol`, `mcp__ctags.find_symbol`,
    `mcp_ctags_find_symbol`, `ctags_find_symbol`.
    """
    by_wire_name = {f"{prefix}{_plain(context)}_{_plain(tool)}": tool for tool in tools for prefix in ("", "mcp_")}
    offered: set[str] = set()
    calls: Counter[str] = Counter()
    for row in rows:
        told = {by_wire_name[name] for name in map(_plain, (*row.tools, *row.markers)) if name in by_wire_name}
        offered |= told - calls.keys()  # what it called stands in its later requests by that alone
        if row.ending is Ending.ANSWERED:
            names = [_plain(call.name) for call in row.tool_calls if not call.is_partial]
            calls.update(by_wire_name[name] for name in names if name in by_wire_name)
    return WireTools(offered=tuple(sorted(offered)), calls=dict(sorted(calls.items())))


def _plain(name: str) -> str:
    return name.replace("__", "_").replace(".", "_").replace("-", "_")
