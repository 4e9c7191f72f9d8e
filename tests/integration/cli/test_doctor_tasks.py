"""`fairtrial doctor --tasks`: what a task's check says of the untouched base, before anything is spent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(300)]

CHECKS = {
    "passes": "test -f calc.py",
    "fails": "printf 'one\\nNo\\033[2J\\n' >&2; exit 1",
    "lacks-a-module": "python3 -c 'import no_such_module'",
    "lacks-a-program": "no-such-program",
}


def test_each_check_is_tried_on_the_base_and_what_is_missing_is_named(public_path: Path) -> None:
    repository = public_path / "repo"
    repository.mkdir()
    (repository / "calc.py").write_text("")
    (public_path / "hidden").write_text("")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-q", "-m", "base")):
        subprocess.run(["git", *words], cwd=repository, env=env, check=True)
    oracle = {"command": "true", "files": [{"source": "hidden", "target": "hidden"}]}
    tasks = [
        {"id": name, "class": "x", "repo": "repo", "prompt": "x", "verify": check, "oracle": oracle}
        for name, check in CHECKS.items()
    ]
    (public_path / "tasks.yaml").write_text(json.dumps({"tasks": tasks}))
    command = [sys.executable, "-m", "fairtrial", "doctor", "--json", "--tasks", public_path / "tasks.yaml"]
    done = subprocess.run(
        [*command, "--scratch", public_path], capture_output=True, text=True, check=False, timeout=250, env=os.environ
    )
    assert done.returncode == 3, done.stderr
    checks = {each["name"]: each for each in json.loads(done.stdout)["checks"]}
    seen = {name: (checks[f"task {name}"]["status"], checks[f"task {name}"]["found"]) for name in CHECKS}
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, env=env, check=True, capture_output=True, text=True
    )
    base = f"the base (commit {head.stdout[:12]}: what is not committed is not there)"
    fails = f"its authored check fails on {base}"
    missing = "ModuleNotFoundError: No module named 'no_such_module'"
    assert seen == {
        "passes": ("ok", f"its authored check passes on {base}"),
        "fails": ("note", f"{fails}; its last line: No\\x1b[2J"),
        "lacks-a-module": ("note", f"{fails}; it says that no_such_module is missing; its last line: {missing}"),
        "lacks-a-program": ("cannot", "no-such-program is missing in the sandbox"),
    }
    assert "toolchains" in checks["task lacks-a-program"]["remedy"]
