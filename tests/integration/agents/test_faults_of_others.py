"""What a provider may do to the other command lines, and how that ends: 500, 400 and crashes are the suite's.

Each tries again in its own way, or takes what it got for the end; what the wire shows decides all the same.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

import pytest

pytestmark = [
    pytest.mark.needs("bwrap", "git", "codex", "opencode", "rg", "gemini", "mini"),
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("agents-faults-of-others"),
]

Sweep = Any
Row = dict[str, Any]
Usage = Callable[..., dict[str, int]]

AGENTS: Final = {
    "codex": "gpt-5",
    "gemini-cli": "gemini-2.5-pro",
    "mini-swe-agent": "gpt-5",
    "opencode": "gpt-5",
}
FAULTS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "closed-in-the-middle": ({"kind": "truncate_reply", "parameter": 600}, "session-error"),
    "garbled": ({"kind": "garble_reply", "parameter": 600}, "session-error"),
    "rate-limited": ({"kind": "status", "parameter": 429, "retry_after_s": 1}, "session-error"),
    "overloaded": ({"kind": "status", "parameter": 529, "retry_after_s": 1}, "session-error"),
    "reset": ({"kind": "rst_reply"}, "session-error"),
    "unauthorized": ({"kind": "status", "parameter": 401}, "agent-crash"),
}
SILENCES: Final[dict[str, dict[str, Any]]] = {
    "silent": {"kind": "stall"},
    "stalled": {"kind": "stall", "parameter": 600},
}
SILENCE_S: Final = 150.0
"""For the slowest of them to start on a machine that is busy with all of the others; then nothing happens any more."""
LONG: Final = " ".join(map(str, range(900)))
REPETITIVE: Final = "Never. " * 500
"""Which gemini-cli leaves by itself, asks for once more, and takes for the model's end."""
LOOK: Final = [
    {"tool": "exec_command", "input": {"cmd": "ls"}, "only": ["openai-responses"]},
    {"tool": "bash", "input": {"command": "ls", "description": "look"}, "only": ["openai-chat"]},
    {"tool": "run_shell_command", "input": {"command": "ls"}, "only": ["gemini"]},
]


def prompt_of(fault: str) -> str:
    return f"FAULT-{fault.upper()}."


def whole_of(agent: str, usage: Usage) -> list[dict[str, int]]:
    """What the replies cost that came to their end: the one before the fault, and a title."""
    return [usage(1), *([usage(90)] if agent == "opencode" else [])]


def silences_of(sweep: Sweep, agent: str) -> Sweep:
    """The sweep of one agent that waits for its limit while those of the others do, and the faults are played."""
    return replace(sweep, out=sweep.root / f"silences-{agent}")


@pytest.fixture(scope="module")
def rows(shared_sweep: Sweep, usage: Usage) -> dict[tuple[str, str], Row]:
    """The row of each agent and fault: work first, then a fault that stays."""
    path = shared_sweep.root / "tasks.yaml"
    (task,) = json.loads(path.read_text())["tasks"]
    faults = {name: fault for name, (fault, _) in FAULTS.items()} | SILENCES
    path.write_text(json.dumps({"tasks": [{**task, "id": name, "prompt": prompt_of(name)} for name in faults]}))
    work = {"text": "Looking.", "calls": LOOK, "usage": usage(1)}
    conversations = [
        {
            "name": name,
            "match": {"prompt_contains": prompt_of(name)},
            "turns": [
                work,
                {
                    "text": REPETITIVE if name == "closed-in-the-middle" else LONG,
                    "usage": usage(2),
                    "fault": {**fault, "times": 0},
                },
            ],
            "beyond": "repeat",  # gemini-cli puts more into the conversation when it asks again
        }
        for name, fault in faults.items()
    ]
    title = {"name": "title", "match": {"tools": "none"}, "turns": [{"text": "A title", "usage": usage(90)}]}
    script = shared_sweep.write_script([title, *conversations])
    arms = shared_sweep.write_arms(
        {agent: {"phases": [{"prompt": "{task}"}], "agent": agent, "model": model} for agent, model in AGENTS.items()}
    )
    options = ("--runs", 1, "--outage-streak", 0, "--script", script, "--arms-file", arms)
    silent = ("--workers", len(SILENCES), "--only", ",".join(SILENCES), "--timeout", SILENCE_S)
    played = ("--workers", 4, "--only", ",".join(FAULTS), "--timeout", 500)
    with ExitStack() as stack:
        started = [silences_of(shared_sweep, agent).start(*options, *silent, arms=agent) for agent in AGENTS]
        started.append(shared_sweep.start(*options, *played, arms=",".join(AGENTS)))
        for process in started:
            stack.enter_context(process)
        said = [process.communicate(timeout=1100)[1] for process in started]
    sweeps = [shared_sweep, *(silences_of(shared_sweep, agent) for agent in AGENTS)]
    found = {(row["arm"], row["task"]): row for sweep in sweeps for row in sweep.rows}
    assert found.keys() == {(agent, fault) for agent in AGENTS for fault in faults}, said
    return found


