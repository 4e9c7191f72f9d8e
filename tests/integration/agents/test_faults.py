"""What a provider may do to Claude Code, and how that ends: void only where the wire shows a cause outside."""

from collections.abc import Callable
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
    "unauthorized": ({"kind": "status", "parameter": 401}, "agent-crash"),
    "refused": ({"kind": "status", "parameter": 400}, "agent-crash"),
    "silent": ({"kind": "stall"}, "agent-timeout"),
}
SILENCE_S: Final = 40.0
LONG: Final = "Never. " * 500
"""Longer than what comes of a reply that is cut off, whether it is streamed or not."""


def prompt_of(fault: str) -> str:
    return f"FAULT-{fault.upper()}."


@pytest.fixture(scope="module")
def rows(shared_sweep: Sweep, usage: Usage) -> dict[str, Row]:
    """The one row of each fault, all of one sweep: work first, then a fault that stays."""
    work = {"text": "Looking.", "calls": [{"tool": "Bash", "input": {"command": "ls"}}], "usage": usage(1)}
    agents = [
        {
            "name": name,
            "match": {"prompt_contains": prompt_of(name)},
            "turns": [work, {"text": LONG, "usage": usage(2), "fault": {**fault, "times": 0}}],
        }
        for name, (fault, _) in FAULTS.items()
    ]
    script = shared_sweep.write_script(agents)
    limits: dict[str, dict[str, float]] = {"silent": {"timeout_s": SILENCE_S}}
    arms = {name: {"phases": [{"prompt": f"{prompt_of(name)} {{task}}", **limits.get(name, {})}]} for name in FAULTS}
    options = ("--runs", 1, "--timeout", 600, "--outage-streak", 0, "--script", script)
    file = shared_sweep.write_arms(arms)
    done = shared_sweep.run(*options, "--arms-file", file, arms=",".join(FAULTS), agent="claude-code")
    found = {row["arm"]: row for row in shared_sweep.rows}
    assert found.keys() == FAULTS.keys(), done.stderr
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_has_its_ending(rows: dict[str, Row], fault: str) -> None:
    row, (_, kind) = rows[fault], FAULTS[fault]
    assert (row["error_kind"], row["resolved"]) == (kind, False), row["error_detail"]


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "silent"])
def test_what_was_used_before_is_counted_and_tries_are_told_apart(
    rows: dict[str, Row], usage: Usage, fault: str
) -> None:
    row = rows[fault]
    assert row["input_tokens"] == usage(1)["uncached_input"]
    assert row["output_tokens"] == usage(1)["output"]
    assert row["wire"]["failed_requests"] == row["wire"]["requests"] - 1 > 0
