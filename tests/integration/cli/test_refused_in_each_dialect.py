"""What a session tries and must not have stands in its trial's row, whichever model API it speaks.

An agent for each of the other dialects, from a distribution of the test's own: its program asks the model once, in good
order, and then for everything that would bring the answer from outside. `test_bench_on_the_wire` does so for Messages.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(500), pytest.mark.xdist_group("each-dialect")]

Sweep = Any
Row = dict[str, Any]
Json = dict[str, Any]

AGENTS: Final = """
from fairtrial.agents.nop import Nop
from fairtrial.agents.sessions import base_environment
from fairtrial.model.agent import AgentProbe, Installation, Report, SessionPlan
from pathlib import Path

PYTHON = "/usr/bin/python3"


class Asker(Nop):
    def probe(self):
        return AgentProbe(
            binary=PYTHON, version="1", details={}, missing=None, installation=Installation(argv=(PYTHON, "-I", "-S", "-"))
        )

    def session(self, request, installation):
        return SessionPlan(
            argv=installation.argv,
            env=base_environment(request, installation) | {"URL": request.endpoint, "TOKEN": request.token},
            stdin=Path(__file__).with_name(self.dialect.replace("-", "_") + "_program.py").read_bytes(),
            cwd=request.workspace,
        )

    def read_report(self, lines):
        return Report(ended=b"asked" in b"".join(lines))


class Chat(Asker):
    dialect = "openai-chat"


class Responses(Asker):
    dialect = "openai-responses"


class Gemini(Asker):
    dialect = "gemini"
