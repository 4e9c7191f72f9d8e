"""The context gitnexus from end to end: Claude Code asks a graph that was built from the tree, and the row says so."""

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any, Final

import pytest

from fairtrial.contexts.gitnexus import GitNexus

pytestmark = [
    pytest.mark.needs("bwrap", "git", "claude", "gitnexus"),
    pytest.mark.timeout(580),
    pytest.mark.xdist_group("agents-gitnexus"),
]

Sweep = Any
Row = dict[str, Any]
Usage = Callable[..., dict[str, int]]

MEND: Final = "sed -i 's/a - b/a + b/' calc.py"
HIDDEN: Final = "answers/solution.py"


@pytest.fixture(scope="module")
def rows(shared_sweep: Sweep, usage: Usage) -> dict[str, Row]:
    """The row of each arm of one sweep: one arm asks the graph, the preset goes without."""
    repository = shared_sweep.root / "repo"
    (repository / "answers").mkdir()
    (repository / HIDDEN).write_text("def the_hidden_answer():\n    return 5\n")
    (repository / "notes.py").write_text(f"def points_at_it():\n    return {HIDDEN!r}\n")
    (repository / "uses.py").write_text("from calc import add\n\n\ndef twice(a):\n    return add(a, a)\n")
    (repository / ".gitnexusignore").write_text("uses.py\n")
    (repository / ".gitnexusrc").write_text("no JSON")
    (repository / ".gitnexus").mkdir()
    (repository / ".gitnexus" / "meta.json").write_text("the index of somebody else")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (("add", "-A"), ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "commit", "-qm", "more")):
        subprocess.run(["git", *words], cwd=repository, env=env, check=True)
    tasks = json.loads((shared_sweep.root / "tasks.yaml").read_text())
    tasks["tasks"][0]["hidden"] = ["answers", *GitNexus.settings]
    (shared_sweep.root / "tasks.yaml").write_text(json.dumps(tasks))

    def tool(tool_name: str, /, **given: object) -> dict[str, Any]:
        return {"tool": tool_name, "input": given}

    asks = [
        tool("mcp__gitnexus__context", name="add"),
        tool("mcp__gitnexus__context", name="the_hidden_answer"),
        tool("mcp__gitnexus__impact", target="points_at_it", direction="upstream"),
    ]
    mend = {"calls": [tool("Bash", command=MEND), tool("Bash", command="ls -A")], "usage": usage(2)}
    done = {"text": "Done.", "usage": usage(3)}
    script = shared_sweep.write_script(
        [
            {
                "name": "asks",
                "match": {"prompt_contains": "ARM-ASKS"},
                "turns": [{"calls": asks, "usage": usage(1)}, mend, done],
            },
            {"name": "other", "turns": [mend, done]},
        ]
    )
    arms = shared_sweep.write_arms({"asks": {"phases": [{"prompt": "ARM-ASKS. {task}"}], "context": "gitnexus"}})
    options = ("--runs", 1, "--timeout", 400, "--arms-file", arms, "--script", script)
    ran = shared_sweep.run(*options, arms="asks,baseline_nomcp", agent="claude-code")
    rows = {row["arm"]: row for row in shared_sweep.rows}
    assert rows.keys() == {"asks", "baseline_nomcp"}, ran.stderr
    return rows


def text_of(sweep: Sweep, row: Row, name: str) -> str:
    (path,) = [path for path in sweep.out.rglob(name) if row["key"] in (path.parent / "intent.json").read_text()]
    return str(path.read_text())


@pytest.mark.parametrize("arm", ["asks", "baseline_nomcp"])
def test_both_arms_do_their_work(rows: dict[str, Row], arm: str) -> None:
    assert (rows[arm]["resolved"], rows[arm]["error_kind"]) == (True, None), rows[arm]["error_detail"]


def test_the_answers_come_from_the_tree_whatever_was_committed_of_gitnexus(
    rows: dict[str, Row], shared_sweep: Sweep
) -> None:
    transcript = text_of(shared_sweep, rows["asks"], "transcript-work.jsonl")
    assert "Function:uses.py:twice" in transcript, "it calls what was asked about, and is ignored by a file of the tree"
    (seen,) = rows["asks"]["context_sessions"]
    assert seen["calls"] == seen["server_calls"] == {"context": 2, "impact": 1}, "the wire and the server agree"
    assert (seen["server_refused_calls"], seen["server_ended"]) == ({}, "stopped")


def test_the_model_is_offered_what_reads_and_nothing_else(rows: dict[str, Row]) -> None:
    (seen,) = rows["asks"]["context_sessions"]
    assert seen["offered"] == seen["server_listed"] == sorted(GitNexus.tools)
    assert rows["asks"]["context_index"]["mutating"] == sorted(GitNexus.mutating)


def test_what_the_task_hides_and_what_names_it_is_not_in_the_graph(rows: dict[str, Row], shared_sweep: Sweep) -> None:
    transcript = text_of(shared_sweep, rows["asks"], "transcript-work.jsonl")
    assert "solution.py" not in transcript
    assert "Function:notes.py" not in transcript
    assert rows["asks"]["context_index"]["withheld"] == ["notes.py"]


def test_the_row_says_which_graph_it_was(rows: dict[str, Row]) -> None:
    index = rows["asks"]["context_index"]
    assert rows["asks"]["context"] == "gitnexus"
    assert index["version"].startswith("gitnexus 1.")
    assert (index["files"], index["commit"]) == (3, rows["asks"]["sanitized_task_sha"])
    assert index["server"]["name"] == "gitnexus"
    assert len(rows["asks"]["sanitized_graph_snapshot_digest"]) == 64


def test_the_arm_without_has_no_trace_of_it(rows: dict[str, Row], shared_sweep: Sweep) -> None:
    row = rows["baseline_nomcp"]
    assert (row["context"], row["context_index"], row["context_sessions"]) == (None, None, [])
    assert row["sanitized_graph_snapshot_digest"] is None
    transcript = text_of(shared_sweep, row, "transcript-work.jsonl")
    assert "uses.py" in transcript, "it looked at all of the tree"
    assert "gitnexus" not in transcript
    assert "mcp__" not in transcript
    wire = text_of(shared_sweep, row, "wire-work.jsonl")
    offered = {name for line in wire.splitlines() for name in json.loads(line).get("tools", ())}
    assert "Bash" in offered
    assert not [name for name in offered if name.startswith("mcp")]
