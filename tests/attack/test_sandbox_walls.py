"""What a command inside a sandbox must not see, reach, change or become."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.errors import UsageError
from fairtrial.host.limits import Enforcement
from fairtrial.host.sandbox import start_sandbox
from fairtrial.host.slot import Slot
from fairtrial.model.sandbox import (
    Access,
    Bind,
    Capture,
    File,
    Limits,
    Network,
    SandboxResult,
    SandboxSpec,
    SandboxState,
    Tmpfs,
)

pytestmark = pytest.mark.needs("bwrap")

RunInside = Callable[..., SandboxResult]

PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")


def said(result: SandboxResult) -> str:
    assert result.state is SandboxState.EXITED, result
    return result.stdout.head.decode()


def test_a_command_runs_as_an_ordinary_user_without_any_capability(inside: RunInside) -> None:
    text = said(inside("id -u; id -g; grep -E '^(Cap|NoNewPrivs|Groups)' /proc/self/status"))
    uid, gid, *rest = text.splitlines()
    assert (uid, gid) == ("1000", "1000")
    values = dict(line.split(":\t") for line in rest)
    assert {name: int(value, 16) for name, value in values.items() if name.startswith("Cap")} == dict.fromkeys(
        ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0
    )
    assert values["NoNewPrivs"] == "1"


def test_outside_no_process_of_it_has_our_uid_when_we_are_root(inside: RunInside, workspace: Path, slot: Slot) -> None:
    assert inside("touch mine").ok
    status = (workspace / "mine").stat()
    assert (status.st_uid, status.st_gid) == (slot.uid, slot.gid)
    assert 0 not in (slot.uid, slot.gid)


def test_nothing_under_proc_sys_can_be_written(inside: RunInside) -> None:
    # Opening for writing is the test: a value written could also be refused for its own sake.
    text = said(
        inside('find /proc/sys -type f | while read f; do { : >>"$f"; } 2>/dev/null && echo "$f"; done; echo end')
    )
    assert text == "end\n"


def test_no_new_user_namespace_can_be_made(inside: RunInside) -> None:
    assert inside("unshare --user true").returncode == 1
    assert inside("unshare --user --map-root-user true").returncode == 1


def test_nothing_can_be_mounted_or_unmounted(inside: RunInside) -> None:
    script = (
        "import ctypes\n"
        "libc = ctypes.CDLL(None)\n"
        "print(libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None), libc.umount2(b'/usr', 2), libc.unshare(0x20000))"
    )
    assert said(inside((*PYTHON, script))) == "-1 -1 -1\n"


def test_the_root_the_devices_and_the_system_cannot_be_written(inside: RunInside) -> None:
    places = "/ /etc /dev /usr /usr/bin /usr/local/bin /home /proc /proc/sys"
    script = f"for d in {places}; do touch $d/x 2>/dev/null && echo $d; done; echo end"
    assert said(inside(script)) == "end\n"


def test_no_file_of_the_host_is_there_but_the_system_and_what_was_named(inside: RunInside, public_path: Path) -> None:
    (public_path / "secret").write_text("s")
    (public_path / "secret").chmod(0o644)
    places = f"/root /var /opt /sys /boot /srv /mnt {public_path} /etc/shadow /etc/hostname"
    script = f"ls -A /; for p in {places}; do test -e $p && echo there $p; done; ls -A /etc"
    text = said(inside(script))
    assert "there" not in text
    top, _, etc = text.partition("workspace\n")
    assert set(top.split()) <= {
        "bin",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "proc",
        "run",
        "sbin",
        "tmp",
        "usr",
    }
    assert set(etc.split()) <= {"alternatives", "group", "hosts", "ld.so.cache", "nsswitch.conf", "passwd", "ssl"}


def test_the_way_back_through_proc_leads_nowhere(inside: RunInside) -> None:
    script = "ls -A /proc/1/root | tr '\\n' ' '; ls /proc | grep -cE '^[0-9]+$'; ls /proc/1/cwd >/dev/null && echo cwd"
    text = said(inside(script))
    assert " var " not in f" {text} "
    assert " root " not in f" {text} "


def test_the_environment_of_the_first_process_is_empty_and_its_argv_tells_nothing(
    inside: RunInside, monkeypatch: pytest.MonkeyPatch, workspace: Path
) -> None:
    monkeypatch.setenv("PLANTED_SECRET", "sk-planted")
    result = inside(
        "cat /proc/1/environ; echo; tr '\\0' '\\n' </proc/1/cmdline; echo; cat /proc/*/cmdline /proc/*/environ"
    )
    first, _, rest = said(result).partition("\n")
    assert first == ""
    assert "sk-planted" not in rest
    assert str(workspace) not in rest
    assert rest.splitlines()[1] == "--args"


def test_the_environment_inside_is_exactly_what_was_given(inside: RunInside) -> None:
    assert set(said(inside("env")).splitlines()) == {"PATH=/usr/bin:/bin", "HOME=/home/agent", "PWD=/workspace"}


def test_only_standard_streams_and_passed_descriptors_are_open(inside: RunInside) -> None:
    script = "import os; print(sorted(os.listdir('/proc/self/fd')))"
    assert said(inside((*PYTHON, script))) == "['0', '1', '2', '3']\n"  # 3 is the listing's own


def test_a_passed_descriptor_arrives_as_number_three(inside: RunInside) -> None:
    read_fd, write_fd = os.pipe()
    try:
        assert inside("echo proof >&3", pass_fds=(write_fd,)).ok
        assert os.read(read_fd, 100) == b"proof\n"
    finally:
        os.close(read_fd)
        os.close(write_fd)


def test_no_name_no_address_and_no_port_of_the_host_is_reached(inside: RunInside) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    hosts = [("example.org", 80), ("1.1.1.1", 53), ("169.254.169.254", 80)]
    places = [*hosts, ("127.0.0.1", port), ("::1", port)]
    script = (
        "import socket\n"
        f"for where in {places}:\n"
        "    try:\n"
        "        socket.create_connection(where, timeout=5)\n"
        "    except OSError:\n"
        "        print('no')\n"
        "    else:\n"
        "        print(where)\n"
        "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "try:\n"
        "    u.sendto(b'x', ('8.8.8.8', 53)); print('sent')\n"
        "except OSError:\n"
        "    print('no')\n"
    )
    with listener:
        assert said(inside(("/usr/bin/python3", "-c", script))) == "no\n" * 6


def test_abstract_sockets_of_the_host_are_not_reached(inside: RunInside) -> None:
    name = f"\0fairtrial-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        script = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
        assert inside(("/usr/bin/python3", "-c", script)).returncode == 1


def greet(listener: socket.socket) -> None:
    with listener.accept()[0] as connection:
        connection.sendall(b"hello")


def test_a_socket_that_is_bound_in_is_reached(inside: RunInside, slot: Slot) -> None:
    path = slot.root / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        slot.give(path)
        listener.listen()
        answer = threading.Thread(target=greet, args=(listener,))
        answer.start()
        script = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/model'); print(s.recv(5))"
        result = inside(("/usr/bin/python3", "-c", script), binds=(Bind(source=path, target="/run/model"),))
        answer.join()
    assert said(result) == "b'hello'\n"


def test_what_is_bound_read_only_cannot_be_written_by_any_path(inside: RunInside, slot: Slot) -> None:
    shared = slot.root / "tools"
    shared.mkdir()
    (shared / "f").write_text("kept")
    for path in (shared, shared / "f"):
        slot.give(path)
    script = (
        "echo x >/opt/f; echo x >/proc/self/root/opt/f; chmod 777 /opt/f; rm -f /opt/f;"
        " ln /opt/f /workspace/l && echo x >/workspace/l; cat /opt/f"
    )
    assert said(inside(script, binds=(Bind(source=shared, target="/opt"),))) == "kept"
    assert (shared / "f").read_text() == "kept"


def test_a_generated_file_keeps_its_bytes_and_a_mask_stays_empty(inside: RunInside) -> None:
    result = inside(
        "echo x >/run/prompt; cat /run/prompt; cd /home/agent && touch .skills/x; ls -A .skills; touch ok",
        files=(File(target="/run/prompt", content=b"do it\n"),),
        tmpfs=(
            Tmpfs(target="/run", size_bytes=1 << 20),
            Tmpfs(target="/home/agent", size_bytes=1 << 20),
            Tmpfs(target="/home/agent/.skills", size_bytes=4096, access=Access.READ_ONLY),
        ),
    )
    assert said(result) == "do it\n"


def test_no_other_process_can_write_into_a_captured_socket(inside: RunInside) -> None:
    script = (
        "sh -c 'for p in /proc/[0-9]*; do echo forged >$p/fd/1; echo forged >$p/fd/2; done' 2>/dev/null >/dev/null\n"
        "echo real"
    )
    assert said(inside(script, capture=Capture.SOCKET)) == "real\n"


def test_the_mount_table_shows_no_name_of_ours(inside: RunInside) -> None:
    assert "fairtrial" not in said(inside("cat /proc/self/mountinfo /proc/self/mounts"))


@pytest.mark.parametrize("target", ["/usr/lib/x", "/proc/x", "/dev/null", "/", "relative", "/a/../b", "/a//b"])
def test_a_place_that_the_sandbox_makes_itself_is_refused(inside: RunInside, workspace: Path, target: str) -> None:
    with pytest.raises(UsageError):
        inside("true", binds=(Bind(source=workspace, target=target),))


def test_a_source_behind_a_link_is_refused(inside: RunInside, slot: Slot, workspace: Path) -> None:
    link = slot.root / "link"
    link.symlink_to(workspace)
    with pytest.raises(UsageError, match="not a real absolute path"):
        inside("true", binds=(Bind(source=link, target="/opt"),))


def test_a_sibling_sandbox_is_reached_by_a_bound_socket_and_dies_with_its_block(
    slot: Slot, workspace: Path, enforcement_of: Callable[[Slot], Enforcement]
) -> None:
    shared = Bind(source=workspace, target="/run/m", access=Access.READ_WRITE)
    serve = (
        "import socket\ns = socket.socket(socket.AF_UNIX); s.bind('/run/m/s'); s.listen()\n"
        "while True: s.accept()[0].sendall(b'served')"
    )
    ask = (
        "import socket, time\n"
        "while True:\n"
        "    try:\n        s = socket.socket(socket.AF_UNIX); s.connect('/run/m/s'); break\n"
        "    except OSError:\n        time.sleep(0.02)\n"
        "print(s.recv(9).decode())"
    )
    env = {"PATH": "/usr/bin"}
    server = SandboxSpec(argv=("/usr/bin/python3", "-c", serve), env=env, cwd="/", binds=(shared,))
    client = SandboxSpec(
        argv=("/usr/bin/python3", "-c", ask), env=env, cwd="/", binds=(shared,), limits=Limits(wall_s=30)
    )
    enforcement = enforcement_of(slot)
    with start_sandbox(server, slot=slot, enforcement=enforcement) as sibling:
        with start_sandbox(client, slot=slot, enforcement=enforcement, capture_bytes=100) as asking:
            assert asking.wait(beside=[sibling]).stdout.head == b"served\n"
        assert sibling.result is None
        assert sibling.stop().state is SandboxState.STOPPED


def test_the_hosts_network_is_there_only_when_asked_for(inside: RunInside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        script = f"import socket; socket.create_connection(('127.0.0.1', {listener.getsockname()[1]}), timeout=5)"
        assert inside(("/usr/bin/python3", "-c", script), network=Network.HOST).ok
        assert not inside(("/usr/bin/python3", "-c", script)).ok


def test_taking_over_the_first_process_cannot_make_a_success(inside: RunInside) -> None:
    # It runs under the same user inside, so that a debugger may attach to it; what dies with it is everything.
    script = (
        "import ctypes, os, time\n"
        "libc = ctypes.CDLL(None)\n"
        "attached = libc.ptrace(16, 1, 0, 0) == 0\n"
        "if attached:\n"
        "    os.waitpid(1, 0x40000000)\n"
        "    registers = ctypes.create_string_buffer(1024)\n"
        "    libc.ptrace(13, 1, 0, registers)\n"
        "    libc.ptrace(17, 1, 0, 11)\n"
        "    os.kill(1, 9)\n"
        "    time.sleep(5)\n"
        "raise SystemExit(3)"
    )
    result = inside((*PYTHON, script), limits=Limits(wall_s=20))
    assert not result.ok


KEY = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
SESSION = ctypes.c_int(-3)
def put(name):
    return libc.syscall(248, b"user", name, b"secret", 6, SESSION)
def find(name):
    return libc.syscall(250, 10, SESSION, b"user", name, 0)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the test knows the numbers of x86_64 only")
def test_no_key_of_the_host_can_be_found_and_none_can_be_left_for_another(inside: RunInside) -> None:
    here: dict[str, Callable[[bytes], int]] = {}
    exec(KEY, here)  # noqa: S102 - the same few calls, here and inside
    if here["put"](b"ft-host") < 0:
        pytest.skip("no keyring here")
    assert here["find"](b"ft-host") > 0
    assert said(
        inside((*PYTHON, KEY + "print(find(b'ft-host'), put(b'ft-left'), ctypes.get_errno() == errno.ENOSYS)"))
    ) == ("-1 -1 True\n")
    assert said(inside("cat /proc/keys /proc/key-users")) == ""
