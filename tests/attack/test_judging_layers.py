"""Judges on real layers: the trees below stay as they are, and what a judge did is gone with its layer."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.host.slot import Slot
from fairtrial.judging.values import ChangedPath, JudgedTree, OracleVerdict, Place
from fairtrial.workspace.layers import Base, Room, Storage, open_layer

pytestmark = pytest.mark.needs("bwrap")

Judge = Callable[..., OracleVerdict]

PROVE = 'echo "$FAIRTRIAL_NONCE" >&"$FAIRTRIAL_PROOF_FD"'
ROOM = Room(disk_bytes=64 << 20, inodes=1000)


@pytest.fixture
def base(slot: Slot) -> Base:
    """A tree with a test that the oracle replaces, a settings file that the change has edited, and a directory."""
    root = slot.root / "base"
    for path, text in {"tests/hidden.sh": "old", "conftest.py": "old", "node_modules/.bin/x": "old"}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path in (root, *root.rglob("*")):
        slot.give(path)
    return Base(trees=(root,))


def content_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("storage", Storage)
def test_what_a_judge_places_restores_and_writes_stays_in_its_layer(
    judge: Judge, slot: Slot, base: Base, storage: Storage
) -> None:
    before = content_of(base.trees[0])
    script = "echo new >made; rm -r node_modules; mv tests/../conftest.py aside; true"
    oracle = judge.oracle(f"sh tests/hidden.sh && {PROVE}", {"tests/hidden.sh": script}, place=Place.WORKSPACE)
    change = (ChangedPath(path=b"conftest.py", before=b"restored", after=b"old"),)
    with open_layer(base, slot=slot, room=ROOM, storage=storage) as layer:
        verdict = judge(oracle, JudgedTree(merged=layer.merged, space=layer.space, change=change))
        assert verdict.passed, verdict
        assert verdict.restored == ("conftest.py",)
        assert (layer.merged / "aside").read_bytes() == b"restored"
        assert (layer.merged / "made").exists()
    assert content_of(base.trees[0]) == before


def test_a_directory_of_the_base_that_is_moved_away_is_noticed(judge: Judge, slot: Slot, base: Base) -> None:
    script = f"(mv tests gone; mkdir -p tests; echo forged >tests/hidden.sh) 2>/dev/null; {PROVE}"
    oracle = judge.oracle(script, {"tests/hidden.sh": "true"}, place=Place.WORKSPACE)
    with open_layer(base, slot=slot, room=ROOM, storage=Storage.DISK) as layer:
        verdict = judge(oracle, JudgedTree(merged=layer.merged, space=layer.space))
        forged = (layer.merged / "tests/hidden.sh").read_text() == "forged\n"
    assert forged is not slot.mounts  # an overlay does not let go of a directory of the base
    assert verdict.passed is not forged


def test_a_judge_that_fills_its_layer_fails(judge: Judge, slot: Slot, base: Base) -> None:
    script = f"dd if=/dev/zero of=big bs=1M count=200 2>/dev/null; sleep 30; {PROVE}"
    oracle = judge.oracle(script, {"a": ""})
    room = replace(ROOM, disk_bytes=8 << 20)
    with open_layer(base, slot=slot, room=room, storage=Storage.MEMORY) as layer:
        verdict = judge(oracle, JudgedTree(merged=layer.merged, space=layer.space))
    assert not verdict.passed
    assert str(verdict.limit) == "disk"
