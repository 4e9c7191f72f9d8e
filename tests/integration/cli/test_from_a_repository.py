"""From a repository to a task: the five lines of the how-to page, and what `fairtrial init` says to run."""

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(600), pytest.mark.xdist_group("bench")]

Done = subprocess.CompletedProcess[str]


def shell(text: str, cwd: Path) -> Done:
    """Run what a person would type; `fairtrial` is the one under test."""
    own = f'fairtrial() {{ {shlex.quote(sys.executable)} -m fairtrial "$@"; }}\nset -e\n'
    command = ["/bin/sh", "-c", own + text]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=500, env=os.environ)


def test_an_upstream_bug_fix_becomes_a_task_in_five_lines(clone: Path, tmp_path: Path) -> None:
    assert shell("fairtrial init x && mv x/repository project && rm -r x", tmp_path).returncode == 0
    fix = shell("git -C project rev-parse HEAD", tmp_path).stdout.strip()
    page = (clone / "docs" / "how-to" / "write-a-task.md").read_text()
    blocks = [
        textwrap.dedent(block).strip("\n") for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.MULTILINE)
    ]
    lines = next(block for block in blocks if "rev-parse FIX^" in block).splitlines()
    assert len(lines) == 5
    assert lines[-1].startswith("editor ")
    prepared = shell("\n".join(lines[:-1]).replace("FIX", fix), tmp_path)
    assert prepared.returncode == 0, prepared.stderr
    task = next(block for block in blocks if block.startswith("tasks:"))
    task, n_replaced = re.subn(r"ref: \S+", f"ref: {prepared.stdout.split()[0]}", task)
    assert n_replaced == 1
    (tmp_path / "tasks" / "tasks.yaml").write_text(task)
    done = shell("fairtrial check tasks/tasks.yaml --runs 1 --json", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    controls = {each["control"]: each["held"] for each in json.loads(done.stdout)["controls"]}
    assert controls == {"nop": "held", "reference": "held", "cheat-exit-0-at-import": "held"}


def test_tasks_that_are_kept_in_the_repository_itself_are_refused_until_they_are_hidden(tmp_path: Path) -> None:
    told = shell(
        "fairtrial init mine && mkdir mine/repository/eval && cd mine && mv tasks.yaml oracles cheats"
        " references repository/eval && git -C repository add -A && git -C repository -c user.name=t"
        " -c user.email=t@example.invalid commit -qm tasks",
        tmp_path,
    )
    assert told.returncode == 0, told.stderr
    tasks = tmp_path / "mine" / "repository" / "eval" / "tasks.yaml"
    tasks.write_text(tasks.read_text().replace("    repo: repository", "    repo: .."))
    plan = f"fairtrial bench --tasks {tasks} --only linear --arms baseline --agent bash-agent --model m-1 --dry-run"
    for command in (plan, f"fairtrial check {tasks} --only linear --out c"):
        done = shell(command, tmp_path)
        assert done.returncode == 2, done.stdout + done.stderr
        said = " ".join(done.stderr.split())
        assert (
            "'eval/tasks.yaml' is the task file, 'eval/oracles/test_linear.py' is the oracle's test_linear.py" in said
        )
        assert "'eval/references/linear.patch' is the reference. Name these paths" in said
    looked = shell(f"fairtrial doctor --json --tasks {tasks}", tmp_path)
    (linear,) = (each for each in json.loads(looked.stdout)["checks"] if each["name"] == "task linear")
    assert (linear["status"], "'eval/tasks.yaml' is the task file" in linear["found"]) == ("cannot", True)
    tasks.write_text(tasks.read_text().replace("    repo: ..", "    repo: ..\n    hidden: [eval]"))
    done = shell(plan, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_init_says_to_run_runs_and_every_verdict_of_it_can_be_repeated(tmp_path: Path) -> None:
    told = shell("fairtrial init mine", tmp_path)
    assert told.returncode == 0, told.stderr
    text = told.stdout.replace("\\\n", " ")
    check, bench = (line.strip() for line in text.splitlines() if line.startswith("  fairtrial "))
    checked = shell(f"{check} --only linear --runs 1", tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    done = shell(f"{bench} --only linear --runs 1 --out r", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NO FRESH CONTROLS" not in done.stdout
    again = shell("fairtrial audit r --rejudge --json", tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    rejudged = json.loads(again.stdout)["rejudged"]
    assert [each["changes"] for each in rejudged] == [[] for _ in rejudged]
    assert {each["key"] for each in rejudged} == {"bench/linear/baseline/0", "bench/linear/workflow/0"}
    journal = tmp_path / "r" / "results.jsonl"
    rows = journal.read_text()
    assert rows.count('"authored_tests_passed":true') == 2
    journal.write_text(rows.replace('"authored_tests_passed":true', '"authored_tests_passed":false', 1))
    forged = shell("fairtrial audit r --rejudge --json", tmp_path)
    assert forged.returncode == 4, forged.stdout + forged.stderr
    found = [each["changes"] for each in json.loads(forged.stdout)["rejudged"] if each["changes"]]
    assert found == [["authored_tests_passed was False, is True"]]
    journal.write_text(rows)
    with (tmp_path / "mine/oracles/test_linear.py").open("a") as oracle:
        oracle.write("# no other test\n")
    other = shell("fairtrial audit r --rejudge", tmp_path)
    assert other.returncode == 2, other.stdout + other.stderr
    assert "linear" in other.stderr
    assert "put them back" in other.stderr
