"""codex, opencode, gemini-cli and mini-swe-agent in the sandbox: whole edits, child sessions, and what they report."""

from collections.abc import Callable
from typing import Any

import pytest

from fairtrial.model.agent import Skill, Tool

pytestmark = pytest.mark.needs("bwrap", "git")

Drive = Callable[..., Any]
Usage = Callable[..., dict[str, int]]
Buckets = Callable[..., tuple[int | None, ...]]

needs_codex = pytest.mark.needs("codex")
needs_opencode = pytest.mark.needs("opencode", "rg")
needs_gemini = pytest.mark.needs("gemini")
needs_mini = pytest.mark.needs("mini")

MEND = "sed -i 's/a - b/a + b/' calc.py && git -c user.name=m -c user.email=m@example.invalid commit -qam mended"
PATCH = "*** Begin Patch\n*** Update File: calc.py\n@@\n-    return a - b\n+    return a + b\n*** End Patch"
SKILL = Skill(name="placed", files={"SKILL.md": b"---\nname: placed\ndescription: A placed one\n---\nBODY-OF-IT\n"})
# A child thread runs beside its parent; its last word stands in its own record. (The brackets keep this command from
# finding itself.)
CHILD_IS_DONE = "until grep -rqs 'CHILD-IS-[D]ONE' /home/agent/.codex/sessions; do sleep 0.1; done"
DOWN = {"kind": "status", "parameter": 500, "times": 0}


def call(tool: str, namespace: str | None = None, **given: object) -> dict[str, Any]:
    return {"tool": tool, "input": given} | ({"namespace": namespace} if namespace else {})


def plus(*usages: dict[str, int]) -> tuple[int, ...]:
    return tuple(
        sum(usage[name] for usage in usages) for name in ("uncached_input", "cache_write", "cache_read", "output")
    )


@needs_codex
def test_codex_edits_and_its_child_thread_is_counted_though_it_does_not_report_it(
    drive: Drive, usage: Usage, buckets: Buckets, fixed: str
) -> None:
    main = [
        {
            "text": "Looking.",
            "calls": [call("exec_command", cmd="cat /home/agent/.codex/skills/placed/SKILL.md")],
            "usage": usage(1),
        },
        {"calls": [call("spawn_agent", "multi_agent_v1", message="CHILD task")], "usage": usage(2)},
        {
            "calls": [
                call("exec_command", cmd=CHILD_IS_DONE, yield_time_ms=30_000),
                call("exec_command", cmd=MEND),
            ],
            "usage": usage(3),
        },
        {"calls": [call("exec_command", cmd="ls child")], "usage": usage(4)},
        {"text": "Mended.", "usage": usage(5)},
    ]
    child = {
        "name": "child",
        "match": {"claimed": "subagent"},
        "turns": [
            {"calls": [call("exec_command", cmd="touch child")], "usage": usage(50)},
            {"text": "CHILD-IS-DONE", "usage": usage(51)},
        ],
    }
    session = drive("codex", [child, {"name": "main", "turns": main}], skills=(SKILL,))
    assert session.result.returncode == 0, session.stdout
    assert (session.workspace / "calc.py").read_text() == fixed
    assert session.buckets == buckets(session.expected)
    assert session.closed.totals.requests == 7
    assert session.closed.egress_refused == ()
    assert buckets(session.closed.totals.by_agent["subagent"].usage) == plus(usage(50), usage(51))
    assert buckets(session.report.usage) == plus(*(usage(n) for n in range(1, 6))), "the child thread is not in it"
    assert b"BODY-OF-IT" in session.stdout
    assert session.report.is_error is False
    assert session.report.final_text == "Mended."


@needs_codex
def test_codex_gives_up_on_a_provider_that_stays_down_and_names_no_status(drive: Drive, usage: Usage) -> None:
    turns = [{"calls": [call("exec_command", cmd="ls")], "usage": usage(1)}, {"text": "never", "fault": DOWN}]
    session = drive("codex", [{"name": "main", "turns": turns}])
    assert session.result.returncode == 1
    assert session.closed.totals.failed_requests == 9, "request and stream retries multiply"
    assert (session.report.is_error, session.report.error_status, session.report.ending) == (True, None, "turn.failed")
    assert session.report.usage is None
    assert session.closed.provider_fault is not None


@needs_codex
def test_codex_is_offered_neither_subagents_nor_skills_that_are_withheld(drive: Drive, usage: Usage) -> None:
    turns = [{"calls": [call("spawn_agent", "multi_agent_v1", message="CHILD")], "usage": usage(1)}, {"text": "Done."}]
    granted = frozenset(Tool) - {Tool.WEB, Tool.SUBAGENT, Tool.SKILL}
    session = drive("codex", [{"name": "main", "turns": turns}], tools=granted, effort="high")
    assert session.result.returncode == 0, session.stdout
    assert session.closed.totals.requests == 2


