"""A context from end to end: Claude Code asks a ctags index that was built from the tree, and the row says so."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = [
    pytest.mark.needs("bwrap", "git", "claude", "ctags"),
    pytest.mark.timeout(580),
    pytest.mark.xdist_group("agents-contexts"),
]

Sweep = Any
Row = dict[str, Any]
Usage = Callable[..., dict[str, int]]

MEND: Final = "sed -i 's/a - b/a + b/' calc.py"
LOOK: Final = "ls /opt /opt/* /run; ls /run/tools; find / -name '*tags*' -path '*context*' 2>/dev/null; true"
HIDDEN: Final = "answers/solution.py"


@pytest.fixture(scope="module")
def rows(shared_sweep: Sweep, usage: Usage) -> dict[str, Row]:
    """The row of each arm of one sweep: one arm names the context, one is given it, the preset goes without."""
    repository = shared_sweep.root / "repo"
    (repository / "answers").mkdir()
    (repository / HIDDEN).write_text("def the_hidden_answer():\n    return 5\n")
    (repository / "notes.py").write_text(f"def points_at_it():\n    return {HIDDEN!r}\n")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (("add", "-A"), ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "commit", "-qm", "more")):
        subprocess.run(["git", *words], cwd=repository, env=env, check=True)
    tasks = json.loads((shared_sweep.root / "tasks.yaml").read_text())
    tasks["tasks"][0]["hidden"] = ["answers"]
    (shared_sweep.root / "tasks.yaml").write_text(json.dumps(tasks))

    def tool(tool_name: str, /, **given: object) -> dict[str, Any]:
        return {"tool": tool_name, "input": given}

    asks = [
        tool("mcp__ctags__find_symbol", name="add"),
        tool("mcp__ctags__search_symbols", text="hidden_answer"),
        tool("mcp__ctags__list_symbols", path="notes.py"),
    ]
    mend = tool("Bash", command=MEND)
    turns = [
        {"calls": asks, "usage": usage(1)},
        {"calls": [mend, tool("Bash", command=LOOK)], "usage": usage(2)},
        {"text": "Done.", "usage": usage(3)},
    ]
    without = [{"calls": [mend, tool("Bash", command=LOOK)], "usage": usage(4)}, {"text": "Done.", "usage": usage(5)}]
    script = shared_sweep.write_script(
        [
            {"name": "asks", "match": {"prompt_contains": "ARM-ASKS"}, "turns": turns},
            {"name": "other", "turns": without},
        ]
    )
    arms = shared_sweep.write_arms({"asks": {"phases": [{"prompt": "ARM-ASKS. {task}"}], "context": "ctags"}})
    options = ("--runs", 1, "--timeout", 400, "--arms-file", arms, "--script", script, "--context", "ctags")
    done = shared_sweep.run(*options, arms="asks,baseline,baseline_nomcp", agent="claude-code")
    rows = {row["arm"]: row for row in shared_sweep.rows}
    assert rows.keys() == {"asks", "baseline", "baseline_nomcp"}, done.stderr
    return rows


def transcript_of(sweep: Sweep, row: Row) -> str:
    found = [path for path in sweep.out.rglob("transcript-work.jsonl") if row["key"] in intent_of(path.parent)]
    (path,) = found
    return str(path.read_text())


def intent_of(directory: Path) -> str:
    return str((directory / "intent.json").read_text())


@pytest.mark.parametrize("arm", ["asks", "baseline", "baseline_nomcp"])
def test_every_arm_does_its_work(rows: dict[str, Row], arm: str) -> None:
    assert (rows[arm]["resolved"], rows[arm]["error_kind"]) == (True, None), rows[arm]["error_detail"]


def test_an_arm_asks_its_context_and_the_answers_come_from_the_tree(rows: dict[str, Row], shared_sweep: Sweep) -> None:
    transcript = transcript_of(shared_sweep, rows["asks"])
    assert "calc.py:1: function add (a, b)" in transcript
    (seen,) = rows["asks"]["context_sessions"]
    calls = {"find_symbol": 1, "list_symbols": 1, "search_symbols": 1}
    assert seen["calls"] == seen["server_calls"] == calls, "the wire and the server agree"
    assert seen["server_listed"] == ["find_symbol", "list_symbols", "search_symbols"]
    assert (seen["server_failed_calls"], seen["server_refused_calls"]) == ({}, {})
    assert (seen["phase"], seen["server_ended"]) == ("work", "stopped")
    assert seen["offered"] == seen["server_listed"]


def test_what_the_task_hides_and_what_names_it_is_not_in_the_index(rows: dict[str, Row], shared_sweep: Sweep) -> None:
    transcript = transcript_of(shared_sweep, rows["asks"])
    assert "no symbol has 'hidden_answer'" in transcript
    assert "no symbols in 'notes.py'" in transcript
    assert rows["asks"]["context_index"]["withheld"] == ["notes.py"]


def test_the_row_says_which_index_it_was(rows: dict[str, Row]) -> None:
    index = rows["asks"]["context_index"]
    assert rows["asks"]["context"] == "ctags"
    assert index["version"].startswith("Universal Ctags ")
    assert (index["files"], index["markers"], index["mutating"]) == (1, 3, [])
    assert index["bytes"] > 0
    assert index["commit"] == rows["asks"]["sanitized_task_sha"]
    assert index["server"]["name"] == "ctags"
    for name in ("sanitized_graph_snapshot_digest", "sanitized_graph_manifest_digest"):
        assert len(rows["asks"][name]) == 64
        assert rows["asks"][name] == rows["baseline"][name], "both arms have the same index"
        assert rows["baseline_nomcp"][name] is None


def test_a_sweeps_context_is_for_every_arm_that_does_not_say_otherwise(rows: dict[str, Row]) -> None:
    assert rows["baseline"]["context"] == "ctags"
    (seen,) = rows["baseline"]["context_sessions"]
    assert (seen["calls"], seen["server_calls"]) == ({}, {}), "it had the tools, and used none"
    assert seen["server_connections"] == 1


def test_the_arm_without_has_no_trace_of_it(rows: dict[str, Row], shared_sweep: Sweep) -> None:
    row = rows["baseline_nomcp"]
    assert (row["context"], row["context_index"], row["context_sessions"]) == (None, None, [])
    (environment,) = row["environment"]
    assert environment["mcp_servers"] == {}
    transcript = transcript_of(shared_sweep, row)
    assert "ctags" not in transcript
    assert "bridge.py" not in transcript
    assert "cannot access '/run/tools'" in transcript
    (wire,) = [path for path in shared_sweep.out.rglob("wire-work.jsonl") if row["key"] in intent_of(path.parent)]
    offered = {name for line in wire.read_text().splitlines() for name in json.loads(line).get("tools", ())}
    assert "Bash" in offered
    assert not [name for name in offered if "ctags" in name or name.startswith("mcp")]


def test_a_session_sees_a_socket_and_a_bridge_and_nothing_of_the_index(
    rows: dict[str, Row], shared_sweep: Sweep
) -> None:
    transcript = transcript_of(shared_sweep, rows["asks"])
    assert "bridge.py" in transcript
    assert "tags.jsonl" not in transcript
    assert "tool_host.py" not in transcript


def test_sessions_with_a_context_differ_only_as_their_arms_say(rows: dict[str, Row]) -> None:
    (asks,), (without,) = rows["asks"]["environment"], rows["baseline_nomcp"]["environment"]
    assert len(asks["mcp_servers"]) == 1
    assert asks["mounts"] == without["mounts"]
    more = {"MCP_CONNECTION_NONBLOCKING", "MCP_TIMEOUT"}
    assert {name: each for name, each in asks["variables"].items() if name not in more} == without["variables"]
