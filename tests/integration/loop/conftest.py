"""Stages for the tool lane's integration tests: a real git, a real store, no sweep around them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.model.loop import Transport, Variant
from fairtrial.model.trial import LoopTask, TrialSpec
from fairtrial.subjects.git import Git

MakeSpec = Callable[..., TrialSpec]


@pytest.fixture
def git_variant() -> Variant:
    binary = shutil.which("git")
    assert binary is not None
    return Variant(name="git", subject="git", label="git", binary=binary)


@pytest.fixture
def git(git_variant: Variant) -> Git:
    return Git(git_variant)


@pytest.fixture
def make_spec(tmp_path: Path, git_variant: Variant) -> MakeSpec:
    def make(scenario: str = "task_loop", transport: Transport = Transport.FILE, **changes: object) -> TrialSpec:
        task = {
            "scenario": scenario,
            "variant": git_variant,
            "subject_kind": "git",
            "transport": transport,
            "run": 0,
            "block": f"{scenario}/{transport}/0",
            "position_in_block": 0,
            "block_order": ("git",),
            "null_control": False,
            "skip_reason": None,
            "admitted_output_characters": 20_000,
            "n_seed_files": 5,
            "hosted_remote": None,
            "credential_env": (),
        }
        scratch = tmp_path / "s"
        scratch.mkdir(exist_ok=True)
        return TrialSpec(
            sweep="loop-test",
            key=f"loop/{scenario}/{transport}/git/0",
            attempt=1,
            plan_index=0,
            sweep_pass=0,
            results=str(tmp_path / "results"),
            scratch=str(scratch),
            metadata={"bench_id": "loop-test"},
            loop=LoopTask(**(task | changes)),  # type: ignore[arg-type]
        )

    return make
