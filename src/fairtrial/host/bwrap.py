"""From the description of a sandbox to Bubblewrap's arguments. Pure: it opens and mounts nothing.

Bubblewrap 0.8 reads its options from a descriptor, so that its argv, which everything inside can read in /proc/1, tells
nothing; it starts with an empty environment, since `--clearenv` would leave the old one readable there.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from fairtrial.errors import UsageError
from fairtrial.model.sandbox import AGENT_HOME, Access, Bind, File, Network, SandboxSpec, Tmpfs

__all__ = ["check_spec", "command_argv", "etc_files", "options"]

HOSTNAME: Final = "box"
_NAMESPACES: Final = ("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup")
_SYSTEM_ETC: Final = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl/certs", "/etc/ssl/openssl.cnf")
_NETWORK_ETC: Final = ("/etc/resolv.conf",)
_DIRECTORIES: Final = ("/etc", "/etc/ssl", "/home")
"""Made with these permissions; parents that Bubblewrap makes by itself are closed to others."""
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - inside
_STICKY: Final = frozenset({"/tmp", _SHARED_MEMORY})  # noqa: S108 - inside
_SCRATCH_BYTES: Final = str(64 << 20)
_OWN_PLACES: Final = ("/proc", "/usr", "/dev")


def check_spec(spec: SandboxSpec) -> None:
    """Refuse a description that Bubblewrap would take in another sense than the one meant.

    Raises:
        UsageError: It names no command, a relative or unclean path inside, or a place that the sandbox itself makes.
    """
    if not spec.argv:
        raise UsageError("sandbox: no command; name one")
    if 0 in {spec.uid, spec.gid}:
        raise UsageError("sandbox: uid and gid inside must not be 0; name others")
    for target in (spec.cwd, *_targets(spec)):
        path = PurePosixPath(target)
        if not path.is_absolute() or ".." in path.parts or str(path) != target or "\0" in target:
            raise UsageError(f"sandbox: {target!r} is not a plain absolute path; name one without '.', '..' and '//'")
    for target in _targets(spec):
        taken = any(PurePosixPath(target).is_relative_to(own) for own in _OWN_PLACES) and target != _SHARED_MEMORY
        if taken or target == "/":
            raise UsageError(f"sandbox: {target} is made by the sandbox itself; mount elsewhere")


def _targets(spec: SandboxSpec) -> list[str]:
    mounts: list[Bind | File | Tmpfs] = [*spec.tmpfs, *spec.binds, *spec.files]
    return [mount.target for mount in mounts]


def etc_files(spec: SandboxSpec) -> tuple[File, ...]:
    """The generated /etc: names of the user inside, and nothing of the host's."""
    databases = "files dns" if spec.network is Network.HOST else "files"
    texts = {
        "passwd": f"agent:x:{spec.uid}:{spec.gid}::{AGENT_HOME}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
        "group": f"agent:x:{spec.gid}:\nnogroup:x:65534:\n",
        "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
        "nsswitch.conf": f"passwd: files\ngroup: files\nhosts: {databases}\n",
    }
    return tuple(File(target=f"/etc/{name}", content=text.encode()) for name, text in texts.items())


def options(
    spec: SandboxSpec,
    *,
    sources: Sequence[str],
    file_fds: Mapping[str, int],
    status_fd: int,
    filter_fd: int,
    root_links: Mapping[str, str],
    hidden: Sequence[str] = (),
) -> tuple[str, ...]:
    """Render Bubblewrap's options.

    Args:
        spec: The sandbox.
        sources: Where each of `spec.binds` is found, in their order.
        file_fds: The descriptor, in the child, that holds each generated file's bytes, by target.
        status_fd: The descriptor, in the child, for Bubblewrap's reports.
        filter_fd: The descriptor, in the child, that holds the system-call filter.
        root_links: /bin, /lib and the like: link target, or "" for a directory of its own that is mounted.
        hidden: Files of /proc that nobody may read.
    """
    words: list[str] = [*_NAMESPACES, "--disable-userns", "--cap-drop", "ALL", "--new-session", "--die-with-parent"]
    if spec.network is Network.NONE:
        words.append("--unshare-net")
    words += [
        "--uid",
        str(spec.uid),
        "--gid",
        str(spec.gid),
        "--hostname",
        HOSTNAME,
        "--json-status-fd",
        str(status_fd),
    ]
    words += ["--seccomp", str(filter_fd)]
    words += ["--ro-bind", "/usr", "/usr"]
    for name, target in root_links.items():
        words += ["--symlink", target, name] if target else ["--ro-bind", name, name]
    # What /proc/sys shows goes by who looks, not by which mount, so the host's own serves; read-only it guards even
    # those few settings that belong to a namespace.
    words += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    for path in hidden:
        words += ["--ro-bind", "/dev/null", path]
    for path in _DIRECTORIES:
        words += ["--perms", "0755", "--dir", path]
    for path in (*_SYSTEM_ETC, *(_NETWORK_ETC if spec.network is Network.HOST else ())):
        words += ["--ro-bind-try", os.path.realpath(path), path]
    for file in etc_files(spec):
        words += ["--perms", "0444", "--file", str(file_fds[file.target]), file.target]
    for tmpfs in spec.tmpfs:
        size_bytes = min(tmpfs.size_bytes, spec.limits.memory_bytes)  # a watchdog over processes does not see it
        words += ["--perms", _permissions(tmpfs), "--size", str(size_bytes), "--tmpfs", tmpfs.target]
    for bind, source in zip(spec.binds, sources, strict=True):
        words += _mount(bind, source)
    for file in spec.files:
        words += ["--perms", f"{file.mode:04o}", "--ro-bind-data", str(file_fds[file.target]), file.target]
    for mask in spec.tmpfs:
        if mask.access is Access.READ_ONLY:
            words += ["--remount-ro", mask.target]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", spec.cwd]
    for name, value in spec.env.items():
        words += ["--setenv", name, value]
    return tuple(words)


def _mount(bind: Bind, source: str) -> list[str]:
    words = ["--ro-bind" if bind.access is Access.READ_ONLY else "--bind", source, bind.target]
    for name in bind.scratch:
        words += ["--perms", "0755", "--size", _SCRATCH_BYTES, "--tmpfs", f"{bind.target}/{name}"]
    return words


def _permissions(tmpfs: Tmpfs) -> str:
    if tmpfs.access is Access.READ_ONLY:
        return "0555"
    return "1777" if tmpfs.target in _STICKY else "0700" if tmpfs.target == AGENT_HOME else "0755"


def command_argv(spec: SandboxSpec, *, rlimits_processes: bool) -> tuple[str, ...]:
    """The command as it starts inside: the limits that a process carries are set there.

    Processes are counted per user namespace since kernel 5.14, but only if the limit is set inside of it: set outside,
    it counts everything that the user runs anywhere, and so it does on an older kernel, wherever it is set.
    """
    limits = spec.limits
    return (
        "/usr/bin/prlimit",
        *((f"--nproc={limits.processes}:{limits.processes}",) if rlimits_processes else ()),
        f"--nofile={limits.files}:{limits.files}",
        "--core=0:0",
        "--",
        *spec.argv,
    )
