"""Ways to make the Responses API fetch the answer for the model: each is refused by name and place."""

from typing import Any

import pytest

from fairtrial.gateway.dialects import DIALECTS, find_route
from fairtrial.gateway.egress import check_request

DIALECT = DIALECTS["openai-responses"]


def check(*, grants: tuple[str, ...] = (), **parts: object) -> list[tuple[str, str]]:
    route = DIALECT.route("POST", "/v1/responses")
    assert route is not None
    body: dict[str, Any] = {"model": "gpt-5", "input": [], **parts}
    return [(each.grant, each.path) for each in check_request(DIALECT, route, body, grants=grants)]


def test_what_codex_sends_passes() -> None:
    function = {"type": "function", "name": "exec_command", "strict": False, "parameters": {}}
    assert not check(
        instructions="You are codex. See https://example.org",
        tools=[
            function,
            {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark"}},
            {"type": "local_shell"},
            {"type": "namespace", "name": "multi_agent_v1", "description": "d", "tools": [function]},
            {"type": "tool_search", "execution": "client", "description": "d", "parameters": {}},
            {"type": "shell", "environment": {"type": "local"}},
        ],
        tool_choice="auto",
        parallel_tool_calls=True,
        reasoning={"effort": "high", "summary": "auto"},
        store=False,
        stream=True,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="k",
        text={"verbosity": "low"},
        client_metadata={"thread_id": "t"},
        service_tier="auto",
        previous_response_id=None,
        input=[
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "t"}]},
            {"role": "user", "content": "plain"},
            {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "t"}]},
            {"type": "function_call", "call_id": "a", "name": "exec_command", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "out"},
            {"type": "custom_tool_call", "call_id": "b", "name": "apply_patch", "input": "p"},
            {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "x"}]},
            {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": []}},
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA==", "file_id": None}],
            },
            {"type": "tool_search_output", "call_id": "d", "tools": [function]},
            {"type": "compaction", "encrypted_content": "x"},
        ],
    )
    assert not check(input="a plain prompt with https://example.org")


@pytest.mark.parametrize(
    ("tool", "grant"),
    [
        ({"type": "web_search"}, "web-search"),
        ({"type": "web_search", "external_web_access": False}, "web-search"),
        ({"type": "web_search_preview_2025_03_11"}, "web-search"),
        ({"type": "file_search", "vector_store_ids": ["v"]}, "file-search"),
        ({"type": "code_interpreter", "container": {"type": "auto"}}, "code-execution"),
        ({"type": "programmatic_tool_calling"}, "code-execution"),
        ({"type": "image_generation"}, "image-generation"),
        ({"type": "mcp", "server_label": "x", "server_url": "https://evil.example"}, "mcp"),
        ({"type": "mcp", "connector_id": "connector_gmail"}, "mcp"),
        ({"type": "shell"}, "code-execution"),
        ({"type": "shell", "environment": {"type": "container_auto"}}, "code-execution"),
        ({"type": "shell", "environment": {"type": "container_reference", "container_id": "c"}}, "code-execution"),
        ({"type": "brand_new"}, "tool:brand_new"),
        ({"name": "x"}, "tool:of type NoneType"),
    ],
)
def test_a_tool_that_is_not_the_clients_own_is_refused_wherever_it_is_offered(tool: object, grant: str) -> None:
    assert check(tools=[tool]) == [(grant, "tools[0]")]
    assert check(tools=[{"type": "namespace", "name": "n", "tools": [tool]}]) == [(grant, "tools[0].tools[0]")]
    for kind in ("additional_tools", "tool_search_output"):
        assert check(input=[{"type": kind, "tools": [tool]}]) == [(grant, "input[0].tools[0]")]


@pytest.mark.parametrize(
    ("key", "value", "grant"),
    [
        ("previous_response_id", "resp_1", "stored-id"),
        ("conversation", "conv_1", "stored-id"),
        ("conversation", {"id": "conv_1"}, "stored-id"),
        ("prompt", {"id": "pmpt_1"}, "stored-id"),
        ("background", True, "background"),
        ("background", "yes", "background"),
        ("plugins", [], "web-search"),
        ("something_new", 1, "field:something_new"),
    ],
)
def test_a_key_that_could_fetch_or_is_unknown_is_refused(key: str, value: object, grant: str) -> None:
    assert check(**{key: value}) == [(grant, key)]


def test_an_answer_in_the_foreground_passes() -> None:
    assert not check(background=False)


@pytest.mark.parametrize(
    ("item", "grant"),
    [
        ({"type": "item_reference", "id": "msg_1"}, "stored-id"),
        ({"id": "msg_1"}, "stored-id"),
        ({"type": None, "id": "msg_1"}, "stored-id"),
        ({"type": "mcp_approval_response", "approve": True}, "mcp"),
        ({"type": "mcp_list_tools", "server_label": "x"}, "mcp"),
        ({"type": "web_search_call", "id": "ws_1"}, "web-search"),
        ({"type": "file_search_call", "id": "fs_1"}, "file-search"),
        ({"type": "code_interpreter_call", "container_id": "c"}, "code-execution"),
        ({"type": "program", "code": "x"}, "code-execution"),
        ({"type": "image_generation_call", "id": "ig_1"}, "image-generation"),
        ({"type": "brand_new"}, "content:brand_new"),
        ("text", "stored-id"),
    ],
)
def test_an_item_that_stands_for_something_stored_hosted_or_unknown_is_refused(item: object, grant: str) -> None:
    assert check(input=[item]) == [(grant, "input[0]")]


@pytest.mark.parametrize(
    ("part", "grant", "place"),
    [
        ({"type": "input_image", "image_url": "https://evil.example/a.png"}, "remote-url", "image_url"),
        ({"type": "input_image", "file_id": "file-1"}, "file-id", "file_id"),
        ({"type": "input_file", "file_url": "https://evil.example/a.pdf"}, "remote-url", "file_url"),
        ({"type": "input_file", "file_id": "file-1"}, "file-id", "file_id"),
        ({"type": "computer_screenshot", "image_url": "http://169.254.169.254/"}, "remote-url", "image_url"),
    ],
)
def test_content_outside_the_request_is_refused_in_messages_and_results(part: object, grant: str, place: str) -> None:
    message = {"type": "message", "role": "user", "content": [part]}
    assert check(input=[message]) == [(grant, f"input[0].content[0].{place}")]
    for kind in ("function_call_output", "custom_tool_call_output"):
        assert check(input=[{"type": kind, "call_id": "a", "output": [part]}]) == [
            (grant, f"input[0].output[0].{place}")
        ]
    screenshot = {"type": "computer_call_output", "call_id": "a", "output": part}
    assert check(input=[screenshot]) == [(grant, f"input[0].output.{place}")]


def test_an_input_that_is_neither_text_nor_list_is_refused() -> None:
    assert check(input={"type": "item_reference", "id": "msg_1"}) == [("field:input", "input")]


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("GET", "/v1/responses/resp_1/input_items"),
        ("POST", "/v1/responses/compact"),
        ("POST", "/v1/responses?x=1"),
        ("POST", "/v1/conversations"),
        ("POST", "/v1/containers"),
        ("GET", "/v1/containers/c/files/f/content"),
        ("POST", "/v1/files"),
    ],
)
def test_no_other_path_of_the_provider_is_reachable(method: str, target: str) -> None:
    assert find_route(method, target) is None
