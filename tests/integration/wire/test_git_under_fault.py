"""Every fault against a real push: that it fired, what the wire saw, what the bare repository holds.

What git and libcurl do about it (exit status, whether they send again) is asserted of the versions that were measured.
"""

import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.subjects.known import is_measured

from fairtrial.wire.faults import Fault, FaultKind
from fairtrial.wire.ledger import ConnectionReuse, Delivery, RequestRecord

Scene = Any
MakeScene = Callable[..., Scene]

POST = "POST /r.git/git-receive-pack"
REFS = "GET /r.git/info/refs"


def _fault(kind: FaultKind, parameter: int | None = None, *, match: str = POST, nth: int = 1) -> Fault:
    return Fault(match=match, nth=nth, kind=kind, parameter=parameter)


def _push(scene: Scene, *, n_bytes: int = 20) -> tuple[str, Any]:
    head = scene.commit("payload", os.urandom(n_bytes))
    return head, scene.git("push", "origin", "main:b", check=False)


def _posts(scene: Scene) -> list[RequestRecord]:
    return [record for record in scene.forward.requests if record.method == "POST"]


def _as_planned(scene: Scene) -> bool:
    return scene.forward.faults_as_planned


def _assert_told_as_known(scene: Scene, ran: Any, returncode: int, *, n_posts: int = 1) -> None:  # noqa: ANN401
    """How the push ended, and how often it was sent: another version may do as it likes."""
    told = (ran.returncode, len(_posts(scene)))
    assert told == (returncode, n_posts) or not is_measured("git"), ran.stderr


def _assert_published_if_sent_whole(scene: Scene, head: str) -> None:
    """Of every version: the branch has moved where a request reached the server, and nowhere else."""
    arrived = any(post.delivery is Delivery.COMPLETE for post in _posts(scene))
    assert scene.tip("b") == (head if arrived else None)


def test_without_a_fault_one_post_publishes(make_scene: MakeScene) -> None:
    scene = make_scene()
    head, ran = _push(scene)
    assert (ran.returncode, scene.tip("b"), len(_posts(scene))) == (0, head, 1)


@pytest.mark.parametrize("kind", [FaultKind.DROP_REPLY, FaultKind.RST_REPLY])
def test_a_lost_reply_on_a_reused_connection_is_replayed(make_scene: MakeScene, kind: FaultKind) -> None:
    scene = make_scene(faults=[_fault(kind)])
    head, ran = _push(scene)
    first, *again = _posts(scene)
    assert _as_planned(scene)
    assert (first.fault_fired, first.client_status, first.status) == (True, None, 200)
    assert {post.delivery for post in (first, *again)} == {Delivery.COMPLETE}
    assert all(post.request_body_bytes == first.request_body_bytes for post in again)
    assert all(post.connection != first.connection for post in again)
    assert scene.tip("b") == head
    _assert_told_as_known(scene, ran, 1, n_posts=2)  # a false failure: the second attempt met its own success


def test_a_lost_reply_on_a_fresh_connection_is_not_replayed(make_scene: MakeScene) -> None:
    scene = make_scene(faults=[_fault(FaultKind.DROP_REPLY)], reuse=ConnectionReuse.FRESH)
    head, ran = _push(scene)
    post, refs = _posts(scene)[0], scene.forward.requests[0]
    assert _as_planned(scene)
    assert (post.fault_fired, refs.connection, post.connection) == (True, 1, 2)
    assert scene.tip("b") == head
    _assert_told_as_known(scene, ran, 1)
    assert "Empty reply" in ran.stderr or not is_measured("git")


def test_every_lost_reply_ends_after_one_replay(make_scene: MakeScene) -> None:
    scene = make_scene(faults=[_fault(FaultKind.DROP_REPLY, nth=0)])
    head, ran = _push(scene)
    (report,) = scene.forward.faults
    n_posts = len(_posts(scene))
    assert (report.n_matched, report.n_fired, report.as_planned) == (n_posts, n_posts, True)
    assert scene.tip("b") == head
    _assert_told_as_known(scene, ran, 1, n_posts=2)


