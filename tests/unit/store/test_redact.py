import base64
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.store.redact import Redactor

SHAPES = {
    "anthropic-key": "sk-" + "ant-api03-AbCdEfGh0123456789-_xyz",
    "openai-key": "sk-" + "proj-AbCdEfGh0123456789AbCdEfGh",
    "google-key": "AI" + "zaSyA0123456789abcdefghijklmnopqrstu",
    "google-token": "ya" + "29.a0AfH6SMBx0123456789abcdef",
    "aws-key-id": "AK" + "IAIOSFODNN7EXAMPLE",
    "aws-secret": "aws_secret_" + "access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "github-key": "gh" + "p_0123456789abcdefghijABCDEFGHIJ012345",
    "github-token": "github_" + "pat_11ABCDEFG0abcdefghijkl_0123456789",
    "gitlab-token": "gl" + "pat-0123456789abcdefghij",
    "slack-token": "xox" + "b-123456789012-abcdefABCDEF",
    "slack-app-token": "xa" + "pp-1-A0123456789-0123456789",
    "hugging-face-token": "hf" + "_0123456789abcdefghijABCDEFGHIJ",
    "npm-token": "np" + "m_0123456789abcdefghijABCDEFGHIJ012345",
    "stripe-key": "sk" + "_live_0123456789abcdefghij",
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0NTYifQ.c2lnbmF0dXJlMTIz",
    "bearer-token": "Bearer " + "0123456789abcdef0123",
    "private-key": "-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA7v\n-----END PRIVATE KEY-----",
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("before", ["-", " ", "\n", "\\n", "=", '"', "\x1b[31m", "%0A", "\\u000a", "key:"])
def test_each_shape_is_taken_out_wherever_it_stands(name: str, before: str) -> None:
    secret = SHAPES[name]
    redactor = Redactor()
    cleaned = redactor.redact_text(f"x{before}{secret} rest")
    assert f"[redacted:{name}]" in cleaned
    assert secret.splitlines()[0] not in cleaned
    assert cleaned.endswith(" rest")
    assert redactor.n_redacted == 1
    assert name in redactor.find(secret.encode())


@pytest.mark.parametrize("name", SHAPES)
def test_json_stays_json(name: str) -> None:
    text = json.dumps({"a": f"before {SHAPES[name]} after", "b": [SHAPES[name]]})
    assert json.loads(Redactor().redact_text(text))["a"].startswith("before ")


@pytest.mark.parametrize("between", ["", "-", " ", "/", ".eyJabcdefghi "])
def test_what_only_begins_like_a_token_is_looked_through_once(between: str) -> None:
    before = "eyJ" * 400_000 + between
    redactor = Redactor()
    assert redactor.redact_text(f"{before}{SHAPES['jwt']}/").endswith("[redacted:jwt]/")
    assert redactor.n_redacted == 1
    innocent = ("eyJ" * 400_000 + ".eyJ ").encode()
    assert redactor.redact(innocent) == innocent
    assert redactor.find(innocent) == ()
    assert redactor.n_redacted == 1


@pytest.mark.parametrize(
    "text",
    [
        "task-management-system-for-teams",
        "risk-assessment-and-mitigation",
        "see https://example.org:8080/path@v1 and a@b.example",
        "the bearer of this letter",
        "AKIA is four letters",
        "-----BEGIN CERTIFICATE-----\nMIIEowIBAAKCAQEA7v\n-----END CERTIFICATE-----",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "sk-short",
    ],
)
def test_innocent_text_stays(text: str) -> None:
    assert Redactor().redact_text(text) == text
    assert Redactor().find(text.encode()) == ()


@pytest.mark.parametrize(
    "form",
    [
        lambda value: value,
        lambda value: quote(value, safe=""),
        lambda value: json.dumps(value)[1:-1],
        lambda value: base64.b64encode(value.encode()).decode(),
        lambda value: base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
    ],
)
def test_a_known_value_is_taken_out_in_each_form_that_it_travels_in(form: object) -> None:
    value = 'my "own" secret/+value'
    written = form(value)  # type: ignore[operator]
    cleaned = Redactor([value]).redact_text(f"[{written}]")
    assert written not in cleaned
    assert cleaned.startswith("[[redacted:secret]")


def test_values_too_short_to_tell_are_left() -> None:
    assert Redactor(["abc", ""]).redact_text("abcdef") == "abcdef"


@given(st.binary(max_size=300))
def test_redacting_twice_changes_nothing_more(data: bytes) -> None:
    once = Redactor(["a-known-value"]).redact(data)
    assert Redactor(["a-known-value"]).redact(once) == once


@pytest.mark.parametrize(
    "unit",
    [b"-----BEGIN PRIVATE KEY-----", b"://a:", b"sk-", b"eyJaaaaaaaa.", b"Bearer ", b"aws_secret_access_key=", b"@://"],
)
def test_hostile_text_takes_linear_time(unit: bytes) -> None:
    redactor = Redactor()

    def seconds(n_bytes: int) -> float:
        text = unit * (n_bytes // len(unit))
        begun_s = time.process_time()  # of this process alone: what others do meanwhile is not counted
        redactor.redact(text)
        return time.process_time() - begun_s

    assert seconds(2_000_000) < 30.0  # linear, it takes a tenth of a second; by squares, hours
