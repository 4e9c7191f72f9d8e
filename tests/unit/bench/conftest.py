"""Task files, arms files and a repository that they name."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.bench.blobs import BlobStore

TASK = """tasks:
  - id: mend-add
    class: bug-fix
    repo: repo
    prompt: Mend add.
    verify: python3 -c "import calc"
    reference: reference.patch
    oracle:
      command: "true"
      files: [{source: oracle.py, target: oracle.py}]
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A directory with a repository, an oracle's file and a patch."""
    repository = tmp_path / "repo"
    repository.mkdir()
    (repository / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*identity, "commit", "-q", "-m", "base")):
        subprocess.run(["git", *words], cwd=repository, env=env, check=True)
    (tmp_path / "oracle.py").write_text("print('hidden')\n")
    (tmp_path / "reference.patch").write_text("--- a/calc.py\n+++ b/calc.py\n")
    return tmp_path


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.fixture
def task_text() -> str:
    """A task file with one task, the shortest that is right."""
    return TASK


@pytest.fixture
def write_tasks(world: Path) -> Callable[[str], Path]:
    """Write a task file beside the repository."""

    def write(text: str) -> Path:
        path = world / "tasks.yaml"
        path.write_text(text)
        return path

    return write
