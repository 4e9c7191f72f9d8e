"""Review arms with real Claude Code: the shipped clean control, by a skill of the project and by one of a plugin."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = [
    pytest.mark.needs("bwrap", "git", "claude"),
    pytest.mark.timeout(580),
    pytest.mark.xdist_group("review-arms"),
]

CE: Final = "compound-engineering"
SKILLS: Final = ("ce-plan", "ce-work", "ce-code-review")
APPROVAL: Final = {"schema_version": 1, "verdict": "approve", "findings": []}
LEAVE: Final = (
    f"(echo x > README.md) 2>/dev/null || cat > /review/review-output.json <<'END'\n{json.dumps(APPROVAL)}\nEND"
)
USAGE: Final = {"uncached_input": 10, "output": 5}


def fairtrial(*arguments: object) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "fairtrial", "-q", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=500, env=os.environ)


def reviewer(name: str, prompt: str, skill: str) -> dict[str, Any]:
    calls = [("Skill", {"skill": skill}), ("Bash", {"command": LEAVE})]
    turns: list[dict[str, Any]] = [{"calls": [{"tool": tool, "input": given}], "usage": USAGE} for tool, given in calls]
    return {"name": name, "match": {"prompt_contains": prompt}, "turns": [*turns, {"text": "Done.", "usage": USAGE}]}


def test_claude_code_reviews_a_tree_that_it_cannot_write(tmp_path: Path) -> None:
    example, plugin = tmp_path / "ex", tmp_path / "ce"
    assert fairtrial("init", example).returncode == 0
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / ".claude-plugin" / "plugin.json").write_text(json.dumps({"name": CE, "version": "0.3.1"}))
    for skill in SKILLS:
        (plugin / "skills" / skill).mkdir(parents=True)
        (plugin / "skills" / skill / "SKILL.md").write_text(
            f"---\nname: {skill}\ndescription: How it goes\n---\nDo it.\n"
        )
    agents = [
        reviewer("ce", f"ce-code-review skill of the {CE} plugin to review", f"{CE}:ce-code-review"),
        reviewer("own", "tally-review skill to review", "tally-review"),
    ]
    (example / "claude.yaml").write_text(json.dumps({"schema": "script/1", "agents": agents}))
    done = fairtrial(
        *("bench", "--tasks", example / "reviews.yaml", "--only", "review-since", "--arms", "review,ce_review"),
        *("--plugin", f"{CE}@0.3.1={plugin}", f"--skill=review={example}/skills/tally-review", "--runs", 1),
        *("--agent", "claude-code", "--model", "claude-sonnet-4-5", "--script", example / "claude.yaml"),
        *("--timeout", 200, "--out", tmp_path / "r"),
    )

    lines = (tmp_path / "r" / "results.jsonl").read_text().splitlines()
    rows = {row["arm"]: row for row in map(json.loads, lines)}
    assert rows.keys() == {"review", "ce_review"}, done.stderr
    for row in rows.values():
        assert (row["resolved"], row["skill_invoked"], row["diff_files"]) == (True, True, 0), row["error_detail"]
        assert (row["review"]["clean_pass"], row["review_evidence_valid"]) == (True, True)
    assert rows["ce_review"]["plugin_seen"][0]["loaded"] == ["ce-code-review"]
    assert (rows["ce_review"]["ce_plugin_version"], rows["review"]["ce_plugin_version"]) == ("0.3.1", None)
