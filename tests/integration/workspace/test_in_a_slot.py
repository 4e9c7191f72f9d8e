"""The workspace at full size, and its tests once more where layers are overlays: in a worker that owns its mounts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairtrial.host.slot import Slot, slot_argv
from fairtrial.workspace.change import read_change
from fairtrial.workspace.layers import Base, Room, Storage, open_layer
from fairtrial.workspace.template import make_template, resolve_commit

pytestmark = [pytest.mark.needs("git"), pytest.mark.timeout(600)]


@pytest.mark.needs("slot")
def test_what_holds_for_copies_holds_for_overlays(clone: Path) -> None:
    options = ["-q", "-n0", "-p", "no:randomly", "-o", "cache_dir=.cache/pytest-slot"]
    argv = slot_argv([sys.executable, "-m", "pytest", *options, "tests/unit/workspace/test_change.py"], 7)
    done = subprocess.run(argv, cwd=clone, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_ten_thousand_files_make_a_template_and_a_layer(public_path: Path, slot: Slot) -> None:
    source = public_path / "source"
    for number in range(10_000):
        path = source / f"d{number % 100}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    # So many loose objects would make git pack them, on its own and after it has answered.
    identity = ("-c", "user.name=a", "-c", "user.email=a", "-c", "maintenance.auto=false")
    for words in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-q", "-m", "x")):
        subprocess.run(["git", *words], cwd=source, env=env, check=True)
    template = make_template(source, resolve_commit(source, "HEAD"), slot.root / "t", slot=slot)
    assert len(template.tracked) == 10_000
    room = Room(disk_bytes=1 << 30, inodes=100_000)
    with open_layer(Base(trees=(template.tree,)), slot=slot, room=room, storage=Storage.DISK) as layer:
        (layer.merged / "d7" / "f7").write_text("changed")
        assert [entry.path for entry in read_change(layer, template, slot=slot).entries] == [b"d7/f7"]
