"""Ways to make Anthropic fetch the answer for the model: each is refused by name and place (ARCHITECTURE §6)."""

from typing import Any

import pytest

from fairtrial.gateway.dialect import Refusal
from fairtrial.gateway.dialects import DIALECTS, find_route
from fairtrial.gateway.egress import check_request

DIALECT = DIALECTS["anthropic-messages"]


def check(*, grants: tuple[str, ...] = (), **parts: object) -> list[tuple[str, str]]:
    route = DIALECT.route("POST", "/v1/messages")
    assert route is not None
    body: dict[str, Any] = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [], **parts}
    found: tuple[Refusal, ...] = check_request(DIALECT, route, body, grants=grants)
    return [(each.grant, each.path) for each in found]


def said(*blocks: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": list(blocks)}]}


def test_what_claude_code_sends_passes() -> None:
    cache = {"type": "ephemeral", "ttl": "1h"}
    assert not check(
        stream=True,
        system=[{"type": "text", "text": "See https://example.org/", "cache_control": cache}],
        tools=[
            {"name": "Bash", "description": "d", "input_schema": {"type": "object"}, "eager_input_streaming": True},
            {"name": "WebFetch", "input_schema": {"type": "object"}},
            {"type": "custom", "name": "x", "input_schema": {}, "defer_loading": True},
            {"type": "bash_20250124", "name": "bash"},
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
            {"type": "memory_20250818", "name": "memory"},
            {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
        ],
        tool_choice={"type": "auto"},
        metadata={"user_id": "u"},
        thinking={"type": "adaptive"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": {}}},
        temperature=1,
        mcp_servers=None,
        messages=[
            {"role": "user", "content": "fetch https://example.org/answer"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "ok"},
                    {"type": "tool_use", "id": "a", "name": "Bash", "input": {"url": "https://x", "type": "url"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "out"}]},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}},
                ],
            },
        ],
    )


@pytest.mark.parametrize(
    ("kind", "grant"),
    [
        ("web_search_20250305", "web-search"),
        ("web_search_20260318", "web-search"),
        ("web_fetch_20250910", "web-fetch"),
        ("code_execution_20250825", "code-execution"),
        ("mcp_toolset", "mcp"),
        ("advisor_20260301", "advisor"),
        ("teleport_20991231", "tool:teleport_20991231"),
        ("bash_20250124\n", "tool:bash_20250124?"),
        ("BASH_20250124", "tool:BASH_20250124"),
        ("", "tool:"),
        (7, "tool:of type int"),
        (["custom"], "tool:of type list"),
    ],
)
def test_a_tool_that_runs_at_the_provider_or_is_unknown_is_refused(kind: object, grant: str) -> None:
    assert check(tools=[{"name": "ok", "input_schema": {}}, {"type": kind, "name": "n"}]) == [(grant, "tools[1]")]


def test_an_arm_may_grant_a_tool_by_name_and_gets_nothing_else_with_it() -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}, {"type": "web_fetch_20250910", "name": "web_fetch"}]
    assert check(tools=tools, grants=("web-search",)) == [("web-fetch", "tools[1]")]


def test_a_refusal_says_where_what_and_the_remedy() -> None:
    route = DIALECT.route("POST", "/v1/messages")
    assert route is not None
    body: dict[str, object] = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    (refusal,) = DIALECT.check(route, body)
    assert refusal.message == (
        "tools[0]: hosted tool 'web_search_20250305' could fetch from outside; "
        "leave it out, or grant 'web-search' to the arm"
    )


def test_tools_that_are_no_list_are_refused_in_case_a_server_reads_them_all_the_same() -> None:
    assert check(tools={"type": "web_search_20250305"}) == [("field:tools", "tools")]
    assert check(tools=["web_search_20250305"]) == [("tool:of type NoneType", "tools[0]")]
    assert check(messages={"role": "user"}) == [("field:messages", "messages")]


@pytest.mark.parametrize(
    ("key", "value", "grant"),
    [
        ("mcp_servers", [{"type": "url", "url": "https://evil.example", "name": "x"}], "mcp"),
        ("container", "container_0123", "container"),
        ("container", {"skills": [{"type": "anthropic", "skill_id": "pdf"}]}, "container"),
        ("fallbacks", [{"model": "other"}], "other-model"),
        ("thread", {"type": "continue", "previous_message_id": "msg_1"}, "stored-id"),
        ("web_search_options", {}, "field:web_search_options"),
        ("something_new", False, "field:something_new"),
    ],
)
def test_a_key_that_could_fetch_or_is_unknown_is_refused(key: str, value: object, grant: str) -> None:
    assert check(**{key: value}) == [(grant, key)]