def test_a_lost_reply_to_a_chunked_push_publishes(make_scene: MakeScene) -> None:
    scene = make_scene(faults=[_fault(FaultKind.DROP_REPLY, nth=2)])
    head, ran = _push(scene, n_bytes=3_000_000)
    probe, post = _posts(scene)[:2]
    assert _as_planned(scene)
    assert (probe.request_body_bytes, post.request_declared_bytes) == (4, None)
    assert scene.tip("b") == head
    _assert_told_as_known(scene, ran, 1, n_posts=2)


@pytest.mark.parametrize("n_bytes", [0, 10, 40])
def test_a_truncated_reply_leaves_the_ref_moved(make_scene: MakeScene, n_bytes: int) -> None:
    scene = make_scene(faults=[_fault(FaultKind.TRUNCATE_REPLY, n_bytes)])
    head, ran = _push(scene)
    post = _posts(scene)[0]
    assert _as_planned(scene)
    assert post.reply_complete
    assert scene.tip("b") == head
    _assert_told_as_known(scene, ran, 1)


def test_a_request_dropped_before_the_server_is_published_by_replay(make_scene: MakeScene) -> None:
    scene = make_scene(faults=[_fault(FaultKind.DROP_BEFORE_FORWARD)])
    head, ran = _push(scene)
    first = _posts(scene)[0]
    assert _as_planned(scene)
    assert (first.delivery, first.request_complete) == (Delivery.NOT_SENT, True)
    _assert_published_if_sent_whole(scene, head)
    _assert_told_as_known(scene, ran, 0, n_posts=2)


def test_a_small_request_cut_in_the_middle_is_published_by_replay(make_scene: MakeScene) -> None:
    scene = make_scene(faults=[_fault(FaultKind.DROP_MID_REQUEST, 200)])
    head, ran = _push(scene)
    first = _posts(scene)[0]
    assert _as_planned(scene)
    assert first.delivery is Delivery.PARTIAL
    _assert_published_if_sent_whole(scene, head)
    _assert_told_as_known(scene, ran, 0, n_posts=2)


def test_a_big_request_cut_in_the_middle_publishes_nothing(make_scene: MakeScene) -> None:
    scene = make_scene(faults=[_fault(FaultKind.DROP_MID_REQUEST, 1_000_000, nth=2)])
    _, ran = _push(scene, n_bytes=3_000_000)
    post = _posts(scene)[1]
    assert _as_planned(scene)
    assert (post.delivery, post.request_complete) == (Delivery.PARTIAL, False)
    assert post.request_body_bytes > 1_000_000
    assert scene.tip("b") is None
    _assert_told_as_known(scene, ran, 1, n_posts=2)
    assert scene.git("--git-dir", str(scene.bare), "fsck", "--strict", cwd=scene.tmp).stderr == ""


@pytest.mark.parametrize("status", [500, 503])
def test_a_refused_post_publishes_nothing(make_scene: MakeScene, status: int) -> None:
    scene = make_scene(faults=[_fault(FaultKind.STATUS, status)])
    _, ran = _push(scene)
    post = _posts(scene)[0]
    assert _as_planned(scene)
    assert (post.client_status, post.status, post.delivery) == (status, None, Delivery.NOT_SENT)
    assert (ran.returncode != 0, scene.tip("b")) == (True, None)
    _assert_told_as_known(scene, ran, 1)


@pytest.mark.parametrize(
    ("kind", "parameter"),
    [(FaultKind.RST_CONNECT, None), (FaultKind.STATUS, 503), (FaultKind.DROP_BEFORE_FORWARD, None)],
)
def test_refs_that_cannot_be_read_end_the_push_before_it_begins(
    make_scene: MakeScene, kind: FaultKind, parameter: int | None
) -> None:
    scene = make_scene(faults=[_fault(kind, parameter, match=REFS, nth=0)])
    _, ran = _push(scene)
    assert _as_planned(scene)
    assert _posts(scene) == []
    assert scene.tip("b") is None
    _assert_told_as_known(scene, ran, 128, n_posts=0)


def test_a_reset_before_the_server_is_recorded_and_sends_nothing(make_scene: MakeScene) -> None:
    scene = make_scene(faults=[_fault(FaultKind.RST_CONNECT, nth=0)])
    _, ran = _push(scene)
    assert _as_planned(scene)
    assert {post.delivery for post in _posts(scene)} == {Delivery.NOT_SENT}
    assert (ran.returncode != 0, scene.tip("b")) == (True, None)


