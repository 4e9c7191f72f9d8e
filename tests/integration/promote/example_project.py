"""The shipped example as a project whose skills are committed, and sweeps of its candidates."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

MODEL: Final = "claude-sonnet-4-5"
PAIR: Final = ("workflow", "candidate_workflow")
Done = subprocess.CompletedProcess[str]


def fairtrial(*arguments: object) -> Done:
    """Run a command of ours."""
    argv = [sys.executable, "-m", "fairtrial", "-q", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=800)


def git(directory: Path, *words: str) -> None:
    """Run git as somebody."""
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True)


def make_project(directory: Path, *, checked: str) -> None:
    """Write the example, commit its skills, and check some of its tasks."""
    assert fairtrial("init", directory).returncode == 0
    git(directory, "init", "-q")
    git(directory, "add", "skills")
    git(directory, "commit", "-qm", "skills")
    out = directory / "checked"
    done = fairtrial("check", directory / "tasks.yaml", "--only", checked, "--runs", 1, "--out", out)
    assert done.returncode == 0, done.stderr


def bench(
    example: Path,
    candidate: str,
    *more: object,
    only: str = "linear",
    script: str = "script",
    arms: str = ",".join(PAIR),
) -> list[str]:
    """The words of a sweep of one of the example's candidates."""
    words = [
        *("bench", "--tasks", example / "tasks.yaml", "--only", only, "--arms", arms),
        *("--agent", "bash-agent", "--model", MODEL, "--script", example / f"{script}.yaml"),
        *(f"--skill=plan={example}/skills/tally-plan", f"--skill=work={example}/skills/tally-work"),
        *("--candidate-overlay", example / "candidates" / candidate, "--skill-layout", example / "skills.yaml"),
        *("--project", example, *more),
    ]
    return list(map(str, words))


def rows_of(results: Path) -> list[dict[str, Any]]:
    """Its rows."""
    return [json.loads(line) for line in (results / "results.jsonl").read_text().splitlines()]


def promotion_of(results: Path) -> dict[str, Any]:
    """Its promotion."""
    value: dict[str, Any] = json.loads((results / "promotion.json").read_text())
    return value
