"""Ways to make a Chat Completions server fetch the answer for the model: each is refused by name and place."""

from typing import Any

import pytest

from fairtrial.gateway.dialects import DIALECTS, find_route
from fairtrial.gateway.egress import check_request

DIALECT = DIALECTS["openai-chat"]


def check(*, grants: tuple[str, ...] = (), **parts: object) -> list[tuple[str, str]]:
    route = DIALECT.route("POST", "/v1/chat/completions")
    assert route is not None
    body: dict[str, Any] = {"model": "gpt-5", "messages": [], **parts}
    return [(each.grant, each.path) for each in check_request(DIALECT, route, body, grants=grants)]


def said(part: object) -> list[tuple[str, str]]:
    return check(messages=[{"role": "user", "content": [{"type": "text", "text": "see https://x"}, part]}])


def test_what_opencode_and_mini_swe_agent_send_passes() -> None:
    assert not check(
        stream=True,
        stream_options={"include_usage": True},
        max_tokens=9,
        temperature=0.0,
        top_p=1,
        tool_choice="auto",
        parallel_tool_calls=True,
        reasoning_effort="high",
        tools=[
            {"type": "function", "function": {"name": "web_search", "parameters": {}}},
            {"type": "custom", "custom": {"name": "x"}},
        ],
        web_search_options=None,
        messages=[
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "t"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
            {
                "role": "user",
                "content": [{"type": "file", "file": {"filename": "a", "file_data": "data:a/b;base64,A"}}],
            },
            {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [{"id": "a"}]},
            {"role": "tool", "tool_call_id": "a", "content": "out"},
        ],
    )


@pytest.mark.parametrize(
    ("tool", "grant"),
    [
        ({"type": "web_search"}, "web-search"),
        ({"type": "web_search_preview"}, "web-search"),
        ({"type": "openrouter:web_search"}, "web-search"),
        ({"type": "browser_search"}, "web-search"),
        ({"type": "code_interpreter"}, "code-execution"),
        ({"type": "mcp", "server_url": "https://evil.example"}, "mcp"),
        ({"type": "local_shell"}, "tool:local_shell"),
        ({"type": "builtin_function"}, "tool:builtin_function"),
        ({"function": {"name": "x"}}, "tool:of type NoneType"),
        ("web_search", "tool:of type NoneType"),
    ],
)
def test_a_tool_that_is_not_the_clients_own_is_refused(tool: object, grant: str) -> None:
    assert check(tools=[tool]) == [(grant, "tools[0]")]


@pytest.mark.parametrize(
    ("key", "value", "grant"),
    [
        ("web_search_options", {}, "web-search"),
        ("plugins", [{"id": "web"}], "web-search"),
        ("search_parameters", {"mode": "on"}, "web-search"),
        ("models", ["a", "b"], "other-model"),
        ("route", "fallback", "other-model"),
        ("provider", {"order": ["x"]}, "other-model"),
        ("previous_response_id", "resp_1", "stored-id"),
        ("transforms", [], "field:transforms"),
        ("extra_body", {"plugins": []}, "field:extra_body"),
        ("tools ", [], "field:tools "),
    ],
)
def test_a_key_that_could_fetch_or_is_unknown_is_refused(key: str, value: object, grant: str) -> None:
    assert check(**{key: value}) == [(grant, key)]


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4o-search-preview",
        "gpt-4o-mini-search-preview-2025-03-11",
        "gpt-5-search-api",
        "openai/gpt-5:online",
        "openai/gpt-5:ONLINE",
        "o3-deep-research",
        "sonar-pro",
        "perplexity/sonar",
        "groq/compound-mini",
    ],
)
def test_a_model_that_searches_by_itself_is_refused(model: str) -> None:
    assert check(model=model) == [("web-search", "model")]
    assert not check(model=model, grants=("web-search",))


@pytest.mark.parametrize(
    ("part", "grant", "place"),
    [
        ({"type": "image_url", "image_url": {"url": "https://evil.example/a.png"}}, "remote-url", "image_url.url"),
        ({"type": "image_url", "image_url": {"url": "HTTPS://evil.example"}}, "remote-url", "image_url.url"),
        ({"type": "image_url", "image_url": "https://evil.example"}, "remote-url", "image_url"),
        ({"type": "video_url", "video_url": {"url": "https://youtu.be/x"}}, "remote-url", "video_url.url"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "file-id", "file.file_id"),
        ({"type": "file", "file": {"file_data": "https://evil.example/a.pdf"}}, "remote-url", "file.file_data"),
        ({"type": "input_audio", "input_audio": {"data": "https://e/x.wav"}}, "remote-url", "input_audio.data"),
        ({"type": "image_url", "image_url": {"url": ["https://x"]}}, "remote-url", "image_url.url"),
    ],
)
def test_content_outside_the_request_is_refused(part: object, grant: str, place: str) -> None:
    assert said(part) == [(grant, f"messages[0].content[1].{place}")]


@pytest.mark.parametrize("part", [{"type": "document_url", "document_url": "https://x"}, {"type": "url"}, {}, "x", 3])
def test_content_of_an_unknown_type_is_refused(part: object) -> None:
    found = said(part)
    assert len(found) == 1
    assert found[0][0].startswith("content:")


def test_content_that_is_a_single_part_is_checked_too() -> None:
    part = {"type": "image_url", "image_url": {"url": "https://evil.example"}}
    assert check(messages=[{"role": "tool", "content": part}]) == [("remote-url", "messages[0].content.image_url.url")]


def test_audio_that_the_provider_keeps_is_refused() -> None:
    assert check(messages=[{"role": "assistant", "audio": {"id": "audio_1"}}]) == [("stored-id", "messages[0].audio")]


@pytest.mark.parametrize(
    "target",
    [
        "/v1/files",
        "/v1/batches",
        "/v1/assistants",
        "/v1/threads",
        "/v1/vector_stores",
        "/v1/chat/completions?x=1",
        "/v1/chat/completions/",
        "/v1/chat/completions/chatcmpl-1",
        "/v1/embeddings",
        "/v1/images/generations",
        "/v1/realtime/sessions",
        "/chat/completions",
    ],
)
def test_no_other_path_of_the_provider_is_reachable(target: str) -> None:
    assert find_route("POST", target) is None
