"""Ways to make Gemini fetch the answer for the model: each is refused by name and place, in both spellings of a key."""

import pytest

from fairtrial.gateway.dialects import DIALECTS, find_route
from fairtrial.gateway.egress import check_request

DIALECT = DIALECTS["gemini"]


def check(*, model: str = "gemini-2.5-pro", grants: tuple[str, ...] = (), **parts: object) -> list[tuple[str, str]]:
    route = DIALECT.route("POST", f"/v1beta/models/{model}:generateContent")
    assert route is not None
    return [(each.grant, each.path) for each in check_request(DIALECT, route, {"contents": [], **parts}, grants=grants)]


def said(part: object) -> list[tuple[str, str]]:
    return check(contents=[{"role": "user", "parts": [{"text": "see https://x"}, part]}])


def test_what_gemini_cli_sends_passes() -> None:
    assert not check(
        systemInstruction={"role": "user", "parts": [{"text": "s"}]},
        tools=[{"functionDeclarations": [{"name": "google_web_search", "parametersJsonSchema": {}}]}],
        toolConfig={"functionCallingConfig": {"mode": "AUTO"}},
        generationConfig={"temperature": 0, "topP": 1, "thinkingConfig": {"includeThoughts": True}},
        safetySettings=[],
        cachedContent=None,
        contents=[
            {"role": "user", "parts": [{"text": "t"}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}}]},
            {"role": "model", "parts": [{"text": "t", "thought": True, "thoughtSignature": "x"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "a", "name": "n", "args": {"fileData": 1}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"id": "a", "name": "n", "response": {"googleSearch": 1}, "parts": []}}],
            },
        ],
    )


@pytest.mark.parametrize(
    ("key", "grant"),
    [
        ("googleSearch", "web-search"),
        ("google_search", "web-search"),
        ("googleSearchRetrieval", "web-search"),
        ("google_search_retrieval", "web-search"),
        ("enterpriseWebSearch", "web-search"),
        ("urlContext", "web-fetch"),
        ("url_context", "web-fetch"),
        ("codeExecution", "code-execution"),
        ("code_execution", "code-execution"),
        ("fileSearch", "file-search"),
        ("retrieval", "file-search"),
        ("googleMaps", "maps"),
        ("mcpServers", "mcp"),
        ("brandNew", "tool:brandNew"),
    ],
)
def test_a_tool_that_is_not_the_clients_own_is_refused(key: str, grant: str) -> None:
    tools = [{"functionDeclarations": []}, {"functionDeclarations": [], key: {}}]
    assert check(tools=tools) == [(grant, "tools[1]")]
    assert not check(tools=tools, grants=(grant,))


@pytest.mark.parametrize(
    ("key", "value", "grant"),
    [
        ("cachedContent", "cachedContents/1", "stored-id"),
        ("cached_content", "cachedContents/1", "stored-id"),
        ("brandNew", 1, "field:brandNew"),
    ],
)
def test_a_key_that_could_fetch_or_is_unknown_is_refused(key: str, value: object, grant: str) -> None:
    assert check(**{key: value})[0][0] == grant


def test_two_spellings_of_one_key_say_two_things_and_are_refused() -> None:
    found = check(system_instruction=None, systemInstruction={"parts": [{"fileData": {"fileUri": "https://x"}}]})
    assert ("field:systemInstruction", "systemInstruction") in found
    assert ("remote-url", "systemInstruction.parts[0].fileData") in found


@pytest.mark.parametrize(
    ("part", "grant", "place"),
    [
        ({"fileData": {"fileUri": "https://youtu.be/x"}}, "remote-url", "fileData"),
        ({"file_data": {"file_uri": "gs://bucket/x"}}, "remote-url", "fileData"),
        ({"text": "x", "file_data": {"file_uri": "gs://bucket/x"}}, "remote-url", "fileData"),
        ({"executableCode": {"code": "x"}}, "code-execution", "executableCode"),
        ({"codeExecutionResult": {}}, "code-execution", "codeExecutionResult"),
        ({"toolResponse": {}}, "web-search", "toolResponse"),
        ({"brandNew": {}}, "content:brandNew", "brandNew"),
        (
            {"functionResponse": {"name": "n", "parts": [{"fileData": {"fileUri": "https://x"}}]}},
            "remote-url",
            "functionResponse.parts[0].fileData",
        ),
    ],
)
def test_content_outside_the_request_is_refused(part: object, grant: str, place: str) -> None:
    assert said(part) == [(grant, f"contents[0].parts[1].{place}")]


def test_a_nested_request_of_a_count_is_checked_too() -> None:
    inner = {"contents": [], "tools": [{"google_search": {}}]}
    assert check(generateContentRequest=inner) == [("web-search", "generateContentRequest.tools[0]")]
    assert check(generate_content_request=inner) == [("web-search", "generateContentRequest.tools[0]")]
    assert check(generateContentRequest=[inner])[0][0].startswith("field:")


def test_contents_that_are_no_list_are_refused() -> None:
    assert check(contents={"parts": []}) == [("field:contents", "contents")]
    assert check(contents=[{"parts": {"fileData": {}}}]) == [("field:parts", "contents[0].parts")]


def test_a_model_that_searches_by_itself_is_refused() -> None:
    assert check(model="deep-research-pro-preview")[0] == ("web-search", "model")


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/v1beta/models/m:batchGenerateContent"),
        ("POST", "/v1beta/models/m:embedContent"),
        ("POST", "/v1beta/models/m:generateContent/../../files"),
        ("POST", "/v1beta/models/a/b:generateContent"),
        ("POST", "/v1beta/models/..:generateContent?x=1"),
        ("POST", "/v1beta/cachedContents"),
        ("POST", "/upload/v1beta/files"),
        ("GET", "/v1beta/files"),
        ("POST", "/v1beta/interactions"),
        ("POST", "/v1beta/models/m:streamGenerateContent?alt=sse&alt=json"),
        ("POST", "/v1beta/models/m:streamGenerateContent?alt=proto"),
        ("POST", "/v1beta/models/m:streamGenerateContent?%24alt=json"),
        ("GET", "/v1beta/models/m:generateContent"),
        ("POST", "/v1beta/tunedModels/m:generateContent"),
    ],
)
def test_no_other_path_of_the_provider_is_reachable(method: str, target: str) -> None:
    assert find_route(method, target) is None
