"""What a command may do to the layer it works on; in a worker that owns its mounts, and outside of one on a copy."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.host.limits import Enforcement
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import Slot, slot_argv
from fairtrial.model.sandbox import Access, Bind, Limit, Limits, SandboxResult, SandboxSpec, SandboxState
from fairtrial.workspace.change import read_change
from fairtrial.workspace.layers import Base, Layer, Room, Storage, open_layer
from fairtrial.workspace.template import Template, make_template

pytestmark = pytest.mark.needs("bwrap", "git")

Work = Callable[..., SandboxResult]
ROOM = Room(disk_bytes=16 << 20, inodes=2000)


@pytest.fixture
def template(slot: Slot, public_path: Path) -> Template:
    source = public_path / "source"
    source.mkdir()
    (source / "f").write_text("base\n")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    identity = ("-c", "user.name=a", "-c", "user.email=a")
    for words in (("init", "-q"), ("add", "f"), (*identity, "commit", "-q", "-m", "x")):
        subprocess.run(["git", *words], cwd=source, env=env, check=True)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=source, env=env, check=True, capture_output=True, text=True
    )
    return make_template(source, commit.stdout.strip(), slot.root / "t", slot=slot)


@pytest.fixture(params=Storage)
def layer(request: pytest.FixtureRequest, slot: Slot, template: Template) -> Iterator[Layer]:
    with open_layer(Base(trees=(template.tree,)), slot=slot, room=ROOM, storage=request.param) as opened:
        yield opened


@pytest.fixture
def work(layer: Layer, slot: Slot, enforcement_of: Callable[[Slot], Enforcement]) -> Work:
    def run(script: str, *, access: Access = Access.READ_WRITE) -> SandboxResult:
        spec = SandboxSpec(
            argv=("sh", "-c", script),
            env={"PATH": "/usr/bin", "HOME": "/home/agent"},
            binds=(Bind(source=layer.merged, target="/workspace", access=access),),
            limits=Limits(wall_s=60, grace_s=0.5),
        )
        return run_sandbox(spec, slot=slot, enforcement=enforcement_of(slot), space=layer.space, capture_bytes=1 << 16)

    return run


def test_an_agent_works_in_its_layer_and_the_template_stays(
    work: Work, layer: Layer, template: Template, slot: Slot
) -> None:
    result = work(
        "git status --porcelain && echo more >>f && git diff --stat"
        " && git -c user.name=a -c user.email=a commit -qam x && git log --oneline | wc -l"
    )
    assert (result.state, result.returncode) == (SandboxState.EXITED, 0), result.stderr
    assert result.stdout.head.endswith(b"2\n")
    assert (template.tree / "f").read_text() == "base\n"
    assert [entry.path for entry in read_change(layer, template, slot=slot).entries] == [b"f"]


def test_a_full_disk_ends_the_trial_by_its_name(work: Work) -> None:
    result = work("while :; do cat /dev/zero >>big; sleep 0.2; done 2>&-")
    assert (result.state, result.limit) == (SandboxState.LIMIT, Limit.DISK)


def test_two_hundred_thousand_files_end_the_trial_by_their_name(work: Work) -> None:
    result = work("seq 200000 | xargs touch 2>&-; sleep 60")
    assert (result.state, result.limit) == (SandboxState.LIMIT, Limit.INODES)


def test_what_is_read_only_stays_as_it_is(work: Work, layer: Layer, template: Template, slot: Slot) -> None:
    result = work("touch x; echo y >>f; rm f; mkdir d; chmod 777 .; git gc -q; echo $?", access=Access.READ_ONLY)
    assert result.state is SandboxState.EXITED
    assert read_change(layer, template, slot=slot).entries == ()


def test_a_private_mark_of_the_overlay_cannot_be_forged(
    work: Work, layer: Layer, template: Template, slot: Slot
) -> None:
    script = (
        "import os\n"
        "for name in ('user.overlay.opaque', 'user.overlay.redirect', 'user.overlay.whiteout', 'trusted.overlay.opaque'"
        "):\n"
        "    for path in ('.', 'd', 'f'):\n"
        "        try:\n            os.setxattr(path, name, b'/etc')\n        except OSError:\n            pass\n"
        "try:\n    os.mknod('w', 0o20000, 0)\nexcept OSError:\n    pass\n"
    )
    result = work(f'mkdir d; echo x >d/x; python3 -I -c "{script}"; cat f')
    assert result.state is SandboxState.EXITED
    change = read_change(layer, template, slot=slot)
    assert {entry.path: entry.content for entry in change.entries} in ({b"d/x": b"x\n"}, {})


def test_the_mount_table_tells_no_path_of_ours(work: Work, slot: Slot) -> None:
    text = work("cat /proc/self/mountinfo").stdout.head.decode()
    overlays = [line for line in text.splitlines() if " overlay " in line]
    assert len(overlays) == (1 if slot.mounts else 0)
    assert all("/" not in line.partition("lowerdir=")[2].partition(",")[0].removesuffix("/tree") for line in overlays)
    assert all(str(slot.root.parent) not in line for line in overlays)


@pytest.mark.needs("slot")
def test_the_same_holds_in_a_worker_that_owns_its_mounts(clone: Path) -> None:
    options = ["-q", "-n0", "-p", "no:randomly", "-o", "cache_dir=.cache/pytest-slot"]
    options += ["-k", "not in_a_worker_that_owns_its_mounts"]
    argv = slot_argv([sys.executable, "-m", "pytest", *options, "tests/attack/test_sandbox_layers.py"], 6)
    done = subprocess.run(argv, cwd=clone, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.parametrize("script", ["chmod 000 .", "rm -rf d; ln -s /etc d", "rm -rf d; echo >d"])
def test_a_session_that_spoils_its_tree_breaks_its_next_sandbox_and_voids_nothing(
    layer: Layer, slot: Slot, enforcement_of: Callable[[Slot], Enforcement], script: str
) -> None:
    tools = slot.root / "tools"
    tools.mkdir()
    workspace = Bind(source=layer.merged, target="/workspace", access=Access.READ_WRITE)

    def run(command: str, *binds: Bind, cwd: str = "/workspace") -> SandboxResult:
        env = {"PATH": "/usr/bin"}
        spec = SandboxSpec(argv=("sh", "-c", command), env=env, cwd=cwd, binds=(workspace, *binds))
        return run_sandbox(spec, slot=slot, enforcement=enforcement_of(slot))

    assert run(f"mkdir d; {script}").state is SandboxState.EXITED
    again = run("true", Bind(source=tools, target="/workspace/d/tools"), cwd="/workspace/d")
    assert (again.state, again.returncode) == (SandboxState.BROKEN, None), again
    with pytest.raises(HostError, match="not there"):
        run("true", Bind(source=Path("/usr/nowhere"), target="/opt/x"))
