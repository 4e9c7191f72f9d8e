"""git against the front, straight and through the forwarder."""

import gzip
import http.client
import os
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fairtrial.wire.ledger import Delivery

Scene = Any
MakeScene = Callable[..., Scene]
PATHS = pytest.mark.parametrize("forwarded", [False, True], ids=["direct", "forwarded"])


def _hook(scene: Scene, name: str, body: str) -> None:
    hook = scene.bare / "hooks" / name
    hook.write_text(f"#!/bin/sh\n{body}\n")
    hook.chmod(0o755)


@PATHS
def test_a_task_can_be_done_over_http(make_scene: MakeScene, forwarded: bool) -> None:
    scene = make_scene(forwarded=forwarded)
    clone = scene.tmp / "clone"
    scene.git("clone", "-q", scene.url, str(clone))
    assert (clone / "README").read_bytes() == b"seed\n"
    scene.git("switch", "-q", "-c", "b")
    head = scene.commit("notes", b"one line\n")
    scene.git("push", "-q", "-u", "origin", "b")
    assert scene.tip("b") == head
    assert scene.git("ls-remote", "--exit-code", "origin", "refs/heads/b").stdout.split()[0] == head
    assert scene.git("ls-remote", "--exit-code", "origin", "refs/heads/none", check=False).returncode == 2
    shallow = scene.tmp / "shallow"
    scene.git("clone", "-q", "--depth", "1", "-b", "b", scene.url, str(shallow))
    assert scene.git("rev-list", "--count", "HEAD", cwd=shallow).stdout == "1\n"
    assert scene.git("push", "origin", "b").stderr == "Everything up-to-date\n"


@PATHS
def test_a_push_above_one_mebibyte_is_probed_and_chunked_and_arrives(make_scene: MakeScene, forwarded: bool) -> None:
    scene = make_scene(forwarded=forwarded)
    payload = os.urandom(3_000_000)
    head = scene.commit("big", payload)
    scene.git("push", "-q", "origin", "main")
    assert scene.tip("main") == head
    shown = subprocess.run(["git", "--git-dir", str(scene.bare), "show", "main:big"], capture_output=True, check=True)
    assert shown.stdout == payload
    if forwarded:
        _, probe, push = scene.forward.requests
        assert (probe.request_declared_bytes, probe.request_body_bytes) == (4, 4)
        assert push.request_declared_bytes is None
        assert 3_000_000 < push.request_body_bytes < 3_010_000
        assert push.request_wire_bytes > push.request_head_bytes + push.request_body_bytes


@pytest.mark.parametrize("version", ["0", "1", "2"])
def test_every_protocol_version_reaches_the_server(make_scene: MakeScene, version: str) -> None:
    scene = make_scene()
    ran = scene.git("-c", f"protocol.version={version}", "ls-remote", scene.url, env={"GIT_TRACE_PACKET": "1"})
    assert "refs/heads/main" in ran.stdout
    assert [v for v in "12" if f"< version {v}\n" in ran.stderr] == [version] * (version != "0")


@PATHS
def test_clones_at_the_same_time_all_succeed(make_scene: MakeScene, forwarded: bool) -> None:
    scene = make_scene(forwarded=forwarded)
    scene.commit("big", os.urandom(500_000))
    scene.git("push", "-q", str(scene.bare), "main")
    with ThreadPoolExecutor(6) as pool:
        clones = [pool.submit(scene.git, "clone", "-q", scene.url, str(scene.tmp / f"c{n}")) for n in range(6)]
    assert all(clone.result().returncode == 0 for clone in clones)
    if forwarded:
        assert scene.forward.connections == 6


