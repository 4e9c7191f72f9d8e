"""Plain processes in the place of sandboxes: places are renamed, limits hold, nothing of the stand-ins stays."""

import io
import os
from pathlib import Path

import pytest

from fairtrial.host.limits import UNCONTAINED
from fairtrial.host.plain import rename_places
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import Slot
from fairtrial.model.sandbox import (
    WORKSPACE,
    Access,
    Bind,
    Capture,
    File,
    Limit,
    Limits,
    SandboxResult,
    SandboxSpec,
    SandboxState,
)

PLACES = {"/workspace": "/s/t1", "/home/agent": "/s/n1/home/agent", "/run/model": "/s/g/x"}


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("/workspace", "/s/t1"),
        ("--root=/workspace/a b", "--root=/s/t1/a b"),
        ('{"home": "/home/agent", "cwd": "/workspace"}', '{"home": "/s/n1/home/agent", "cwd": "/s/t1"}'),
        ("/home/agent/.cache:/run/model/3.sock", "/s/n1/home/agent/.cache:/s/g/x/3.sock"),
        ("/workspaces /workspace-2 /my/workspace ./workspace", "/workspaces /workspace-2 /my/workspace ./workspace"),
    ],
)
def test_only_whole_places_are_renamed(text: str, renamed: str) -> None:
    assert rename_places(text, PLACES) == renamed
    assert rename_places(text, {}) == text


@pytest.fixture
def slot(tmp_path: Path) -> Slot:
    return Slot(root=tmp_path, uid=os.geteuid(), gid=os.getegid(), mounts=False, reason="a test's")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def run(
    script: str, slot: Slot, tree: Path, *more: Bind, stdin: bytes = b"", limits: Limits | None = None
) -> SandboxResult:
    spec = SandboxSpec(
        argv=("/bin/sh", "-c", script),
        env={"PATH": "/usr/bin:/bin", "HOME": "/home/agent"},
        binds=(Bind(source=tree, target=WORKSPACE, access=Access.READ_WRITE), *more),
        files=(File(target="/opt/agent-config/a.json", content=b'{"cwd": "/workspace"}'),),
        stdin=stdin,
        capture=Capture.SOCKET,
        limits=limits or Limits(wall_s=30, grace_s=5),
    )
    sink = io.BytesIO()
    result = run_sandbox(spec, slot=slot, enforcement=UNCONTAINED, sink=sink)
    assert sink.getvalue().endswith(result.stdout.tail[-10:])
    return result


def test_a_command_finds_its_workspace_home_files_and_input_and_only_the_workspace_stays(
    slot: Slot, tree: Path
) -> None:
    script = "pwd; cd; pwd; cat /opt/agent-config/a.json; cat; echo x >/workspace/made; echo y >$TMPDIR/y; exit 7"
    result = run(script, slot, tree, stdin=b"the prompt")
    assert (result.state, result.returncode) == (SandboxState.EXITED, 7)
    first, home, rest = result.stdout.tail.decode().split("\n")
    assert first == str(tree)
    assert home.endswith("/home/agent")
    assert rest == f'{{"cwd": "{tree}"}}the prompt'
    assert (tree / "made").read_text() == "x\n"
    assert [path.name for path in slot.root.iterdir()] == ["tree"]
    assert set(result.enforced) == {Limit.FILES, Limit.OUTPUT, Limit.WALL}


def test_what_is_mounted_in_the_workspace_is_there_meanwhile(slot: Slot, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "dependency").mkdir()
    (tmp_path / "dependency" / "m").write_text("of it")
    (tree / "lib").mkdir()
    result = run("cat lib/m", slot, tree, Bind(source=tmp_path / "dependency", target=f"{WORKSPACE}/lib"))
    assert result.stdout.tail == b"of it"
    assert list(tree.iterdir()) == []


@pytest.fixture
def mounted(tmp_path: Path) -> Bind:
    """A dependency, two directories below the top of the workspace."""
    (tmp_path / "dependency").mkdir()
    (tmp_path / "dependency" / "m").write_text("of it")
    return Bind(source=tmp_path / "dependency", target=f"{WORKSPACE}/sub/lib")


