"""What a sweep's rows say of the wire: budgets, models, prices, and everything that a session tried and was refused.

One sweep for the whole file: an arm for each case, told apart by the first word of its prompt.
"""

from typing import Any, Final

import pytest

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(500), pytest.mark.xdist_group("on-the-wire")]

Sweep = Any
Row = dict[str, Any]

USAGE: Final = {"uncached_input": 100, "output": 10}
COST: Final = 100 * 3e-6 + 10 * 15e-6
MEND: Final = "sed -i 's/a - b/a + b/' calc.py"

# A command runs under the agent's uid and can read its token: with that it asks for what it must not have.
ATTACK: Final = r"""
import json, os, sys, urllib.error, urllib.request
agent = next(pid for pid in os.listdir("/proc") if pid.isdigit() and b"MODEL_TOKEN=" in open(f"/proc/{pid}/environ", "rb").read())
variables = dict(each.split(b"=", 1) for each in open(f"/proc/{agent}/environ", "rb").read().split(b"\0") if b"=" in each)
url, token = variables[b"MODEL_ENDPOINT"].decode(), variables[b"MODEL_TOKEN"].decode()
say = {"role": "user", "content": "hi"}
plain = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [say]}
image = {"type": "image", "source": {"type": "url", "url": "https://example.org/fix.png"}}
stored = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}
def ask(body, path="/v1/messages", **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"x-api-key": token, "content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    try:
        urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=20).read()
    except urllib.error.HTTPError as problem:
        problem.read()
ask({**plain, "tools": [{"type": "web_search_20250305", "name": "web_search"}]})
ask({**plain, "tools": [{"type": "code_execution_20250522", "name": "code_execution"}]})
ask({**plain, "mcp_servers": [{"type": "url", "url": "https://example.org", "name": "x"}]})
ask({**plain, "messages": [{"role": "user", "content": [image]}]})
ask({**plain, "messages": [{"role": "user", "content": [stored]}]})
ask(json.dumps(plain).encode()[:-1] + b', "model": "claude-opus-4-1"}')
ask(b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}")
ask(plain, content_encoding="br")
ask({**plain, "model": "claude-opus-4-1"})
ask(plain, x_api_key="fairtrial-another-trials-token")
ask({}, path="/v1/files")
ask({"model": "gpt-5", "messages": [say]}, path="/v1/chat/completions", authorization="Bearer " + token)
"""  # noqa: E501 - a program
OTHER: Final = ATTACK[: ATTACK.index("ask({**plain")] + 'ask({**plain, "model": "claude-opus-4-1"})\n'


def turn(command: str | None = None, **more: object) -> dict[str, Any]:
    calls = [] if command is None else [{"tool": "Bash", "input": {"command": command}}]
    return {"text": "" if calls else "Done.", "calls": calls, "usage": USAGE, **more}


def python(program: str) -> str:
    return f"python3 - <<'EOF'\n{program}\nEOF"


LONG: Final = [turn("true"), turn(MEND), turn("true"), turn()]
TURNS: Final = {
    "TOKENS": LONG,
    "COST": LONG,
    "REQUESTS": LONG,
    "SECONDS": [turn("sleep 1.5"), turn()],
    "ATTACK": [turn(python(ATTACK)), turn()],
    "RECORD": [turn(python(OTHER)), turn()],
    "OTHERS": [turn(MEND, model="claude-opus-4-1"), turn()],
    "PLAIN": [turn(MEND, usage={**USAGE, "cache_read": 1000, "cache_write": 10}), turn()],
}


def arm(word: str, **more: object) -> dict[str, Any]:
    return {"phases": [{"prompt": f"{word} {{task}}"}], **more}


ARMS: Final = {
    "tokens": arm("TOKENS", budget={"tokens": 150}),
    "cost": arm("COST", budget={"cost_usd": 1.5 * COST}),
    "requests": arm("REQUESTS", budget={"requests": 3}),
    "seconds": arm("SECONDS", budget={"seconds": 1.5}),
    "phases": {
        "phases": [{"prompt": "PLAIN {task}", "name": "first"}, {"prompt": "REQUESTS {task}"}],
        "budget": {"requests": 3},
    },
    "attack": arm("ATTACK"),
    "record": arm("RECORD", unnamed_models="record"),
    "others": arm("OTHERS"),
    "plain": arm("PLAIN", budget={"tokens": 5000, "cost_usd": 1.0, "requests": 9, "seconds": 600}),
    "unknown": arm("PLAIN", model="mystery-1"),
    "unpriced": arm("REQUESTS", model="mystery-1", budget={"cost_usd": 9.0}),
    "free": arm("PLAIN", model="devstral-small:free"),
}


