"""A sweep with a provider's key: it is nowhere in the results, and in no command line and no environment."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(300), pytest.mark.xdist_group("secrets")]

Sweep = Any
StandIn = Any
Json = Any
Answer = tuple[int, dict[str, str], bytes]

# Put together here, so that no scanner of repositories takes them for keys that somebody lost.
PLANTED = {
    "anthropic": "sk-" + "ant-api03-AbCdEfGh0123456789-_xyz",
    "openai": "sk-" + "proj-AbCdEfGh0123456789AbCdEfGh",
    "google": "AI" + "zaSyA0123456789abcdefghijklmnopqrstu",
    "aws": "AK" + "IAIOSFODNN7EXAMPLE",
    "github": "gh" + "p_0123456789abcdefghijABCDEFGHIJ012345",
    "slack": "xox" + "b-123456789012-abcdefABCDEF",
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0NTYifQ.c2lnbmF0dXJlMTIz",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7v\nq83vq83v-_=\n-----END RSA PRIVATE KEY-----",
}
LEAK = "cat <<'EOF'\n" + "\n".join(PLANTED.values()) + "\nEOF\n"
LOOK_INSIDE = "cat /proc/*/cmdline /proc/*/environ | tr '\\0' '\\n' | grep -c 'THE-PROVIDERS-[O]WN' ; true"


def readable(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # gone, or of another user, who could not read it either
        return b""


def holders_of(secret: bytes) -> list[str]:
    """Every process of this machine that shows it in its command line or environment."""
    return [
        f"{path}: {readable(path.parent / 'cmdline')!r}"
        for process in Path("/proc").iterdir()
        if process.name.isdigit()
        for path in (process / "cmdline", process / "environ")
        if secret in readable(path)
    ]


def test_a_key_in_a_file_reaches_the_provider_and_no_result(
    sweep: Sweep, stand_in: StandIn, mended: Callable[..., Answer]
) -> None:
    own_key = "sk-" + "ant-api03-in-a-file-0123456789"
    (sweep.root / "key").write_text(f"{own_key}\n")
    stand_in.answer = lambda _method, body: mended(body)
    done = sweep.run("--runs", 1, "--key-file", sweep.root / "key", "--base-url", stand_in.url)
    assert [row["error_kind"] for row in sweep.rows] == [None], done.stderr
    assert {key for _, key, _ in stand_in.seen} == {own_key}
    assert own_key not in done.stdout + done.stderr
    assert not any(own_key.encode() in path.read_bytes() for path in sweep.out.rglob("*") if path.is_file())


def test_eight_formats_and_the_providers_key_are_nowhere_in_the_results_nor_in_proc(
    sweep: Sweep, stand_in: StandIn, mended: Callable[..., Answer], provider_key: str
) -> None:
    found: dict[str, Any] = {}

    def answer(_method: str, body: Json) -> Answer:
        found.setdefault("outside", holders_of(provider_key.encode()))
        messages = body["messages"]
        n_turns = sum(message["role"] == "assistant" for message in messages)
        if n_turns == 1:
            found["inside"] = messages[-1]["content"][0]["content"]
        if n_turns == 3:
            leaks = "\\n".join([*PLANTED.values(), provider_key]).replace("\n", "\\n")
            return 400, {}, f'{{"type": "error", "error": {{"message": "bad key {leaks}"}}}}'.encode()
        commands = [LOOK_INSIDE, LEAK, f"{LEAK} >&2; echo '# {PLANTED['github']}' >>calc.py; exit 1"]
        status, headers, data = mended({"messages": []})
        text = data.decode().replace("\"sed -i 's/a - b/a + b/' calc.py\"", json.dumps(commands[n_turns]))
        return status, headers, text.encode()

    stand_in.answer = answer
    tasks = sweep.root / "tasks.yaml"
    tasks.write_text(tasks.read_text().replace("python3 -c 'import calc'", "cat calc.py; cat calc.py >&2; exit 1"))
    done = sweep.run("--runs", 1, "--key-env", "ANTHROPIC_API_KEY", "--base-url", stand_in.url)
    (row,) = sweep.rows
    assert row["tool_calls"] == {"Bash": 3}, done.stderr
    assert (row["error_kind"], row["authored_tests_passed"]) == ("agent-crash", False)
    assert {key for _, key, _ in stand_in.seen} == {provider_key}, "the gateway had it"
    assert found["outside"] == []
    assert found["inside"].split()[0] == "0"

    written = {path.relative_to(sweep.out): path.read_bytes() for path in sweep.out.rglob("*") if path.is_file()}
    assert any(b"[redacted:github-key]" in data for data in written.values())
    for name, secret in {**PLANTED, "the provider's": provider_key}.items():
        for line in secret.splitlines():
            holders = {str(path) for path, data in written.items() if line.encode() in data}
            # What is judged is kept as the agent wrote it.
            expected = {str(path) for path in written if path.name == "change.tar"} if name == "github" else set()
            assert holders == expected, (name, holders)
    for stream in (done.stdout, done.stderr):
        assert not any(line in stream for secret in PLANTED.values() for line in secret.splitlines())
        assert provider_key not in stream
