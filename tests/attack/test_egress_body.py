"""Bodies that two parsers could read in two ways, or that would cost more to read than they are worth."""

import json

import pytest

from fairtrial.gateway.dialects import DIALECTS
from fairtrial.gateway.egress import BadRequestError, read_body, require_plain_head, upstream_headers

LIMIT = 1 << 20


@pytest.mark.parametrize(
    "data",
    [
        b'{"tools": [], "tools": [{"type": "web_search"}]}',
        b'{"a": {"type": "text", "type": "image"}}',
        b'{"a": 1, "\\u0061": 2}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b"[{}]",
        b'"text"',
        b"",
        b"{",
        b"{} {}",
        b"{'a': 1}",
        b'{"a": 1,}',
        b'// x\n{"a": 1}',
        b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"a": ' + b"[" * 100_000,
        b'{"a": ' + b"9" * 100_000 + b', "b": 1.50}',
        b'{"a": "' + b"x" * LIMIT + b'"}',
    ],
)
def test_a_body_that_is_not_strictly_one_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequestError):
        read_body(data, max_bytes=LIMIT)


def test_a_strict_body_is_read_as_it_stands() -> None:
    value = {"a": ["\u00e9\U0001f600", 1.5, None, True], "b": {}}
    assert read_body(json.dumps(value).encode(), max_bytes=LIMIT) == value
    assert read_body(json.dumps(value, ensure_ascii=False, indent=2).encode(), max_bytes=LIMIT) == value


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "application/json", "content-encoding": "gzip"},
        {"content-type": "application/json", "content-encoding": "zstd"},
        {"content-type": "application/json", "content-encoding": "identity, br"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": "application/json; charset=utf-7"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "text/plain"},
        {},
    ],
)
def test_a_body_that_is_coded_or_of_another_type_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadRequestError):
        require_plain_head(headers)


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_plain_json_passes(kind: str) -> None:
    require_plain_head({"content-type": kind, "content-encoding": "identity"})


@pytest.mark.parametrize("name", list(DIALECTS))
def test_no_header_of_the_client_reaches_the_provider_unless_it_is_known(name: str) -> None:
    client = {
        "authorization": "Bearer trial-token",
        "x-api-key": "trial-token",
        "x-goog-api-key": "trial-token",
        "api-key": "trial-token",
        "cookie": "a=b",
        "x-http-method-override": "GET",
        "x-goog-user-project": "other",
        "openai-organization": "other",
        "host": "127.0.0.1",
        "idempotency-key": "k",
        "x-forwarded-for": "1.2.3.4",
        "x-claude-code-session-id": "s",
        "content-type": "application/json",
        "x-stainless-lang": "js",
    }
    found = upstream_headers(DIALECTS[name], client, key="real-key")
    assert "trial-token" not in json.dumps(found)
    assert set(found) - {"content-type", "x-stainless-lang"} == set(DIALECTS[name].auth_headers("real-key"))
    assert json.dumps(found).count("real-key") == 1