def test_a_delayed_push_succeeds_late(make_scene: MakeScene) -> None:
    scene = make_scene(faults=[_fault(FaultKind.DELAY, 400)])
    head, ran = _push(scene)
    (post,) = _posts(scene)
    assert _as_planned(scene)
    assert post.elapsed_ms >= 400
    assert (ran.returncode, scene.tip("b")) == (0, head)


def test_a_throttled_push_takes_its_time(make_scene: MakeScene) -> None:
    scene = make_scene(faults=[_fault(FaultKind.THROTTLE, 2_000_000, nth=2)])
    head, ran = _push(scene, n_bytes=2_000_000)
    _, post = _posts(scene)
    assert _as_planned(scene)
    assert post.elapsed_ms >= 1000
    assert (ran.returncode, scene.tip("b")) == (0, head)


def test_a_client_that_gives_up_on_a_held_push_is_published_later(make_scene: MakeScene) -> None:
    scene = make_scene(faults=[_fault(FaultKind.DELAY, 600_000)])
    head = scene.commit("payload", b"x\n")
    impatient = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=4")  # it holds for what comes before, too
    ran = scene.git(*impatient, "push", "origin", "main:b", check=False)
    assert ran.returncode != 0
    assert scene.tip("b") is None
    assert len(_posts(scene)) == 1  # reading the ledger drains first, which lets it go
    assert _as_planned(scene)
    assert scene.tip("b") == head


def test_a_client_killed_while_its_push_is_held_is_published_later(
    make_scene: MakeScene, eventually: Callable[..., None]
) -> None:
    scene = make_scene(faults=[_fault(FaultKind.DELAY, 600_000)])
    head = scene.commit("payload", b"x\n")
    client = subprocess.Popen(
        ["git", "push", "-q", "origin", "main:b"], cwd=scene.work, stderr=subprocess.DEVNULL, start_new_session=True
    )
    eventually(lambda: scene.server.ledger().forward.faults[0].n_matched == 1)
    os.killpg(client.pid, 9)
    client.wait()
    assert scene.tip("b") is None
    assert _as_planned(scene)
    (post,) = _posts(scene)
    assert (post.delivery, post.reply_complete) == (Delivery.COMPLETE, True)
    assert scene.tip("b") == head
    assert list(scene.bare.rglob("*.lock")) == []


def test_a_stalled_reply_holds_the_client_although_the_ref_has_moved(
    make_scene: MakeScene, eventually: Callable[..., None]
) -> None:
    scene = make_scene(faults=[_fault(FaultKind.STALL)])
    head = scene.commit("payload", b"x\n")
    client = subprocess.Popen(
        ["git", "push", "-q", "origin", "main:b"], cwd=scene.work, stderr=subprocess.DEVNULL, start_new_session=True
    )
    eventually(lambda: scene.tip("b") == head)
    eventually(lambda: scene.server.ledger().forward.faults_as_planned)
    assert client.poll() is None
    os.killpg(client.pid, 9)
    client.wait()
    eventually(lambda: bool(_posts(scene)))
    (post,) = _posts(scene)
    assert (post.client_gone, post.client_status, post.status) == (True, None, 200)


def test_a_server_that_is_killed_leaves_the_client_with_a_failure(
    make_scene: MakeScene, eventually: Callable[..., None]
) -> None:
    scene = make_scene()
    hook = scene.bare / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\ntouch {scene.tmp}/reached\nkill -9 $PPID\n")
    hook.chmod(0o755)
    _, ran = _push(scene)
    eventually((scene.tmp / "reached").exists)
    assert ran.returncode != 0
    assert scene.tip("b") is None
    assert scene.server.drain(60)


def test_a_new_plan_applies_from_the_next_request_on(make_scene: MakeScene) -> None:
    scene = make_scene()
    head, ran = _push(scene)
    assert ran.returncode == 0
    scene.server.set_faults([_fault(FaultKind.STATUS, 503)])
    _, ran = _push(scene)
    assert (ran.returncode != 0, scene.tip("b")) == (True, head)
    assert _as_planned(scene)
    scene.server.set_faults([])
    head = scene.git("rev-parse", "HEAD").stdout.strip()
    assert scene.git("push", "-q", "origin", "main:b").returncode == 0
    assert scene.tip("b") == head