def test_the_four_counters_agree_with_the_messages(make_scene: MakeScene) -> None:
    scene = make_scene()
    scene.commit("big", os.urandom(2_000_000))
    scene.git("push", "-q", "origin", "main")
    scene.git("clone", "-q", scene.url, str(scene.tmp / "clone"))
    forward = scene.forward
    assert all(record.request_complete and record.reply_complete for record in forward.requests)
    assert all(record.delivery is Delivery.COMPLETE and record.error is None for record in forward.requests)
    assert forward.bytes.client_to_proxy == sum(record.request_wire_bytes for record in forward.requests)
    assert forward.bytes.server_to_proxy == sum(record.reply_wire_bytes for record in forward.requests)
    assert forward.bytes.proxy_to_server == forward.bytes.client_to_proxy
    assert forward.bytes.proxy_to_client == forward.bytes.server_to_proxy
    assert forward.connections == max(record.connection for record in forward.requests) == 2


def test_a_compressed_request_is_left_to_git(make_scene: MakeScene) -> None:
    scene = make_scene()
    want = f"want {scene.tip('main')}\n"
    body = gzip.compress(f"{len(want) + 4:04x}{want}00000009done\n".encode())
    client = http.client.HTTPConnection("127.0.0.1", scene.server.port, timeout=20)
    kind = "application/x-git-upload-pack-request"
    client.request("POST", "/r.git/git-upload-pack", body, {"Content-Type": kind, "Content-Encoding": "gzip"})
    reply = client.getresponse().read()
    client.close()
    assert reply.startswith(b"0008NAK\nPACK")
    (record,) = scene.forward.requests
    assert record.request_body_bytes == len(body)


OUTSIDE = [
    "/../outside",
    "/r.git/../../outside",
    "/%2e%2e/outside",
    "/r.git/%2E%2E/%2e./outside",
    "/r.git/./HEAD",
    "//etc/passwd",
    "/r.git//HEAD",
    "/r.git/HEAD%00",
    "http://127.0.0.1/r.git/HEAD",
    "*",
]


def test_a_path_that_could_leave_the_root_starts_no_child(make_scene: MakeScene) -> None:
    scene = make_scene(forwarded=False)
    (scene.tmp / "outside").write_text("secret")
    for target in OUTSIDE:
        with socket.create_connection(("127.0.0.1", scene.server.port), timeout=20) as client:
            client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            reply = b"".join(iter(lambda: client.recv(65536), b""))
        assert reply[8:].startswith(b" 400 "), (target, reply)
        assert b"secret" not in reply
    assert scene.server.ledger().front.requests == 0


def test_head_and_missing_repositories_leave_the_connection_in_step(make_scene: MakeScene) -> None:
    scene = make_scene()
    client = http.client.HTTPConnection("127.0.0.1", scene.server.port, timeout=20)
    for method, path, status in [
        ("HEAD", "/r.git/HEAD", 200),
        ("GET", "/r.git/HEAD", 200),
        ("GET", "/none.git/HEAD", 404),
        ("HEAD", "/r.git/info/refs?service=git-upload-pack", 200),
        ("GET", "/r.git/info/refs?service=git-upload-pack", 200),
    ]:
        client.request(method, path)
        reply = client.getresponse()
        body = reply.read()
        assert reply.status == status
        assert bool(body) == (method == "GET" and status == 200)
    client.close()
    assert scene.forward.connections == 1


def test_a_hooks_no_reaches_the_client(make_scene: MakeScene) -> None:
    scene = make_scene()
    before = scene.tip("main")
    _hook(scene, "pre-receive", "echo not today >&2; exit 1")
    scene.commit("notes", b"x\n")
    ran = scene.git("push", "origin", "main", check=False)
    assert ran.returncode == 1
    assert "remote: not today" in ran.stderr
    assert "pre-receive hook declined" in ran.stderr
    assert scene.tip("main") == before