@pytest.fixture(scope="module")
def rows(shared_sweep: Sweep) -> dict[str, Row]:
    """The one row of each arm."""
    agents = [
        {"name": word.lower(), "match": {"prompt_contains": f"{word} "}, "turns": turns}
        for word, turns in TURNS.items()
    ]
    script = shared_sweep.write_script([*agents, {"name": "any", "turns": [turn()], "beyond": "repeat"}])
    arms = shared_sweep.write_arms(ARMS)
    done = shared_sweep.run("--runs", 1, "--arms-file", arms, "--script", script, "--workers", 2, arms=",".join(ARMS))
    rows = {row["arm"]: row for row in shared_sweep.rows}
    assert rows.keys() == ARMS.keys(), done.stderr
    return rows


@pytest.mark.parametrize(
    ("arm", "n_requests", "said"),
    [("tokens", 2, "tokens"), ("cost", 2, "cost"), ("requests", 3, "requests"), ("seconds", 1, "seconds")],
)
def test_each_budget_ends_its_trial_before_the_request_beyond_it_goes_out(
    rows: dict[str, Row], arm: str, n_requests: int, said: str
) -> None:
    row = rows[arm]
    assert (row["error_kind"], row["resolved"]) == ("budget-exhausted", False)
    assert row["error_detail"] == f"the trial's budget of {said} is spent"
    if arm == "seconds" and not row["wire"]["requests"]:
        n_requests = 0  # a busy machine: its seconds were over before its first request came
    assert (row["wire"]["requests"], row["wire"]["refused"]) == (n_requests, {"budget": 1})
    assert row["input_tokens"] == 100 * n_requests
    assert row["oracle_passed"] is (n_requests > 1), "what it had done by then is judged"


def test_a_budget_is_the_trials_and_not_each_sessions(rows: dict[str, Row]) -> None:
    row = rows["phases"]
    assert [session["phase"] for session in row["sessions"]] == ["first", "work"]
    assert (row["error_kind"], row["wire"]["requests"], row["wire"]["refused"]) == (
        "budget-exhausted",
        3,
        {"budget": 1},
    )


def test_a_budget_that_is_kept_to_changes_nothing(rows: dict[str, Row]) -> None:
    assert (rows["plain"]["resolved"], rows["plain"]["wire"]["refused"]) == (True, {})


def test_a_limit_on_cost_ends_a_trial_that_cannot_be_priced(rows: dict[str, Row]) -> None:
    assert (rows["unpriced"]["error_kind"], rows["unpriced"]["wire"]["requests"]) == ("budget-exhausted", 1)


def test_every_refused_attempt_stands_in_the_row(rows: dict[str, Row]) -> None:
    wire = rows["attack"]["wire"]
    assert wire["egress_refused"] == [
        "web-search tools[0]",
        "code-execution tools[0]",
        "mcp mcp_servers",
        "remote-url messages[0].content[0].source",
        "file-id messages[0].content[0].source",
    ]
    assert wire["refused"] == {"egress": 5, "body": 3, "model": 1, "token": 1, "path": 1, "dialect": 1}
    assert wire["requests"] == 2, "nothing of it went out"


def test_another_model_is_refused_or_recorded_as_the_arm_says(rows: dict[str, Row]) -> None:
    assert rows["attack"]["wire"]["other_models"] == []
    recorded = rows["record"]["wire"]
    assert (recorded["requests"], recorded["refused"], recorded["other_models"]) == (3, {}, ["claude-opus-4-1"])
    assert set(recorded["by_model"]) == {"claude-sonnet-4-5", "claude-opus-4-1"}


def test_a_model_that_answers_for_another_marks_the_row(rows: dict[str, Row]) -> None:
    assert rows["others"]["wire"]["other_models"] == ["claude-opus-4-1"]
    assert "work: other model" in rows["others"]["integrity_flags"]
    assert rows["plain"]["wire"]["other_models"] == []
    assert rows["plain"]["integrity_flags"] == []


def test_a_price_is_known_unknown_or_nothing(rows: dict[str, Row]) -> None:
    assert (rows["unknown"]["cost_usd"], rows["unknown"]["cost_source"]) == (None, None)
    assert rows["unknown"]["resolved"] is True
    assert (rows["free"]["cost_usd"], rows["free"]["cost_source"]) == (0.0, "wire")
    plain = rows["plain"]
    cost = 2 * COST + 1000 * 0.3e-6 + 10 * 3.75e-6
    assert plain["cost_usd"] == pytest.approx(cost, abs=2e-6)
    assert plain["wire"]["cost_without_cache_usd"] == pytest.approx(2 * COST + 1010 * 3e-6, abs=2e-6)