@pytest.mark.parametrize("kind", ["image", "document"])
@pytest.mark.parametrize(
    ("source", "grant"),
    [
        ({"type": "url", "url": "https://evil.example/answer"}, "remote-url"),
        ({"type": "url", "url": " data:text/plain,x"}, "remote-url"),
        ({"type": "url"}, "remote-url"),
        ({"type": "file", "file_id": "file_1"}, "file-id"),
        ({"type": "gcs", "uri": "gs://x"}, "content:gcs"),
        (None, "content:of type NoneType"),
        ("https://evil.example", "content:of type NoneType"),
    ],
)
def test_a_source_outside_the_request_is_refused_wherever_it_nests(kind: str, source: object, grant: str) -> None:
    block = {"type": kind, "source": source}
    place = "messages[1].content"
    assert check(**said(block)) == [(grant, f"{place}[0].source")]
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}, block]}
    assert check(**said(result)) == [(grant, f"{place}[0].content[1].source")]
    inside = {"type": "document", "source": {"type": "content", "content": [block]}}
    assert check(**said(inside)) == [(grant, f"{place}[0].source.content[0].source")]
    assert check(system=[block]) == [(grant, "system[0].source")]


def test_a_data_url_is_part_of_the_request() -> None:
    assert not check(**said({"type": "image", "source": {"type": "url", "url": "data:image/png;base64,AA=="}}))


@pytest.mark.parametrize(
    ("block", "grant"),
    [
        ({"type": "container_upload", "file_id": "file_1"}, "file-id"),
        ({"type": "server_tool_use", "name": "web_search", "id": "s", "input": {}}, "web-search"),
        ({"type": "server_tool_use", "name": "bash_code_execution", "id": "s", "input": {}}, "code-execution"),
        ({"type": "web_fetch_tool_result", "content": {}}, "web-fetch"),
        ({"type": "mcp_tool_use", "server_name": "x"}, "mcp"),
        ({"type": "mcp_tool_listing", "mcp_server_name": "x"}, "mcp"),
        ({"type": "brand_new"}, "content:brand_new"),
        ({"text": "no type"}, "content:of type NoneType"),
        ("text", "content:of type NoneType"),
    ],
)
def test_content_that_stands_for_hosted_work_or_is_unknown_is_refused(block: object, grant: str) -> None:
    assert check(**said(block)) == [(grant, "messages[1].content[0]")]


def test_a_tool_that_is_added_in_the_middle_of_a_conversation_is_checked_like_any_other() -> None:
    def added(tool: object) -> list[tuple[str, str]]:
        return check(**said({"type": "tool_addition", "tool": tool}))

    assert not added({"type": "tool_definition", "definition": {"name": "x", "input_schema": {}}})
    assert not added({"type": "tool_reference", "tool_name": "x"})
    hosted = {"type": "tool_definition", "definition": {"type": "web_search_20250305", "name": "web_search"}}
    assert added(hosted) == [("web-search", "messages[1].content[0].tool.definition")]
    assert added({"type": "mcp_toolset_reference"}) == [("mcp", "messages[1].content[0].tool")]
    assert added({"type": "tool_definition"}) == [("tool:of type NoneType", "messages[1].content[0].tool.definition")]


def test_content_in_one_piece_that_is_no_list_is_checked_too() -> None:
    block = {"type": "image", "source": {"type": "url", "url": "https://evil.example"}}
    assert check(messages=[{"role": "user", "content": block}]) == [("remote-url", "messages[0].content[0].source")]


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/files"),
        ("GET", "/v1/files/file_1/content"),
        ("POST", "/v1/messages/../files"),
        ("POST", "/v1/messages%2Fbatches"),
        ("POST", "//v1/messages"),
        ("POST", "/v1/messages/"),
        ("POST", "/v1/messages?beta=true&x=1"),
        ("PUT", "/v1/messages"),
        ("POST", "https://evil.example/v1/messages"),
        ("CONNECT", "api.anthropic.com:443"),
        ("POST", "/v1/agents"),
        ("POST", "/v1/skills"),
        ("POST", "/v1/complete"),
        ("GET", "/api/web/domain_info?domain=x"),
        ("POST", "/V1/messages"),
    ],
)
def test_no_other_path_of_the_provider_is_reachable(method: str, target: str) -> None:
    assert find_route(method, target) is None
