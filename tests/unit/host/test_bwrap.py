from pathlib import Path

import pytest

from fairtrial.errors import UsageError
from fairtrial.host.bwrap import check_spec, command_argv, etc_files, options
from fairtrial.model.sandbox import Access, Bind, File, Limits, Network, SandboxSpec, Tmpfs


def rendered(spec: SandboxSpec) -> str:
    fds = {file.target: 9 for file in (*etc_files(spec), *spec.files)}
    sources = [str(bind.source) for bind in spec.binds]
    links = {"/bin": "usr/bin", "/lib32": ""}
    return " ".join(options(spec, sources=sources, file_fds=fds, status_fd=5, filter_fd=6, root_links=links))


def spec(**changes: object) -> SandboxSpec:
    return SandboxSpec(**{"argv": ("true",), "env": {}, **changes})  # type: ignore[arg-type]


def test_every_namespace_is_asked_for_by_name() -> None:
    words = rendered(spec())
    for name in ("user", "ipc", "pid", "uts", "cgroup", "net"):
        assert f"--unshare-{name} " in words
    for wanted in (
        "--disable-userns",
        "--cap-drop ALL",
        "--new-session",
        "--die-with-parent",
        "--json-status-fd 5",
        "--seccomp 6",
    ):
        assert wanted in words


def test_the_network_is_the_hosts_only_when_asked_for() -> None:
    words = rendered(spec(network=Network.HOST))
    assert "--unshare-net" not in words
    assert "/etc/resolv.conf" in words
    assert "/etc/resolv.conf" not in rendered(spec())


def test_the_root_and_the_devices_are_closed_last() -> None:
    words = rendered(spec(binds=(Bind(source=Path("/a"), target="/b", access=Access.READ_WRITE),)))
    assert words.index("--bind /a /b") < words.index("--remount-ro /dev") < words.index("--remount-ro / ")


def test_what_must_be_written_in_a_read_only_mount_is_memory_over_it() -> None:
    words = rendered(spec(binds=(Bind(source=Path("/a"), target="/b", scratch=("c",)),)))
    assert "--ro-bind /a /b --perms 0755 --size 67108864 --tmpfs /b/c " in words


def test_no_file_system_in_memory_is_larger_than_the_limit_of_memory() -> None:
    words = rendered(spec(limits=Limits(memory_bytes=100 << 20)))
    for target, size_bytes in (("/tmp", 100 << 20), ("/home/agent", 100 << 20), ("/dev/shm", 64 << 20)):
        assert f"--size {size_bytes} --tmpfs {target} " in words
    assert f"--size {1 << 30} --tmpfs /home/agent " in rendered(spec())


def test_a_mask_is_closed_after_what_is_mounted_in_it() -> None:
    mask = Tmpfs(target="/m", size_bytes=4096, access=Access.READ_ONLY)
    words = rendered(spec(tmpfs=(mask,), files=(File(target="/m/f", content=b"x", mode=0o400),)))
    assert "--perms 0555 --size 4096 --tmpfs /m" in words
    assert words.index("--perms 0400 --ro-bind-data 9 /m/f") < words.index("--remount-ro /m")


def test_limits_that_a_process_carries_are_set_inside() -> None:
    limits = Limits(processes=9, files=8)
    argv = command_argv(spec(limits=limits), rlimits_processes=True)
    assert argv == ("/usr/bin/prlimit", "--nproc=9:9", "--nofile=8:8", "--core=0:0", "--", "true")
    argv = command_argv(spec(limits=limits), rlimits_processes=False)
    assert argv == ("/usr/bin/prlimit", "--nofile=8:8", "--core=0:0", "--", "true")


@pytest.mark.parametrize("changes", [{"argv": ()}, {"uid": 0}, {"gid": 0}, {"cwd": "x"}, {"cwd": "/a/../b"}])
def test_a_description_without_sense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="sandbox: "):
        check_spec(spec(**changes))
