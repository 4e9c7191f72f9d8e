import os
from pathlib import Path

import pytest

from fairtrial.host.slot import Slot
from fairtrial.judging.placement import MountPoint, make_mount_point, place_file, read_file, remove_path


@pytest.fixture
def root(slot: Slot) -> Path:
    directory = slot.root / "t"
    directory.mkdir()
    return directory


def place(root: Path, path: str, slot: Slot, content: bytes = b"new") -> None:
    place_file(root, path.encode(), content, slot=slot).close()


def test_a_file_is_the_slots_and_has_its_bytes(root: Path, slot: Slot) -> None:
    place(root, "a/b/c", slot)
    status = (root / "a/b/c").stat()
    assert (root / "a/b/c").read_bytes() == b"new"
    assert (status.st_uid, (root / "a").stat().st_uid) == (slot.uid, slot.uid)


def test_what_is_in_the_way_is_replaced_and_no_link_followed(root: Path, slot: Slot, tmp_path: Path) -> None:
    (root / "file").write_text("old")
    (root / "link").symlink_to(tmp_path)
    (root / "last").symlink_to(tmp_path / "outside")
    (root / "full/of/things").mkdir(parents=True)
    place(root, "file/x", slot)
    place(root, "link/x", slot)
    place(root, "last", slot)
    place(root, "full", slot)
    assert [(root / name).read_bytes() for name in ("file/x", "link/x", "last", "full")] == [b"new"] * 4
    assert list(tmp_path.iterdir()) == []


def test_a_placed_file_knows_whether_it_is_itself(root: Path, slot: Slot) -> None:
    placed = place_file(root, b"d/f", b"new", slot=slot)
    assert placed.is_intact()
    (root / "d").rename(root / "e")
    assert not placed.is_intact()
    (root / "d").symlink_to("e")
    assert not placed.is_intact()
    (root / "d").unlink()
    (root / "d").mkdir()
    (root / "d/f").write_bytes(b"new")
    assert not placed.is_intact()
    (root / "d/f").unlink()
    (root / "e/f").rename(root / "d/f")
    assert placed.is_intact()
    (root / "d/f").write_bytes(b"newer")
    assert not placed.is_intact()
    placed.close()


def test_removing_takes_files_links_and_trees_and_minds_no_absence(root: Path, slot: Slot, tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    (root / "link").symlink_to(tmp_path)
    (root / "deep/tree").mkdir(parents=True)
    place(root, "file", slot)
    for path in ("link/kept", "nothing", "file/below", "link", "deep", "file"):
        remove_path(root, path.encode())
    assert list(root.iterdir()) == []
    assert (tmp_path / "kept").exists()


@pytest.mark.parametrize("there", ["nothing", "file", "link", "dangling", "directory"])
def test_a_mount_point_is_made_of_whatever_is_there(root: Path, slot: Slot, tmp_path: Path, there: str) -> None:
    for name in ("d", "f"):
        match there:
            case "file":
                (root / name).touch()
            case "link":
                (root / name).symlink_to(tmp_path)
            case "dangling":
                (root / name).symlink_to("nowhere")
            case "directory":
                (root / name).mkdir()
            case _:
                pass
    make_mount_point(root, b"d", MountPoint.DIRECTORY, slot=slot)
    make_mount_point(root, b"f", MountPoint.FILE, slot=slot)
    assert (root / "d").is_dir()
    assert not (root / "d").is_symlink()
    assert (root / "f").is_file()
    assert not (root / "f").is_symlink()


def test_a_file_that_serves_as_mount_point_is_left_as_it_is(root: Path, slot: Slot) -> None:
    (root / "f").write_text("kept")
    make_mount_point(root, b"f", MountPoint.FILE, slot=slot)
    assert (root / "f").read_text() == "kept"


def test_only_plain_files_are_read(root: Path) -> None:
    (root / "f").write_text("text")
    (root / "link").symlink_to("f")
    (root / "d").mkdir()
    os.mkfifo(root / "pipe")
    found = [read_file(root, name, 2) for name in (b"f", b"link", b"d", b"pipe", b"none", b"f/x")]
    assert found == [b"te", None, None, None, None, None]