def wire_of(sweep: Sweep, row: Row) -> list[Row]:
    """The requests of an attempt, in the order of their ends."""
    trial = hashlib.sha256(row["key"].encode()).hexdigest()[:16]
    lines = (sweep.out / "trials" / trial / "1" / "wire-work.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["kind"] == "request"]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_has_its_ending_whatever_the_cli_makes_of_it(
    rows: dict[tuple[str, str], Row], usage: Usage, agent: str, fault: str
) -> None:
    row, (_, kind) = rows[agent, fault], FAULTS[fault]
    assert (row["error_kind"], row["resolved"]) == (kind, False), row["error_detail"]
    whole = whole_of(agent, usage)
    broken = row["wire"]["broken_tokens"]
    assert row["input_tokens"] - broken["input_tokens"] == sum(each["uncached_input"] for each in whole)
    assert row["output_tokens"] - broken["output_tokens"] == sum(each["output"] for each in whole)
    assert row["wire"]["failed_requests"] == row["wire"]["requests"] - len(whole) > 0


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("fault", SILENCES)
def test_silence_lasts_until_the_sessions_time_is_over(
    rows: dict[tuple[str, str], Row], usage: Usage, shared_sweep: Sweep, agent: str, fault: str
) -> None:
    row, whole = rows[agent, fault], whole_of(agent, usage)
    assert (row["error_kind"], row["resolved"]) == ("agent-timeout", False), row["error_detail"]
    broken = row["wire"]["broken_tokens"]
    assert row["input_tokens"] - broken["input_tokens"] == sum(each["uncached_input"] for each in whole)
    assert row["usage_is_lower_bound"] is (fault == "stalled"), "what was kept back was read here"
    waited = [each for each in wire_of(silences_of(shared_sweep, agent), row) if each["ending"] == "client-gone"]
    assert row["wire"]["by_ending"] == {"answered": len(whole), "client-gone": len(waited)}
    assert {(each["fault"], each["fault_fired"]) for each in waited} == {("stall", True)}
    assert len(waited) == 1 or agent == "gemini-cli", "which asks again after a minute"
    if fault == "stalled":
        assert row["wire"]["broken_is_lower_bound"] is True, "what it had said by then may have cost something"


def test_the_tries_of_codex_multiply(rows: dict[tuple[str, str], Row]) -> None:
    """A request and a stream are tried three times each; a 429 by its requests alone."""
    tries = {
        fault: rows["codex", fault]["wire"]["failed_requests"] for fault in ("overloaded", "reset", "rate-limited")
    }
    assert tries == {"overloaded": 9, "reset": 9, "rate-limited": 3}
    (reported,) = rows["codex", "overloaded"]["reported_usage"]
    assert (reported["usage"], reported["is_error"]) == (None, True)


def test_an_end_that_is_none_is_not_believed(rows: dict[tuple[str, str], Row]) -> None:
    row = rows["gemini-cli", "closed-in-the-middle"]
    (reported,) = row["reported_usage"]
    assert reported["is_error"] is False, "it says that all went well"
    (flag,) = [flag for flag in row["integrity_flags"] if "says success" in flag]
    assert flag.startswith("work: says success after broken connection")
