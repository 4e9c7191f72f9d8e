"""B16: forty work places of one commit, made at the same moment; none fails, none meets another, none is left."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Final

import pytest

from fairtrial.host.slot import Slot
from fairtrial.workspace.layers import Base, Room, Storage, open_layer
from fairtrial.workspace.template import make_template, resolve_commit

pytestmark = [pytest.mark.needs("git"), pytest.mark.timeout(600)]

N: Final = 40
ENV: Final = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


def git(directory: Path, *words: str, slot: Slot | None = None) -> str:
    command = ("git", "-c", "user.name=a", "-c", "user.email=a", *words)
    argv = command if slot is None else slot.argv(command)
    done = subprocess.run(argv, cwd=directory, env=ENV, check=False, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def test_forty_places_are_acquired_used_and_released_at_once(public_path: Path, slot: Slot) -> None:
    source = public_path / "source"
    source.mkdir()
    (source / "a").write_text("base\n")
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-q", "-m", "base")
    template = make_template(source, resolve_commit(source, "HEAD"), slot.root / "t", slot=slot)
    before = {path.name for path in slot.root.iterdir()}
    room, together = Room(disk_bytes=64 << 20, inodes=10_000), Barrier(N, timeout=300)

    def use(number: int) -> tuple[str, str]:
        together.wait()
        with open_layer(Base(trees=(template.tree,)), slot=slot, room=room, storage=Storage.DISK) as layer:
            git(layer.merged, "checkout", "-q", "-b", "mine", slot=slot)
            git(layer.merged, "commit", "-q", "--allow-empty", "-m", f"of {number}", slot=slot)
            together.wait()
            return git(layer.merged, "log", "--format=%s", slot=slot), git(layer.merged, "branch", slot=slot)

    with ThreadPoolExecutor(N) as pool:
        seen = list(pool.map(use, range(N)))
    for number, (subjects, branches) in enumerate(seen):
        assert subjects.splitlines()[0] == f"of {number}"
        assert len(subjects.splitlines()) == 2
        assert branches.count("mine") == 1
    assert {path.name for path in slot.root.iterdir()} == before
    assert git(source, "worktree", "list").count("\n") == 1
    assert not list(source.rglob("*.lock"))
