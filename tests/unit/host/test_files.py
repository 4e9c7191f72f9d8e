import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.host import files
from fairtrial.host.files import free_bytes, fsync_directory, remove_tree, write_durably, write_once


def test_a_file_is_written_with_the_mode_asked_for_whatever_the_umask(tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        write_durably(tmp_path / "secret", b"a\0b")
        write_durably(tmp_path / "public", b"", mode=0o644)
    finally:
        os.umask(previous)
    assert (tmp_path / "secret").read_bytes() == b"a\0b"
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "public").stat().st_mode) == 0o644


def test_an_old_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    target = tmp_path / ("x" * 255)
    target.write_bytes(b"old")
    write_durably(target, b"new" * 100_000)
    assert target.read_bytes() == b"new" * 100_000
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / "link").symlink_to("victim")
    write_durably(tmp_path / "link", b"theirs")
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert not (tmp_path / "link").is_symlink()


def test_a_failure_names_the_file_and_leaves_no_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(OSError, match="directory") as caught:
        write_durably(tmp_path / "directory", b"data")
    assert caught.value.filename == str(tmp_path / "directory")
    assert [entry.name for entry in tmp_path.iterdir()] == ["directory"]


@pytest.mark.parametrize("flag", [1, 1 << 20], ids=["exclusive", "a file system that knows no such flag"])
def test_what_is_written_once_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: int) -> None:
    monkeypatch.setattr(files, "_RENAME_NOREPLACE", flag)
    write_once(tmp_path / "file", b"first", mode=0o644)
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError, match=name):
            write_once(tmp_path / name, b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


def test_of_two_writers_at_the_same_instant_one_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def fsync_while_another_writes(fd: int) -> None:
        monkeypatch.setattr(files.os, "fsync", fsync)
        fsync(fd)
        write_once(tmp_path / "file", b"another's")

    monkeypatch.setattr(files.os, "fsync", fsync_while_another_writes)
    with pytest.raises(FileExistsError):
        write_once(tmp_path / "file", b"ours")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"another's")]


@pytest.mark.parametrize("failing", ["fsync", "write", "fchmod"])
@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_fault_at_any_step_keeps_the_old_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, fault: BaseException
) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise fault

    monkeypatch.setattr(files.os, failing, fail)
    with pytest.raises(type(fault)):
        write_durably(target, b"new")
    monkeypatch.undo()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_missing_directory_cannot_be_synced(tmp_path: Path) -> None:
    fsync_directory(tmp_path)
    with pytest.raises(FileNotFoundError):
        fsync_directory(tmp_path / "gone")


def test_free_space_is_what_a_user_can_still_write(tmp_path: Path) -> None:
    figures = os.statvfs(tmp_path)
    assert free_bytes(tmp_path) <= figures.f_bfree * figures.f_frsize


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """A tree with everything that defeats a plain removal."""
    root = tmp_path / "tree"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_bytes(b"x")
    (root / "a" / "b" / "file").chmod(0o000)
    (root / "locked" / "inner").mkdir(parents=True)
    (root / "locked" / "inner" / "file").touch()
    (root / "locked" / "inner").chmod(0o000)
    (root / "locked").chmod(0o000)
    (root / "readonly").mkdir()
    (root / "readonly" / "file").touch()
    (root / "readonly").chmod(0o500)
    os.mkfifo(root / "pipe")
    (root / "broken").symlink_to("nowhere")
    yield root
    for directory in ("locked", "locked/inner", "readonly"):
        if (root / directory).is_dir():
            (root / directory).chmod(0o700)


def test_a_tree_with_unreadable_parts_is_removed(tree: Path) -> None:
    remove_tree(tree)
    assert not tree.exists()


def test_links_are_removed_and_never_followed(tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    outside.chmod(0o555)
    (tree / "link").symlink_to(outside)
    remove_tree(tree)
    assert (outside / "kept").exists()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o555
    outside.chmod(0o755)


def test_a_link_to_a_tree_is_not_a_tree(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tree)
    with pytest.raises(OSError, match=r"link \(Not a directory\)"):
        remove_tree(tmp_path / "link")
    assert tree.exists()


def test_a_missing_tree_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"gone \(No such file or directory\)"):
        remove_tree(tmp_path / "gone")


def test_what_something_else_removes_meanwhile_is_no_failure(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish(name: str, *, dir_fd: int) -> None:
        os.remove(name, dir_fd=dir_fd)
        os.remove(name, dir_fd=dir_fd)  # as if another had been faster

    monkeypatch.setattr(files.os, "unlink", vanish)
    remove_tree(tree)
    assert not tree.exists()


def test_a_tree_deeper_than_the_longest_path_and_the_descriptor_limit_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "deep"
    root.mkdir()
    fd = os.open(root, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("deep", dir_fd=fd)
        inner = os.open("deep", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    remove_tree(root)
    assert not root.exists()


def test_removal_leaks_no_descriptor(tree: Path, open_fds) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    before = open_fds()
    remove_tree(tree)
    assert open_fds() == before


def test_a_tree_that_moves_while_it_is_removed_stops_the_removal(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "kept").mkdir(parents=True)
    open_directory = files._open_directory

    def move_it(parent_fd: int, name: str) -> int:
        fd = open_directory(parent_fd, name)
        if name == "b":
            (tree / "a" / "b").rename(elsewhere / "b")
        return fd

    monkeypatch.setattr(files, "_open_directory", move_it)
    with pytest.raises(OSError, match="tree/a/b: it was moved meanwhile"):
        remove_tree(tree)
    assert (elsewhere / "kept").exists()