@needs_opencode
def test_opencode_edits_and_its_child_session_and_title_are_counted_though_it_does_not_report_them(
    drive: Drive, usage: Usage, buckets: Buckets, fixed: str
) -> None:
    main = [
        {
            "text": "Looking.",
            "calls": [call("skill", name="demo"), call("read", filePath="/workspace/calc.py")],
            "usage": usage(1),
        },
        {"calls": [call("task", description="child", prompt="CHILD task", subagent_type="general")], "usage": usage(2)},
        {"calls": [call("apply_patch", patchText=PATCH), call("grep", pattern="def")], "usage": usage(3)},
        {"text": "Mended.", "usage": usage(4)},
    ]
    agents = [
        {"name": "title", "match": {"tools": "none"}, "turns": [{"text": "A title", "usage": usage(60)}]},
        {
            "name": "child",
            "match": {"claimed": "subagent"},
            "turns": [
                {"calls": [call("bash", command="touch child", description="touch")], "usage": usage(50)},
                {"text": "ok", "usage": usage(51)},
            ],
        },
        {"name": "main", "turns": main},
    ]
    session = drive("opencode", agents)
    assert session.result.returncode == 0, session.stdout
    assert (session.workspace / "calc.py").read_text() == fixed
    assert (session.workspace / "child").exists()
    assert session.buckets == buckets(session.expected)
    assert session.closed.totals.requests == 7
    assert buckets(session.report.usage) == plus(*(usage(n) for n in range(1, 5))), "neither child nor title are in it"
    assert session.report.skills_used == ("demo",)
    assert session.report.tool_calls == {"skill": 1, "read": 1, "task": 1, "apply_patch": 1, "grep": 1}
    assert session.report.cost_usd is None, "zero is what it says of a model that it cannot price"
    assert (session.report.ended, session.report.is_error, session.report.final_text) == (True, False, "Mended.")


@needs_opencode
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


@needs_gemini
def test_gemini_edits_and_its_subagent_is_counted_by_both(
    drive: Drive, usage: Usage, buckets: Buckets, fixed: str
) -> None:
    calc = "/workspace/calc.py"
    main = [
        {
            "text": "Looking.",
            "calls": [call("activate_skill", name="placed"), call("read_file", file_path=calc)],
            "usage": usage(1),
        },
        {"calls": [call("invoke_agent", agent_name="generalist", prompt="CHILD task")], "usage": usage(2)},
        {
            "calls": [call("replace", file_path=calc, instruction="mend", old_string="a - b", new_string="a + b")],
            "usage": usage(3),
        },
        {"calls": [call("run_shell_command", command="git status --short")], "usage": usage(4)},
        {"text": "Mended.", "usage": usage(5)},
    ]
    child = {
        "name": "child",
        "match": {"prompt_contains": "CHILD task"},
        "turns": [
            {"calls": [call("run_shell_command", command="touch child")], "usage": usage(50)},
            {"calls": [call("complete_task", result={"response": "ok"})], "usage": usage(51)},
        ],
    }
    session = drive("gemini-cli", [child, {"name": "main", "turns": main}], skills=(SKILL,))
    assert session.result.returncode == 0, session.stdout
    assert (session.workspace / "calc.py").read_text() == fixed
    assert (session.workspace / "child").exists()
    assert session.buckets == buckets(session.expected)
    assert session.closed.totals.requests == 7
    assert session.closed.totals.other_models == ()
    assert buckets(session.report.usage) == session.buckets
    assert session.report.skills_used == ("placed",)
    assert (session.report.is_error, session.report.final_text) == (False, "Mended.")


@needs_gemini
def test_gemini_ends_with_the_status_modulo_256_when_a_provider_stays_down(drive: Drive, usage: Usage) -> None:
    turns = [{"calls": [call("run_shell_command", command="ls")], "usage": usage(1)}, {"text": "never", "fault": DOWN}]
    session = drive("gemini-cli", [{"name": "main", "turns": turns}])
    assert session.result.returncode == 500 % 256
    assert session.closed.totals.failed_requests == 3
    assert (session.report.is_error, session.report.ending) == (True, "error")


@needs_mini
def test_mini_swe_agent_edits_with_the_skill_in_its_prompt(
    drive: Drive, usage: Usage, buckets: Buckets, fixed: str
) -> None:
    turns = [
        {"text": "Looking.", "calls": [call("bash", command="cat calc.py")], "usage": usage(1)},
        {"text": "Mending.", "calls": [call("bash", command=MEND)], "usage": usage(2)},
        {"calls": [call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")], "usage": usage(3)},
    ]
    main = {"name": "main", "match": {"prompt_contains": "BODY-OF-IT"}, "turns": turns}
    session = drive("mini-swe-agent", [main], skills=(SKILL,))
    assert session.result.returncode == 0, session.result.stderr.tail
    assert (session.workspace / "calc.py").read_text() == fixed
    assert session.buckets == buckets(session.expected) == buckets(session.report.usage)
    assert (session.report.turns, session.report.ending, session.report.is_error) == (3, "Submitted", False)
    assert session.report.tool_calls == {"bash": 3}


@needs_mini
def test_mini_swe_agent_says_which_error_ended_it(drive: Drive, usage: Usage) -> None:
    turns = [{"calls": [call("bash", command="ls")], "usage": usage(1)}, {"text": "never", "fault": DOWN}]
    session = drive("mini-swe-agent", [{"name": "main", "turns": turns}])
    assert session.result.returncode == 1
    assert session.closed.totals.failed_requests == 3
    assert (session.report.ending, session.report.is_error) == ("InternalServerError", True)
