"""What the readers make of outputs that the real command lines printed, and of outputs that none would."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.agents.bash_agent import BashAgent
from fairtrial.agents.claude_code import ClaudeCode
from fairtrial.agents.codex import Codex
from fairtrial.agents.gemini_cli import GeminiCli
from fairtrial.agents.mini_swe_agent import MiniSweAgent
from fairtrial.agents.nop import Nop
from fairtrial.agents.opencode import OpenCode
from fairtrial.agents.reference import Reference
from fairtrial.model.agent import Report
from fairtrial.model.usage import TokenUsage
from fairtrial.protocols import Agent

DATA = Path(__file__).parent / "data"
READERS = [BashAgent, ClaudeCode, Codex, GeminiCli, MiniSweAgent, Nop, OpenCode, Reference]


def read(agent: type[Agent], case: str) -> Report:
    with (DATA / f"{case}.jsonl").open("rb") as lines:
        return agent().read_report(lines)


def buckets(usage: TokenUsage | None) -> tuple[int | None, ...]:
    assert usage is not None
    return (usage.uncached_input, usage.cache_write, usage.cache_read, usage.output)


def test_claude_code_says_what_its_last_result_says() -> None:
    report = read(ClaudeCode, "claude-code-edit")
    assert (report.ended, report.problem, report.is_error, report.error_status) == (True, None, False, None)
    assert buckets(report.usage) == (66, 600, 3940, 310)
    assert list(report.usage_by_model) == ["claude-sonnet-4-5"]
    assert report.cost_usd == pytest.approx(0.00828)
    assert (report.turns, report.ending, report.final_text) == (8, "completed", "Done.")
    assert report.tool_calls == {"Bash": 2, "Skill": 1, "Read": 1, "Write": 1, "Edit": 1}
    assert report.skills_used == ("demo",)
    assert report.retries == 0


def test_claude_code_that_was_woken_again_is_read_from_the_last_of_its_results() -> None:
    report = read(ClaudeCode, "claude-code-subagents")
    assert report.problem is None
    assert buckets(report.usage) == (2387, 5229, 10630, 1311), "of all models and subagents, not of the last segment"
    assert report.final_text == "All done."
    assert report.turns == 5, "four of the first result and one of the second"
    assert report.tool_calls == {"Agent": 3}


@pytest.mark.parametrize("late", ["assistant", "user"])
def test_claude_code_may_say_more_after_a_result_that_is_not_its_last(late: str) -> None:
    first, last = ({"type": "result", "result": text, "num_turns": 1, "is_error": False} for text in ("So.", "Done."))
    more = {"type": late, "message": {"content": []}}
    lines = [json.dumps(each).encode() for each in (first, {"type": "system", "subtype": "init"}, more, last)]
    whole = ClaudeCode().read_report(lines)
    assert (whole.problem, whole.final_text, whole.turns) == (None, "Done.", 2)
    cut_off = ClaudeCode().read_report(lines[:-1])
    assert cut_off.problem == f"event 3: '{late}' after the result"


def test_claude_codes_word_for_an_error_is_one_whatever_stands_beside_it() -> None:
    line = json.dumps({"type": "result", "subtype": "error_max_turns", "is_error": False}).encode()
    report = ClaudeCode().read_report([line])
    assert (report.is_error, report.ending) == (True, "error_max_turns")


def test_claude_code_calls_a_failure_a_success_and_an_error() -> None:
    report = read(ClaudeCode, "claude-code-500")
    assert (report.is_error, report.error_status, report.ending, report.retries) == (True, 500, "api_error", 2)
    assert report.error_text is not None
    assert report.error_text.startswith("API Error: 500")
    assert read(ClaudeCode, "claude-code-subagent-500").is_error is False


def test_codex_sums_its_main_thread_alone() -> None:
    report = read(Codex, "codex-edit")
    assert buckets(report.usage) == (55, 0, 3040, 240)
    assert (report.ended, report.is_error, report.ending, report.final_text) == (True, False, "turn.completed", "Done.")
    assert report.tool_calls == {"exec_command": 3}
    assert report.skills_used is None, "it does not say"
    assert report.cost_usd is None
    child = read(Codex, "codex-child")
    assert buckets(child.usage) == (43, 0, 2090, 180)
    assert child.tool_calls == {"spawn_agent": 1, "exec_command": 1}


def test_codex_that_failed_says_no_usage_which_is_not_zero() -> None:
    report = read(Codex, "codex-500")
    assert (report.is_error, report.ending, report.usage, report.error_status) == (True, "turn.failed", None, None)
    assert report.retries == 2
    assert report.error_text is not None


def test_opencode_is_the_sum_of_its_steps() -> None:
    report = read(OpenCode, "opencode-edit")
    assert buckets(report.usage) == (45, 0, 2740, 140)
    assert (report.ended, report.is_error, report.ending, report.turns) == (True, False, "stop", 3)
    assert report.skills_used == ("demo",), "the one that it could load"
    assert report.tool_calls == {"skill": 2, "webfetch": 1, "apply_patch": 1, "grep": 1}
    assert report.cost_usd is None
    assert read(OpenCode, "opencode-child").skills_used == (), "its skill tool failed for want of rg"


def test_opencode_that_failed_names_the_status() -> None:
    report = read(OpenCode, "opencode-500")
    assert (report.ended, report.is_error, report.error_status, report.ending) == (True, True, 500, "error")
    assert report.error_text == "scripted"
    assert buckets(report.usage) == (20, 0, 800, 50)


def test_gemini_says_what_its_result_says() -> None:
    report = read(GeminiCli, "gemini-cli-edit")
    assert buckets(report.usage) == (55, 0, 3040, 240)
    assert list(report.usage_by_model) == ["gemini-2.5-pro"]
    assert (report.ended, report.is_error, report.final_text) == (True, False, "Done.")
    assert report.tool_calls == {"run_shell_command": 1, "read_file": 1, "write_file": 1, "replace": 1}
    failed = read(GeminiCli, "gemini-cli-500")
    assert (failed.is_error, failed.ending) == (True, "error")
    assert failed.error_text is not None


def test_gemini_that_was_killed_has_no_end_and_no_usage() -> None:
    report = read(GeminiCli, "gemini-cli-killed")
    assert (report.ended, report.is_error, report.usage) == (False, None, None)
    assert report.skills_used == ("hskill",), "the other one failed"


def test_mini_swe_agent_is_the_sum_of_its_messages() -> None:
    report = read(MiniSweAgent, "mini-swe-agent-edit")
    assert buckets(report.usage) == (35, 0, 2240, 190)
    assert (report.ended, report.is_error, report.ending, report.turns) == (True, False, "Submitted", 3)
    assert report.tool_calls == {"bash": 3}
    failed = read(MiniSweAgent, "mini-swe-agent-500")
    assert (failed.is_error, failed.ending) == (True, "InternalServerError")
    assert failed.error_text is not None


@pytest.mark.parametrize("agent", READERS)
def test_no_output_at_all_claims_nothing(agent: type[Agent]) -> None:
    report = agent().read_report([])
    assert (report.is_error, report.usage, report.cost_usd, report.final_text) == (None, None, None, None)
    assert (report.session_id, report.turns) == (None, None)
    assert report.ended is (agent in {Nop, Reference})


@pytest.mark.parametrize("agent", READERS)
@pytest.mark.parametrize("line", [b"not json\n", b"[1]\n", b'{"a": NaN}\n', b"\xff\xfe\n", b'{"a":1,"a":2}\n'])
def test_a_line_that_no_cli_would_print_is_a_problem(agent: type[Agent], line: bytes) -> None:
    report = agent().read_report([b"\n", line])
    assert report.problem is not None


@pytest.mark.parametrize(("agent", "case"), [(ClaudeCode, "claude-code-edit"), (GeminiCli, "gemini-cli-edit")])
def test_an_event_after_the_end_is_a_problem_and_changes_no_claim(agent: type[Agent], case: str) -> None:
    lines = (DATA / f"{case}.jsonl").read_bytes().splitlines(keepends=True)
    forged = agent().read_report([*lines, b'{"type":"message","role":"user","content":"more"}\n'])
    whole = agent().read_report(lines)
    assert forged.problem is not None
    assert (forged.usage, forged.skills_used) == (whole.usage, whole.skills_used)


def test_a_skill_that_only_looks_used_is_not() -> None:
    def call(number: int, skill: str) -> dict[str, Any]:
        block = {"type": "tool_use", "id": f"t{number}", "name": "Skill", "input": {"skill": skill}}
        return {"type": "assistant", "message": {"content": [block]}}

    def result(number: int, *, is_error: bool) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "x", "is_error": is_error}
        return {"type": "user", "message": {"content": [block]}}

    events = [result(1, is_error=False), call(1, "early"), call(2, "failed"), result(2, is_error=True), call(3, "open")]
    events += [call(4, "/used and more"), result(4, is_error=False)]
    report = ClaudeCode().read_report([json.dumps(event).encode() for event in events])
    assert report.skills_used == ("used",)


@pytest.mark.parametrize("agent", READERS)
@given(
    events=st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["type", "result", "usage", "item", "part", "tokens", "stats", "models", "message", "content"]
                    )
                    | st.text(max_size=4),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        ),
        max_size=4,
    ),
    kind=st.sampled_from(
        [
            "result",
            "assistant",
            "user",
            "system",
            "turn.completed",
            "item.completed",
            "step_finish",
            "tool_use",
            "tool_result",
            "error",
            "message",
            "init",
            "thread.started",
        ]
    ),
)
def test_no_output_makes_a_reader_fail(agent: type[Agent], events: list[Any], kind: str) -> None:
    lines = [json.dumps(event | {"type": kind} if isinstance(event, dict) else event).encode() for event in events]
    report = agent().read_report(lines)
    assert report.usage is None or isinstance(report.usage, TokenUsage)
