"""codex and opencode in the sandbox: tries, and what is withheld; their whole edits are in test_bench_rows."""

from collections.abc import Callable
from typing import Any

import pytest

from fairtrial.model.agent import Tool

pytestmark = pytest.mark.needs("bwrap", "git")

Drive = Callable[..., Any]
Usage = Callable[..., dict[str, int]]

needs_codex = pytest.mark.needs("codex")


def call(tool: str, namespace: str | None = None, **given: object) -> dict[str, Any]:
    return {"tool": tool, "input": given} | ({"namespace": namespace} if namespace else {})


@needs_codex
def test_codex_takes_an_error_in_the_stream_for_the_last_word_and_names_no_status(drive: Drive, usage: Usage) -> None:
    error = {"after_bytes": 600, "times": 0}
    turns = [{"calls": [call("exec_command", cmd="ls")], "usage": usage(1)}, {"text": "never", "error_event": error}]
    session = drive("codex", [{"name": "main", "turns": turns}])
    assert session.result.returncode == 1
    assert session.closed.totals.by_ending == {"answered": 1, "error-event": 1}, "it does not ask again"
    assert (session.report.is_error, session.report.error_status, session.report.ending) == (True, None, "turn.failed")
    assert session.report.usage is None
    assert session.closed.provider_fault == "error in the stream: planned fault: error_event"


@needs_codex
def test_codex_is_offered_neither_subagents_nor_skills_that_are_withheld(drive: Drive, usage: Usage) -> None:
    turns = [{"calls": [call("spawn_agent", "multi_agent_v1", message="CHILD")], "usage": usage(1)}, {"text": "Done."}]
    granted = frozenset(Tool) - {Tool.WEB, Tool.SUBAGENT, Tool.SKILL}
    session = drive("codex", [{"name": "main", "turns": turns}], tools=granted, effort="high")
    assert session.result.returncode == 0, session.stdout
    assert session.closed.totals.requests == 2


@pytest.mark.needs("opencode", "rg")
def test_opencode_is_not_offered_what_is_withheld(drive: Drive, usage: Usage) -> None:
    turns = [
        {"calls": [call("bash", command="touch made", description="x"), call("skill", name="demo")], "usage": usage(1)},
        {"text": "Done."},
    ]
    title = {"name": "title", "match": {"tools": "none"}, "turns": [{"text": "A title"}]}
    granted = frozenset(Tool) - {Tool.WEB, Tool.SHELL, Tool.SKILL}
    session = drive("opencode", [title, {"name": "main", "turns": turns}], tools=granted)
    assert session.result.returncode == 0, session.stdout
    assert not (session.workspace / "made").exists()
    assert session.report.skills_used == ()
