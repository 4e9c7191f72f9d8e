"""A limit that this host cannot enforce is refused before anything is made, or allowed by name and never promoted.

The host is a kernel that says of itself that it is 2.6 (its personality UNAME26), and a user without rights: there
processes are not counted a user namespace, no uid of a slot's own is there to count them by, and no control group.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from fairtrial.model.sandbox import Limit

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(600), pytest.mark.xdist_group("unenforced")]

OLD_HOST: Final = (
    *("setarch", "--uname-2.6"),
    *("bwrap", "--dev-bind", "/", "/", "--unshare-user", "--uid", "1000", "--gid", "1000"),
    *("--tmpfs", "/sys/fs/cgroup", "--"),
)
MODEL: Final = "claude-sonnet-4-5"
Done = subprocess.CompletedProcess[str]


def fairtrial(*arguments: object, below: tuple[str, ...] = ()) -> Done:
    command = [*below, sys.executable, "-m", "fairtrial", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    directory = tmp_path / "ex"
    done = fairtrial("init", directory)
    assert done.returncode == 0, done.stderr
    return directory


def bench(example: Path, out: Path, *more: object) -> list[object]:
    return [
        *("bench", "--tasks", example / "tasks.yaml", "--only", "linear", "--out", out, "--runs", 1),
        *("--arms", "workflow_direct", "baseline", "--agent", "bash-agent", "--model", MODEL),
        *("--script", example / "script.yaml", f"--skill=work={example}/skills/tally-work", *more),
    ]


def gate_of(out: Path) -> tuple[int, dict[str, Any]]:
    policy = ("--incumbent", "baseline", "--candidate", "workflow_direct", "--model", MODEL, "--min-runs", 1)
    done = fairtrial("gate", out, *policy, "--json")
    return done.returncode, json.loads(done.stdout)


def test_a_limit_that_cannot_be_enforced_is_refused_before_anything_is_made(example: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    for more in ((), ("--allow-unenforced", "memory")):
        done = fairtrial(*bench(example, out, *more), below=OLD_HOST)
        assert done.returncode == 3, done.stderr
        said = done.stderr.strip().splitlines()[-1]
        assert said.startswith("fairtrial: error: limits that this host cannot enforce: processes; ")
        assert "use a kernel from 5.14" in said
        assert "--allow-unenforced" in said
        assert not out.exists(), "nothing is spent"


def sandboxes_of(scratch: Path, *below: str) -> tuple[str, str]:
    done = fairtrial("doctor", "--json", "--scratch", scratch, below=below)
    (check,) = (each for each in json.loads(done.stdout)["checks"] if each["name"] == "sandboxes")
    return check["status"], check["found"]


def test_doctor_says_what_enforces_each_limit_and_which_cannot_be(public_path: Path) -> None:
    status, found = sandboxes_of(public_path)
    assert status == "ok", found
    limits = found.removeprefix("they work; limits: ").partition("; an oracle with")[0]
    assert set(Limit) <= set(re.findall(r"(?:^|, )(\w+) by \w", limits)), found
    status, found = sandboxes_of(public_path, *OLD_HOST)
    assert status == "note", "the tool lane needs none"
    assert found.startswith("limits that this host cannot enforce: processes; ")


def test_an_allowed_one_stands_in_each_row_and_its_rows_never_promote(example: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    done = fairtrial(*bench(example, out, "--allow-unenforced", "processes"), below=OLD_HOST)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [row["error_kind"] for row in rows] == [None, None], done.stderr
    for row in rows:
        assert set(row["limits_enforced"]) == {"memory", "cpu", "disk", "inodes", "files", "output", "wall"}
        assert "(no memory cgroup: " in row["limits_enforced"]["memory"]
        assert (row["sandboxed"], row["sandbox_backend"]) == (True, "bubblewrap")
    assert json.loads((out / "sweep.json").read_text())["options"]["allow_unenforced"] == ["processes"]
    code, said = gate_of(out)
    assert said["promotable"] is False
    assert code != 0
    assert "2 of 2 rows are without an enforced limit of processes." in json.dumps(said)
    assert fairtrial("audit", out).returncode == 0


def test_where_every_limit_is_enforced_to_allow_one_changes_nothing(example: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    done = fairtrial(*bench(example, out, "--allow-unenforced", "processes"))
    assert done.returncode == 0, done.stderr
    for line in (out / "results.jsonl").read_text().splitlines():
        assert json.loads(line)["limits_enforced"]["processes"]
    assert "without an enforced limit" not in json.dumps(gate_of(out))
