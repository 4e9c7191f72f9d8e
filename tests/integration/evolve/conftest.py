"""A small project with a skill, tasks to learn on and one held out, and a scripted model that plays every part."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

MODEL = "claude-sonnet-4-5"
SKILL = ".claude/skills/tally-work/SKILL.md"
BRIEF = "BE-BRIEF"
"""The word in a skill that makes the scripted model's work cheaper."""
Done = subprocess.CompletedProcess[str]


def fairtrial(*arguments: object) -> Done:
    command = [sys.executable, "-m", "fairtrial", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


def usage(output: int) -> dict[str, int]:
    return {"uncached_input": 40, "cache_write": 700, "cache_read": 6000, "output": output}


def bash(command: str) -> list[dict[str, object]]:
    return [{"tool": "Bash", "input": {"command": command}}]


def proposer(generation: int, command: str) -> dict[str, object]:
    return {
        "name": f"proposer-{generation}",
        "match": {"prompt_contains": f"This is generation {generation}."},
        "turns": [
            {"usage": usage(100), "calls": bash(f"set -e; find . -path ./.git -prune -o -type f -print; {command}")},
            {"usage": usage(10), "text": "Proposed."},
        ],
    }


def write(addition: str) -> str:
    """The command by which a proposer adds a line to the skill."""
    return (
        "mkdir -p overlay/.claude/skills/tally-work;"
        f" {{ cat incumbent/{SKILL}; echo '{addition}'; }} > overlay/{SKILL}; echo why > proposal.md"
    )


def worker(task: str, words: str, patch: str) -> dict[str, object]:
    calls = bash(f"git apply <<'PATCH'\n{patch}PATCH\npython3 -m unittest discover -s tests -t . -q")
    return {
        "name": task,
        "match": {"prompt_contains": words},
        "turns": [
            {"usage": usage(60), "calls": [{"tool": "Skill", "input": {"skill": "tally-work"}}]},
            {
                "usage": usage(4000),
                "calls": calls,
                "cases": [{"when": {"contains": BRIEF}, "usage": usage(1000), "calls": calls}],
            },
            {"usage": usage(50), "text": "Done."},
        ],
    }


@dataclass(frozen=True)
class World:
    """A task file and the project whose skill is improved."""

    root: Path

    @property
    def tasks(self) -> Path:
        return self.root / "tasks.yaml"

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def skill(self) -> Path:
        return self.project / SKILL

    def script(self, *proposers: dict[str, object]) -> Path:
        """Write the script of the model: the work on both tasks, and some proposers."""
        work = [
            worker("linear", "by_category and by_month", (self.root / "references/linear.patch").read_text()),
            worker("amounts", "misreads amounts", (self.root / "references/amounts.patch").read_text()),
        ]
        path = self.root / "evolve.yaml"
        path.write_text(json.dumps({"schema": "script/1", "agents": [*proposers, *work]}))
        return path

    def evolve(self, out: Path, script: Path, *more: object) -> list[object]:
        return [
            *("evolve", "--tasks", self.tasks, "--arms", "direct", "--agent", "bash-agent", "--model", MODEL),
            *("--arms-file", self.root / "own.yaml", "--project", self.project),
            *("--script", script, "--rehearsal", "--runs", 1, "--min-runs", 1, "--out", out, "--json"),
            *more,
        ]


def git(project: Path, *arguments: str) -> None:
    env = os.environ | {
        f"GIT_{role}_{part}": "ada@example.invalid" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
    }
    subprocess.run(["git", *arguments], cwd=project, check=True, env=env, capture_output=True)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The example with one task to learn on and one held out, its controls held, its skills in a project."""
    world = World(tmp_path_factory.mktemp("evolve") / "ex")
    assert fairtrial("init", world.root).returncode == 0
    (world.project / ".claude").mkdir(parents=True)
    shutil.copytree(world.root / "skills", world.project / ".claude/skills")
    git(world.project, "init", "-q", "-b", "main", ".")
    git(world.project, "add", "--all")
    git(world.project, "commit", "-q", "-m", "skills")
    (world.root / "own.yaml").write_text(
        "arms:\n  direct: {like: workflow_direct, names: {work: tally-work},"
        " skills: {tally-work: project/.claude/skills/tally-work}}\n"
    )
    text = world.tasks.read_text()
    head, tasks = text.split("  - id: amounts", 1)
    kept = "  - id: amounts" + tasks.split("  - id: json", 1)[0].replace("    class: bug-fix", "    class: bug-fix\n    holdout: true")
    kept += "  - id: linear" + tasks.split("  - id: linear", 1)[1]
    world.tasks.write_text(head + kept)
    done = fairtrial("check", world.tasks, "--runs", 1, "--out", world.root.parent / "check")
    assert done.returncode == 0, done.stdout + done.stderr
    return world


def steps_of(printed: dict[str, Any]) -> Sequence[tuple[int, str, str]]:
    return [(step["generation"], step["step"], step["result"]) for step in printed["steps"]]
