"""Tool servers: each agent that speaks MCP starts one inside its sandbox and uses it."""

from collections.abc import Callable
from typing import Any

import pytest

from fairtrial.model.agent import McpServer

pytestmark = pytest.mark.needs("bwrap", "git")

Drive = Callable[..., Any]
Usage = Callable[..., dict[str, int]]

MCP = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answers = {
        "initialize": lambda: {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                               "serverInfo": {"name": "t", "version": "1"}},
        "tools/list": lambda: {"tools": [{"name": "ping", "description": "ping",
                                          "inputSchema": {"type": "object", "properties": {}}}]},
        "tools/call": lambda: {"content": [{"type": "text", "text": "PONG"}]},
    }
    result = answers.get(asked["method"], dict)()
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize(
    ("agent", "tool", "namespace"),
    [
        pytest.param("claude-code", "mcp__t__ping", None, marks=pytest.mark.needs("claude")),
        pytest.param("codex", "ping", "mcp__t", marks=pytest.mark.needs("codex")),
        pytest.param("opencode", "t_ping", None, marks=pytest.mark.needs("opencode", "rg")),
        pytest.param("gemini-cli", "mcp_t_ping", None, marks=pytest.mark.needs("gemini")),
    ],
)
def test_a_tool_server_is_started_and_answers(
    agent: str, tool: str, namespace: str | None, drive: Drive, usage: Usage
) -> None:
    server = McpServer(name="t", argv=("/usr/bin/python3", "-I", "-S", "-c", MCP))
    call = {"tool": tool, "input": {}} | ({"namespace": namespace} if namespace else {})
    turns = [{"calls": [call], "usage": usage(1)}, {"text": "Done.", "usage": usage(2)}]
    title = {"name": "title", "match": {"tools": "none"}, "turns": [{"text": "A title"}]}
    session = drive(agent, [title, {"name": "main", "turns": turns}], mcp=(server,))
    assert session.result.returncode == 0, session.stdout
    (result,) = session.rows[-1].tool_results
    assert result.is_error is not True
    assert b"PONG" in session.stdout
