"""What a provider may do to Claude Code, and how that ends: void only where the wire shows a cause outside."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

pytestmark = [
    pytest.mark.needs("bwrap", "git", "claude"),
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("agents-faults"),
]

Sweep = Any
Row = dict[str, Any]
Usage = Callable[..., dict[str, int]]

FAULTS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "status-500": ({"kind": "status", "parameter": 500}, "session-error"),
    "overloaded": ({"kind": "status", "parameter": 529}, "session-error"),
    "rate-limited": ({"kind": "status", "parameter": 429, "retry_after_s": 1}, "session-error"),
    "closed-before-the-head": ({"kind": "drop_reply"}, "session-error"),
    "reset": ({"kind": "rst_reply"}, "session-error"),
    "closed-in-the-middle": ({"kind": "truncate_reply", "parameter": 600}, "session-error"),
    "garbled": ({"kind": "garble_reply", "parameter": 600}, "session-error"),
    "unauthorized": ({"kind": "status", "parameter": 401}, "agent-crash"),
    "refused": ({"kind": "status", "parameter": 400}, "agent-crash"),
}
BEHIND_A_BLOCK: Final = 2000
"""Bytes that end behind the first whole block, and inside the next one."""
SILENCES: Final[dict[str, dict[str, Any]]] = {
    "silent": {"kind": "stall"},
    "stalled": {"kind": "stall", "parameter": BEHIND_A_BLOCK},
}
SILENCE_S: Final = 40.0
ERRORS: Final = ("error-once", "error-stays")
"""An error in the stream, behind a whole block: of one reply, and of each."""
LONG: Final = "Never. " * 500
"""Longer than what comes of a reply that is cut off, whether it is streamed or not."""
MEND: Final = "sed -i 's/a - b/a + b/' calc.py"


def prompt_of(fault: str) -> str:
    return f"FAULT-{fault.upper()}."


def bash(command: str) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command}}


def write_tasks(sweep: Sweep, names: list[str]) -> None:
    """The task once for each of these names: what is done to it follows from its prompt."""
    path = sweep.root / "tasks.yaml"
    (task,) = json.loads(path.read_text())["tasks"]
    path.write_text(json.dumps({"tasks": [{**task, "id": name, "prompt": prompt_of(name)} for name in names]}))


def wire_of(sweep: Sweep, row: Row) -> list[Row]:
    """The requests of an attempt, in the order of their ends."""
    trial = hashlib.sha256(row["key"].encode()).hexdigest()[:16]
    lines = (sweep.out / "trials" / trial / "1" / "wire-work.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["kind"] == "request"]


def silences_of(sweep: Sweep) -> Sweep:
    """The second sweep of this file: it waits for its limits while the first one works."""
    return replace(sweep, out=sweep.root / "silences")


@pytest.fixture(scope="module")
def rows(shared_sweep: Sweep, usage: Usage) -> dict[str, Row]:
    """The one row of each fault: work first, then a fault that stays."""
    faults = {name: fault for name, (fault, _) in FAULTS.items()} | SILENCES
    work = {"text": "Looking.", "calls": [bash("ls")], "usage": usage(1)}
    mend = {"calls": [bash(MEND), bash(f": {LONG}")], "usage": usage(2)}
    met = {name: {"text": LONG, "usage": usage(2)} for name in faults} | {"stalled": mend}
    turns = {name: [work, {**met[name], "fault": {**fault, "times": 0}}] for name, fault in faults.items()}
    once, stays = ({"after_bytes": BEHIND_A_BLOCK, "times": times} for times in (1, 0))
    turns["error-once"] = [work, {**mend, "error_event": once}, {"text": "Done.", "usage": usage(3)}]
    turns["error-stays"] = [
        work,
        *({**said, "error_event": stays} for said in (mend, {"text": LONG, "usage": usage(2)})),
    ]
    agents = [
        {"name": name, "match": {"prompt_contains": prompt_of(name)}, "turns": each} for name, each in turns.items()
    ]
    write_tasks(shared_sweep, list(turns))
    silences = silences_of(shared_sweep)
    options = ("--runs", 1, "--outage-streak", 0, "--workers", 2, "--script", shared_sweep.write_script(agents))
    with silences.start(*options, "--only", ",".join(SILENCES), "--timeout", SILENCE_S, agent="claude-code") as waiting:
        done = shared_sweep.run(*options, "--only", ",".join((*FAULTS, *ERRORS)), "--timeout", 600, agent="claude-code")
        _, said = waiting.communicate(timeout=550)
    found = {row["task"]: row for row in [*shared_sweep.rows, *silences.rows]}
    assert found.keys() == turns.keys(), done.stderr + said
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_has_its_ending(rows: dict[str, Row], fault: str) -> None:
    row, (_, kind) = rows[fault], FAULTS[fault]
    assert (row["error_kind"], row["resolved"]) == (kind, False), row["error_detail"]


@pytest.mark.parametrize("fault", SILENCES)
def test_silence_lasts_until_the_sessions_time_is_over(rows: dict[str, Row], fault: str) -> None:
    row = rows[fault]
    assert (row["error_kind"], row["resolved"]) == ("agent-timeout", False), row["error_detail"]
    assert row["diff_files"] == (1 if fault == "stalled" else 0), "a tool runs as soon as its own block is whole"


@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_used_before_is_counted_and_tries_are_told_apart(
    rows: dict[str, Row], usage: Usage, fault: str
) -> None:
    row = rows[fault]
    broken = row["wire"]["broken_tokens"]
    assert row["input_tokens"] - broken["input_tokens"] == usage(1)["uncached_input"]
    assert row["output_tokens"] - broken["output_tokens"] == usage(1)["output"]
    told = FAULTS[fault][0]["kind"] != "status"
    assert (broken["input_tokens"] > 0) is told, "what the provider sent was read, whatever came of it"
    assert row["wire"]["failed_requests"] == row["wire"]["requests"] - 1 > 0


def test_what_a_stalled_reply_said_of_its_cost_is_a_lower_bound(
    rows: dict[str, Row], usage: Usage, shared_sweep: Sweep
) -> None:
    row = rows["stalled"]
    assert row["input_tokens"] == usage(1)["uncached_input"] + usage(2)["uncached_input"]
    assert (row["output_tokens"], row["usage_is_lower_bound"]) == (usage(1)["output"] + 1, True)
    broken = row["wire"]["broken_tokens"]
    assert (broken["input_tokens"], broken["output_tokens"]) == (usage(2)["uncached_input"], 1)
    assert row["wire"]["broken_is_lower_bound"] is True
    first, stalled = wire_of(silences_of(shared_sweep), row)
    assert (first["ending"], first["usage"]["is_lower_bound"]) == ("answered", False)
    assert (stalled["ending"], stalled["fault"], stalled["fault_fired"]) == ("client-gone", "stall", True)
    assert (stalled["usage"]["is_lower_bound"], stalled["usage_problem"]) == (True, "the reply broke off")
    assert [(call["name"], call["is_partial"]) for call in stalled["tool_calls"]] == [("Bash", False), ("Bash", True)]


def test_an_error_behind_a_finished_block_ends_what_it_lasts_through(
    rows: dict[str, Row], usage: Usage, shared_sweep: Sweep
) -> None:
    """The block's tool runs all the same, and the next request goes on; in the middle of a text it asks for one piece.

    What the reply said of its cost is a lower bound.
    """
    once, stays = (rows[name] for name in ERRORS)
    assert (once["error_kind"], once["resolved"]) == (None, True), once["error_detail"]
    assert stays["error_kind"] == "session-error", stays["error_detail"]
    assert "the provider failed: status 529" in stays["error_detail"]
    assert [row["diff_files"] for row in (once, stays)] == [1, 1], "what was called before the error was done"
    assert once["wire"]["by_ending"] == {"error-event": 1, "answered": 2}
    by_ending = stays["wire"]["by_ending"]
    assert (by_ending["answered"], by_ending["error-status"] > 1) == (1, True)
    streams = by_ending["error-event"]
    assert streams in {1, 2}, "seen once to stream one turn of the two alone; why is not known"
    told = usage(1)["uncached_input"], usage(1)["output"]
    after = usage(3)["uncached_input"], usage(3)["output"]
    begun = usage(2)["uncached_input"], 1
    assert (once["input_tokens"], once["output_tokens"]) == tuple(map(sum, zip(told, after, begun, strict=True)))
    assert (stays["input_tokens"], stays["output_tokens"]) == tuple(
        map(sum, zip(told, *[begun] * streams, strict=True))
    )
    for row, tries in ((once, 1), (stays, streams)):
        broken = [each for each in wire_of(shared_sweep, row) if each["ending"] == "error-event"]
        assert [(each["error_kind"], each["usage"]["is_lower_bound"], each["usage_problem"]) for each in broken] == [
            ("overloaded_error", True, "the reply broke off")
        ] * tries
        tokens = row["wire"]["broken_tokens"]
        assert (tokens["input_tokens"], tokens["output_tokens"]) == (usage(2)["uncached_input"] * tries, tries)