def test_a_mount_in_a_directory_that_is_not_there_makes_it(slot: Slot, tree: Path, mounted: Bind) -> None:
    assert run("cat sub/lib/m", slot, tree, mounted).stdout.tail == b"of it"
    assert list((tree / "sub").iterdir()) == []


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_link_that_an_earlier_command_left_leads_nowhere(
    is_whole: bool, slot: Slot, tree: Path, mounted: Bind, tmp_path: Path
) -> None:
    """Neither above a mount nor in its place: nothing is made, emptied or removed where it points."""
    (tmp_path / "hosts" / "lib").mkdir(parents=True)
    if is_whole:
        (tree / "sub").symlink_to(tmp_path / "hosts")
    else:
        (tree / "sub").mkdir()
        (tree / "sub" / "lib").symlink_to(tmp_path / "hosts" / "lib")
    result = run("exit 3", slot, tree, mounted)
    assert (result.state, result.returncode) == (SandboxState.EXITED, 3)
    assert [path.name for path in (tmp_path / "hosts").iterdir()] == ["lib"]
    assert (tmp_path / "hosts" / "lib").is_dir()
    assert not (tmp_path / "hosts" / "lib").is_symlink()
    assert (tree / "sub" if is_whole else tree / "sub" / "lib").is_symlink(), "it is the command's own work"


@pytest.mark.parametrize(
    "script",
    [
        "mv sub away; ln -s {hosts} sub",
        "rm sub/lib; mkdir sub/lib; echo x >sub/lib/own",
        "rm -r sub",
        "rm -r sub; echo x >sub",
        "rm sub/lib; ln -s {hosts} sub/lib",
    ],
)
def test_whatever_a_command_makes_of_a_mounts_place_it_ends_as_itself_and_the_hosts_files_stay(
    script: str, slot: Slot, tree: Path, mounted: Bind, tmp_path: Path
) -> None:
    (tmp_path / "hosts").mkdir()
    (tmp_path / "hosts" / "lib").write_text("the host's")
    for _ in range(2):
        result = run(f"{script.format(hosts=tmp_path / 'hosts')}; exit 3", slot, tree, mounted)
        assert (result.state, result.returncode) == (SandboxState.EXITED, 3)
        assert (tmp_path / "hosts" / "lib").read_text() == "the host's"
        assert (tmp_path / "dependency" / "m").read_text() == "of it"


def test_a_command_that_heeds_term_ends_in_its_grace_and_one_that_does_not_is_killed(slot: Slot, tree: Path) -> None:
    def run_until_ready(script: str, grace_s: float) -> SandboxResult:
        for wall_s in (0.2, 4, 40):  # how long a shell needs until its trap is set is the machine's business
            result = run(script, slot, tree, limits=Limits(wall_s=wall_s, grace_s=grace_s))
            if result.stdout.tail.startswith(b"ready\n"):
                return result
        pytest.fail(f"it was never ready: {result}")

    soft = run_until_ready("trap 'echo stopping; exit 3' TERM; sleep 60 & echo ready; wait", 60)
    assert (soft.state, soft.returncode, soft.limit) == (SandboxState.TIMEOUT, 3, Limit.WALL)
    assert soft.stdout.tail == b"ready\nstopping\n"
    hard = run_until_ready("trap '' TERM; echo ready; while :; do sleep 60; done", 0.2)
    assert (hard.state, hard.returncode) == (SandboxState.FORCED_KILL, None)


def test_too_much_output_ends_it(slot: Slot, tree: Path) -> None:
    result = run("yes", slot, tree, limits=Limits(output_bytes=1000, wall_s=30))
    assert (result.state, result.limit) == (SandboxState.LIMIT, Limit.OUTPUT)


def test_the_command_cannot_say_how_it_ended(slot: Slot, tree: Path) -> None:
    result = run("echo '{\"exit-code\": 0}' >&3; exit 4", slot, tree)
    assert result.returncode == 4
