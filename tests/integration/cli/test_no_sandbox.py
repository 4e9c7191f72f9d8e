"""`bench --unsafe-no-sandbox`: trials run where no sandbox can be made, rows say so, and nothing of them promotes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = [pytest.mark.needs("git"), pytest.mark.timeout(600), pytest.mark.xdist_group("no-sandbox")]

UNSAFE: Final = "--unsafe-no-sandbox"
# No namespaces below this, and no root: a laptop whose administrator has closed them.
REFUSED: Final = (
    *("bwrap", "--dev-bind", "/", "/", "--unshare-user", "--uid", "1000", "--gid", "1000", "--disable-userns"),
    "--",
)
Done = subprocess.CompletedProcess[str]


def fairtrial(*arguments: object, below: tuple[str, ...] = ()) -> Done:
    command = [*below, sys.executable, "-m", "fairtrial", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    directory = tmp_path / "ex"
    done = fairtrial("init", directory)
    assert done.returncode == 0, done.stderr
    return directory


def bench(example: Path, out: Path, *more: object) -> list[object]:
    return [
        *("bench", "--tasks", example / "tasks.yaml", "--only", "linear", "--out", out, "--runs", 1),
        *("--agent", "bash-agent", "--model", "claude-sonnet-4-5", "--script", example / "script.yaml"),
        *(f"--skill=plan={example}/skills/tally-plan", f"--skill=work={example}/skills/tally-work"),
        *more,
    ]


@pytest.mark.needs("bwrap")
def test_where_no_sandbox_can_be_made_trials_run_only_when_asked_for_without(example: Path, tmp_path: Path) -> None:
    refused = fairtrial(*bench(example, tmp_path / "a", "--arms", "baseline"), below=REFUSED)
    assert refused.returncode == 3, refused.stderr
    assert not (tmp_path / "a").exists()
    out = tmp_path / "b"
    done = fairtrial(*bench(example, out, "--arms", "workflow", "baseline", UNSAFE), below=REFUSED)
    assert done.returncode == 0, done.stderr
    assert "NO SANDBOX" in done.stderr
    assert "NOT CONTAINED: 2 rows" in (out / "report.md").read_text()
    rows = {row["arm"]: row for row in rows_of(out)}
    for row in rows.values():
        assert (row["resolved"], row["error_kind"]) == (True, None), row["error_detail"]
        assert (row["sandboxed"], row["sandbox_backend"]) == (False, "none")
        assert set(row["limits_enforced"]) == {"files", "output", "wall"}
    assert rows["workflow"]["skill_invoked"] is True


def test_its_rows_are_refused_by_name(example: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    done = fairtrial(*bench(example, out, "--arms", "workflow", "baseline", UNSAFE))
    assert done.returncode == 0, done.stderr
    policy = ("--incumbent", "baseline", "--candidate", "workflow", "--model", "claude-sonnet-4-5", "--min-runs", 1)
    gate = fairtrial("gate", out, *policy, "--json")
    said = json.loads(gate.stdout)
    assert said["promotable"] is False
    assert gate.returncode != 0
    assert "2 of 2 rows are not run in a sandbox." in json.dumps(said)
    assert fairtrial("audit", out).returncode == 0
    assert not [*tmp_path.glob("**/n????????")], "what stood for the sandbox's places is gone"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--workers", 2], "use --workers 1"),
        (["--arms", "workflow", "candidate_workflow", "--candidate-overlay", "ex"], "leave out --candidate-overlay"),
    ],
)
def test_what_makes_no_sense_without_a_sandbox_is_refused(
    more: list[object], message: str, example: Path, tmp_path: Path
) -> None:
    done = fairtrial(*bench(example, tmp_path / "r", UNSAFE, *more))
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert not (tmp_path / "r").exists()


def test_output_and_time_are_limited_all_the_same(example: Path, tmp_path: Path) -> None:
    text = (example / "tasks.yaml").read_text()
    assert "verify: " in text
    lines = ["    verify: sleep 600" if line.startswith("    verify: ") else line for line in text.splitlines()]
    (example / "tasks.yaml").write_text("\n".join(lines) + "\n")
    out = tmp_path / "r"
    done = fairtrial(*bench(example, out, "--arms", "baseline", UNSAFE, "--timeout", 15))
    (row,) = rows_of(out)
    assert row["error_kind"] == "verify-failed", (row["error_detail"], done.stderr)
    assert "15 s" in row["error_detail"]