def test_the_childs_environment_is_built_from_nothing(make_scene: MakeScene) -> None:
    scene = make_scene()
    _hook(scene, "post-receive", "env > $GIT_DIR/seen")
    scene.commit("notes", b"x\n")
    scene.git("push", "-q", "origin", "main")
    seen = dict(line.partition("=")[::2] for line in (scene.bare / "seen").read_text().splitlines())
    assert seen["GIT_CONFIG_GLOBAL"] == seen["GIT_CONFIG_SYSTEM"] == "/dev/null"
    assert {"LEAK", "PYTHONPATH", "HOME"}.isdisjoint(seen)


def test_a_broken_repository_is_explained_in_the_ledger(make_scene: MakeScene) -> None:
    scene = make_scene(forwarded=False)
    (scene.bare / "HEAD").unlink()
    assert scene.git("ls-remote", "origin", check=False).returncode == 128
    assert "r.git" in scene.server.ledger().front.stderr_tail


def test_a_client_that_is_killed_takes_the_servers_child_along(
    make_scene: MakeScene, eventually: Callable[..., None]
) -> None:
    scene = make_scene(forwarded=False)
    _hook(scene, "pre-receive", f"touch {scene.tmp}/reached; sleep 60")
    head = scene.commit("notes", b"x\n")
    client = subprocess.Popen(
        ["git", "push", "-q", "origin", "main"], cwd=scene.work, stderr=subprocess.DEVNULL, start_new_session=True
    )
    eventually((scene.tmp / "reached").exists)
    eventually(lambda: len(scene.children()) == 1)  # the one before it may still be there to be reaped
    (child,) = scene.children()
    os.killpg(client.pid, 9)
    client.wait()
    eventually(lambda: scene.children() == [])
    eventually(lambda: not _group_members(child))
    assert scene.server.drain(60)
    assert scene.server.ledger().front.running == 0
    assert scene.tip("main") != head


def _group_members(pgid: int) -> list[str]:
    stats = [entry / "stat" for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = []
    for stat in stats:
        try:
            text = stat.read_text()
        except OSError:
            continue
        state, _, group = text.rpartition(")")[2].split()[:3]
        if int(group) == pgid and state != "Z":
            found.append(text)
    return found


def test_nothing_is_left_open_or_unreaped_after_many_requests(
    make_scene: MakeScene, eventually: Callable[..., None]
) -> None:
    scene = make_scene()
    fds = Path(f"/proc/{scene.server.pid}/fd")
    scene.git("ls-remote", "origin")
    eventually(lambda: scene.server.drain(5) and scene.children() == [])
    before = len(list(fds.iterdir()))
    for n in range(5):
        scene.git("ls-remote", "origin")
        scene.git("ls-remote", f"{scene.url}-none", check=False)
        scene.commit("notes", b"%d\n" % n)
        scene.git("push", "-q", "origin", "main")
    eventually(lambda: scene.children() == [])
    eventually(lambda: len(list(fds.iterdir())) <= before)


def _peak_memory_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


BIG_BYTES = 64_000_000  # 200 MB passes as well, in a minute that git spends on SHA-1


@pytest.mark.timeout(300)
def test_a_big_push_and_clone_need_no_more_memory_than_a_small_one(make_scene: MakeScene) -> None:
    scene = make_scene()
    plain = ("-c", "core.compression=0", "-c", "pack.window=0")
    scene.git("clone", "-q", scene.url, str(scene.tmp / "warm-up"))
    before = _peak_memory_bytes(scene.server.pid)
    with (scene.work / "big").open("wb") as big:
        big.truncate(BIG_BYTES)
    scene.git(*plain, "add", "big")
    scene.git("commit", "-q", "-m", "big")
    scene.git(*plain, "push", "-q", "origin", "main")
    scene.git("--git-dir", str(scene.bare), "config", "core.compression", "0")
    scene.git(*plain, "clone", "-q", "--no-checkout", scene.url, str(scene.tmp / "clone"))
    counts = scene.forward.bytes
    assert counts.client_to_proxy > BIG_BYTES
    assert counts.proxy_to_client > BIG_BYTES
    assert _peak_memory_bytes(scene.server.pid) - before < 16_000_000