"""  # noqa: E501 - a program
POINTS: Final = (
    "[fairtrial.agents]\nask-chat = asker:Chat\nask-responses = asker:Responses\nask-gemini = asker:Gemini\n"
)

# Begins each program; what follows are the calls of `ask`. A refusal is an answer, and the program goes on.
ASK: Final = r"""
import json, os, pathlib, urllib.error, urllib.request
calc = pathlib.Path("calc.py")
calc.write_text(calc.read_text().replace("a - b", "a + b"))
def ask(status, path, body, method="POST", **headers):
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    headers = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    if not {"authorization", "x-goog-api-key", "x-api-key"} & headers.keys():
        headers["authorization"] = "Bearer " + os.environ["TOKEN"]
    request = urllib.request.Request(os.environ["URL"] + path, data if method == "POST" else None, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            reply.read()
            got = reply.status
    except urllib.error.HTTPError as problem:
        problem.read()
        got = problem.code
    assert got == status, (path, body, got)
"""  # noqa: E501 - a program
OTHER: Final = "fairtrial-another-trials-token"
DEEP: Final = '{"a": ' + "[" * 300 + "]" * 300 + "}"

CHAT: Final[Json] = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}
RESPONSES: Final[Json] = {"model": "gpt-5", "input": "hi", "store": False}
GEMINI: Final[Json] = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
MESSAGES: Final[Json] = {"model": "gpt-5", "max_tokens": 9, "messages": []}
PATHS: Final = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-2.5-pro:generateContent",
}
PLAIN: Final = {"chat": CHAT, "responses": RESPONSES, "gemini": GEMINI}
NAMES: Final = {"chat": "openai-chat", "responses": "openai-responses", "gemini": "gemini"}


def in_chat(part: Json) -> Json:
    return {"messages": [{"role": "user", "content": [part]}]}


def in_responses(part: Json) -> Json:
    return {"input": [{"role": "user", "content": [part]}]}


def in_gemini(part: Json) -> Json:
    return {"contents": [{"role": "user", "parts": [part]}]}


IMAGE: Final = "https://example.org/fix.png"
FETCHING: Final[dict[str, list[tuple[Json, str]]]] = {
    "chat": [
        ({"tools": [{"type": "web_search"}]}, "web-search tools[0]"),
        ({"tools": [{"type": "code_interpreter"}]}, "code-execution tools[0]"),
        ({"web_search_options": {}}, "web-search web_search_options"),
        ({"mcp_servers": [{"url": "https://example.org"}]}, "mcp mcp_servers"),
        (
            in_chat({"type": "image_url", "image_url": {"url": IMAGE}}),
            "remote-url messages[0].content[0].image_url.url",
        ),
        (
            in_chat({"type": "file", "file": {"file_id": "file-1"}}),
            "file-id messages[0].content[0].file.file_id",
        ),
        (
            {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]},
            "stored-id messages[0].audio",
        ),
        ({"models": ["gpt-5", "gpt-5-mini"]}, "other-model models"),
    ],
    "responses": [
        ({"tools": [{"type": "web_search"}]}, "web-search tools[0]"),
        ({"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "file-search tools[0]"),
        ({"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}, "code-execution tools[0]"),
        ({"tools": [{"type": "mcp", "connector_id": "connector_gmail"}]}, "mcp tools[0]"),
        (in_responses({"type": "input_image", "image_url": IMAGE}), "remote-url input[0].content[0].image_url"),
        (in_responses({"type": "input_file", "file_id": "file-1"}), "file-id input[0].content[0].file_id"),
        ({"previous_response_id": "resp_1"}, "stored-id previous_response_id"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "stored-id input[0]"),
        ({"background": True}, "background background"),
    ],
    "gemini": [
        ({"tools": [{"google_search": {}}]}, "web-search tools[0]"),
        ({"tools": [{"urlContext": {}}]}, "web-fetch tools[0]"),
        ({"tools": [{"codeExecution": {}}]}, "code-execution tools[0]"),
        ({"tools": [{"mcpServers": [{"name": "x"}]}]}, "mcp tools[0]"),
        (in_gemini({"fileData": {"fileUri": IMAGE}}), "remote-url contents[0].parts[0].fileData"),
        (in_gemini({"file_data": {"file_uri": "files/1"}}), "remote-url contents[0].parts[0].fileData"),
        ({"cachedContent": "cachedContents/1"}, "stored-id cachedContent"),
    ],
}
STORED: Final = {
    "chat": "/v1/chat/completions/chatcmpl-1",
    "responses": "/v1/responses/resp_1",
    "gemini": "/v1beta/cachedContents/1",
}


def program(dialect: str) -> str:
    """One good request, then every attempt, each with the status that it must get."""
    path, plain = PATHS[dialect], PLAIN[dialect]
    text = json.dumps(plain)
    name = next(iter(plain))
    twice = f"{text[:-1]}, {json.dumps(name)}: {json.dumps(plain[name])}}}"
    other_model = {**plain, "model": "gpt-5-mini"}
    asked: list[tuple[int, str, Json | str, Json]] = [
        (200, path, plain, {}),
        *((400, path, {**plain, **more}, {}) for more, _ in FETCHING[dialect]),
        (400, path, twice, {}),
        (400, path, DEEP, {}),
        (400, path, plain, {"content_encoding": "br"}),
        (404, path.replace("-pro:", "-flash:"), plain if dialect == "gemini" else other_model, {}),
        (401, path, plain, {"authorization": f"Bearer {OTHER}"}),
        (404, "/v1/files", {}, {}),
        (404, STORED[dialect], {}, {"method": "GET"}),
        (404, "/v1/messages", MESSAGES, {}),
    ]
    lines = [f"ask({status}, {place!r}, {body!r}, **{more!r})" for status, place, body, more in asked]
    return "\n".join([ASK, *lines, 'print("asked")', ""])


def read_lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def rows(shared_sweep: Sweep) -> dict[str, Row]:
    """The one row of each arm; an arm has the name of what it speaks."""
    site = shared_sweep.root / "site"
    information = site / "asker-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: asker\nVersion: 1\n")
    (information / "entry_points.txt").write_text(POINTS)
    (site / "asker.py").write_text(AGENTS)
    for dialect, name in NAMES.items():
        (site / f"{name.replace('-', '_')}_program.py").write_text(program(dialect))
    turn = {"text": "Done.", "usage": {"uncached_input": 100, "output": 10}}
    script = shared_sweep.write_script([{"name": "any", "turns": [turn], "beyond": "repeat"}])
    arms = shared_sweep.write_arms(
        {
            dialect: {
                "phases": [{"prompt": "{task}"}],
                "agent": f"ask-{dialect}",
                "model": "gemini-2.5-pro" if dialect == "gemini" else "gpt-5",
            }
            for dialect in PATHS
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(site)])))
        words = ("--runs", 1, "--workers", 2, "--arms-file", arms, "--script", script)
        done = shared_sweep.run(*words, arms=",".join(PATHS))
    rows = {row["arm"]: row for row in shared_sweep.rows}
    assert rows.keys() == PATHS.keys(), done.stderr
    return rows


@pytest.mark.parametrize("dialect", PATHS)
def test_the_session_got_the_answers_that_it_must_get_and_its_work_counts(rows: dict[str, Row], dialect: str) -> None:
    row = rows[dialect]
    assert (row["error_kind"], row["resolved"]) == (None, True), row["error_detail"]
    assert (row["input_tokens"], row["output_tokens"], row["wire"]["requests"]) == (100, 10, 1), "nothing else went out"


@pytest.mark.parametrize("dialect", PATHS)
def test_every_refused_attempt_stands_in_the_row(rows: dict[str, Row], dialect: str) -> None:
    wire = rows[dialect]["wire"]
    assert wire["egress_refused"] == [place for _, place in FETCHING[dialect]]
    n_fetching = len(FETCHING[dialect])
    assert wire["refused"] == {"egress": n_fetching, "body": 3, "model": 1, "token": 1, "path": 2, "dialect": 1}
    assert wire["other_models"] == []


@pytest.mark.parametrize("dialect", PATHS)
def test_the_wire_log_has_a_line_for_each_attempt(shared_sweep: Sweep, rows: dict[str, Row], dialect: str) -> None:
    trial = str(rows[dialect]["key"])
    logs = [read_lines(path) for path in shared_sweep.out.glob("trials/*/*/wire-work.jsonl")]
    (log,) = (log for log in logs if log[0]["trial"].startswith(f"{trial}#"))
    requests = [line for line in log if line.get("kind") != "begun"]
    n_fetching = len(FETCHING[dialect])
    assert [request["refusal"] for request in requests] == [
        *(None, *["egress"] * n_fetching, "body", "body", "body", "model", "token", "path", "path", "dialect")
    ]
    assert [tuple(request["refused"]) for request in requests[1 : 1 + n_fetching]] == [
        (place,) for _, place in FETCHING[dialect]
    ]
    assert [request["path"] for request in requests[-3:]] == ["/v1/files", STORED[dialect], "/v1/messages"]
    assert {request["dialect"] for request in requests[: 1 + n_fetching]} == {NAMES[dialect]}
