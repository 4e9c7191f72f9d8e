from pathlib import Path

import pytest

from fairtrial.host.mounts import FileSystem, filesystem_of, parse_mounts, read_mounts

TABLE = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 0:25 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1024k,inode64
31 22 0:40 / /srv/data rw shared:2 master:3 - nfs4 host:/export rw,vers=4.2,addr=10.0.0.1
32 22 8:2 / /mnt/a\040b\134c\011d rw - xfs /dev/sdb rw
33 30 0:50 / /tmp/work rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/u,workdir=/w,lowerdir+=/z,metacopy=on
34 30 0:51 / /tmp/work ro - tmpfs hides rw
"""
MOUNTS = parse_mounts(TABLE)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/usr/bin", ("ext4", "rw,relatime,errors=remount-ro", False)),
        ("/tmp", ("tmpfs", "rw,nosuid,size=1024k,inode64", False)),
        ("/tmp/x/y", ("tmpfs", "rw,nosuid,size=1024k,inode64", False)),
        ("/tmpfile", ("ext4", "rw,relatime,errors=remount-ro", False)),
        ("/srv/data/x", ("nfs4", "rw,vers=4.2,addr=10.0.0.1", True)),
        ("/mnt/a b\\c\td/x", ("xfs", "rw", False)),
    ],
)
def test_the_longest_mount_point_above_a_path_counts(path: str, expected: tuple[str, str, bool]) -> None:
    fs_type, options, is_network = expected
    assert filesystem_of(Path(path), mounts=MOUNTS) == FileSystem(type=fs_type, options=options, is_network=is_network)


def test_a_mount_over_a_mount_hides_it() -> None:
    assert filesystem_of(Path("/tmp/work/x"), mounts=MOUNTS).options == "ro,rw"


def test_options_that_hold_paths_are_left_out() -> None:
    assert MOUNTS[4].options == "rw,metacopy=on"


def test_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc")
    assert filesystem_of(tmp_path / "link" / "self").type == "proc"


def test_the_table_of_this_machine_is_read() -> None:
    assert filesystem_of(Path("/proc/self")).type == "proc"
    assert filesystem_of(Path("/proc/no/such/thing/yet")).type == "proc"
    assert len({mount.mount_id for mount in read_mounts()}) == len(read_mounts())


def test_a_path_below_no_mount_point_has_an_unknown_file_system() -> None:
    found = filesystem_of(Path("/"), mounts=())
    assert (found.type, found.is_network) == ("unknown", False)
