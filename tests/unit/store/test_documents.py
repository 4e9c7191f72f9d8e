import os
import stat
from pathlib import Path

import pytest

from fairtrial.errors import HostError, IntegrityError
from fairtrial.store.artifacts import EntryKind, NotRegularError, digest_file, walk
from fairtrial.store.documents import (
    MAX_DOCUMENT_BYTES,
    BrokenDocumentError,
    move_aside,
    read_bytes,
    read_document,
    set_aside,
    write_document,
)
from fairtrial.store.layout import Results

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1


def test_a_document_is_read_back_and_readable_for_everybody(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    data = write_document(path, {"schema": "a/1", "b": [1]})
    assert path.read_bytes() == data == b'{"schema":"a/1","b":[1]}\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert read_document(path, schema="a/1") == {"schema": "a/1", "b": [1]}


def test_an_unknown_schema_is_named_and_is_not_damage(tmp_path: Path) -> None:
    write_document(tmp_path / "a.json", {"schema": "a/2"})
    with pytest.raises(IntegrityError, match=r"a\.json: schema 'a/2' is not known here \(expected 'a/1'\)") as caught:
        read_document(tmp_path / "a.json", schema="a/1")
    assert not isinstance(caught.value, BrokenDocumentError)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"schema":1}', b"{}", b"\xff"])
def test_a_damaged_document_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(BrokenDocumentError, match=r"a\.json: is damaged"):
        read_document(tmp_path / "a.json", schema="a/1")


def test_only_regular_files_of_a_sane_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", MAX_DOCUMENT_BYTES + 1)
    for name, why in (("link", "symbolic link"), ("fifo", "special file"), ("large", "larger than")):
        with pytest.raises(BrokenDocumentError, match=why):
            read_bytes(tmp_path / name)
    with pytest.raises(BrokenDocumentError, match="special file"):
        read_bytes(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "absent")
    with pytest.raises(HostError, match=r"cannot be read \(File name too long\)"):
        read_bytes(tmp_path / ("x" * 300))


@pytest.mark.parametrize("n_bytes", [0, 3, 64 * 1024, 64 * 1024 + 1, 3_000_000])
def test_the_digest_of_a_file_does_not_depend_on_how_it_is_read(tmp_path: Path, n_bytes: int) -> None:
    (tmp_path / "a").write_bytes(b"abc" if n_bytes == 3 else bytes(n_bytes))
    digest = digest_file(tmp_path / "a")
    assert digest.n_bytes == n_bytes
    known = {
        0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        3: ABC,
    }
    assert digest.sha256 == known.get(n_bytes, digest.sha256)
    if n_bytes > 64 * 1024:
        (tmp_path / "a").write_bytes(bytes(n_bytes - 1) + b"\1")
        assert digest_file(tmp_path / "a") != digest


def test_a_special_file_has_no_digest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    for name in ("fifo", "link"):
        with pytest.raises(NotRegularError, match=name):
            digest_file(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        digest_file(tmp_path / "absent")


def test_a_walk_lists_everything_in_order_and_follows_nothing(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").touch()
    (tmp_path / "a").symlink_to("b")
    os.mkfifo(tmp_path / "d")
    assert [tuple(entry) for entry in walk(tmp_path, "x/")] == [
        ("x/a", EntryKind.OTHER),
        ("x/b", EntryKind.DIRECTORY),
        ("x/b/c", EntryKind.FILE),
        ("x/d", EntryKind.OTHER),
    ]


def test_what_is_set_aside_never_replaces_anything_and_is_kept_once(tmp_path: Path) -> None:
    results = Results(root=tmp_path)
    first = set_aside(results, "tail", b"one")
    assert set_aside(results, "tail", b"one") == first
    second = set_aside(results, "tail", b"two")
    (tmp_path / "broken").write_bytes(b"three")
    third = move_aside(results, tmp_path / "broken", "tail")
    assert [path.name for path in (first, second, third)] == ["tail", "tail-2", "tail-3"]
    assert [path.read_bytes() for path in (first, second, third)] == [b"one", b"two", b"three"]
    assert not (tmp_path / "broken").exists()
