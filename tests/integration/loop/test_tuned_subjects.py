"""The tuned forms of git that are shipped, each played as it stands in its file."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairtrial.cli.subjects import read_variants
from fairtrial.loop.trial import run_loop_trial
from fairtrial.model.loop import Transport
from fairtrial.subjects.git import Git

pytestmark = pytest.mark.needs("git")


def play(make_spec: Callable[..., Any], clone: Path, name: str, scenario: str) -> list[dict[str, Any]]:
    (variant,) = read_variants([name], clone / "docs" / "how-to" / "tuned-subjects.toml")
    variant = replace(variant, binary=shutil.which("git"))
    spec = make_spec(scenario, Transport.FILE, variant=variant)
    return list(run_loop_trial(spec, Git(variant)).rows)


def test_git_with_an_untracked_cache_does_its_tasks(make_spec: Callable[..., Any], clone: Path) -> None:
    total = play(make_spec, clone, "git-fsmonitor", "task_loop")[-1]
    assert (total["returncode"], total["oracle_payload_on_remote_branch"]) == (0, True), total


def test_a_partial_and_sparse_clone_does_its_task_with_fewer_files(make_spec: Callable[..., Any], clone: Path) -> None:
    rows = play(make_spec, clone, "git-partial-sparse", "agent_task_baseline_v1")
    total = rows[-1]
    assert (total["returncode"], total["oracle_payload_on_remote_branch"]) == (0, True), total
    (acquire,) = (row for row in rows if row["operation"] == "cold.acquire")
    assert "--sparse" in acquire["command"]


def test_tasks_share_a_clone_that_is_partial_and_sparse_too(
    make_spec: Callable[..., Any], clone: Path, tmp_path: Path
) -> None:
    total = play(make_spec, clone, "git-partial-sparse", "task_loop")[-1]
    assert (total["returncode"], total["oracle_payload_on_remote_branch"]) == (0, True), total
    (base,) = (tmp_path / "s").glob("*/base/.git")
    assert "partialclonefilter = blob:none" in (base / "config").read_text().lower()
    assert (base / "info" / "sparse-checkout").is_file()
