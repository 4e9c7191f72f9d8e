"""Real git against a real wire server in a process of its own."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import fairtrial
from fairtrial.wire.client import WireServer
from fairtrial.wire.faults import Fault
from fairtrial.wire.ledger import ConnectionReuse, ForwardLedger
from fairtrial.wire.settings import FRONT, ForwardSettings, FrontSettings, WireSettings

GIT = shutil.which("git") or "git"
SERVER_ENV = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(fairtrial.__file__).parents[1]), "LEAK": "secret"}


@dataclass(frozen=True, kw_only=True)
class Ran:
    returncode: int
    stdout: str
    stderr: str


@dataclass(kw_only=True)
class Scene:
    """A seeded bare repository `r.git` behind a wire server, and a working clone."""

    tmp: Path
    bare: Path
    work: Path
    server: WireServer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}/r.git"

    @property
    def forward(self) -> ForwardLedger:
        assert self.server.drain(90)
        ledger = self.server.ledger()
        assert ledger.internal_errors == ()
        assert ledger.forward is not None
        return ledger.forward

    def git(self, *args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, check: bool = True) -> Ran:
        done = subprocess.run(
            [GIT, *args],
            cwd=cwd or self.work,
            env=git_env(self.tmp) | dict(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        ran = Ran(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)
        assert not check or ran.returncode == 0, ran
        return ran

    def commit(self, name: str, content: bytes) -> str:
        (self.work / name).write_bytes(content)
        self.git("add", name)
        self.git("commit", "-q", "-m", name)
        return self.git("rev-parse", "HEAD").stdout.strip()

    def tip(self, branch: str) -> str | None:
        """What the bare repository itself holds."""
        found = self.git(
            "--git-dir",
            str(self.bare),
            "rev-parse",
            "-q",
            "--verify",
            f"refs/heads/{branch}",
            cwd=self.tmp,
            check=False,
        )
        return found.stdout.strip() or None

    def children(self) -> list[int]:
        return children_of(self.server.pid or 0)


def git_env(home: Path) -> dict[str, str]:
    names = {
        f"GIT_{role}_{part}": "bench@example.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
    }
    return names | {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
    }


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(condition: Callable[[], object], *, timeout_s: float = 90.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition never came true"
        time.sleep(0.01)


@pytest.fixture
def eventually() -> Callable[..., None]:
    return wait_until


@pytest.fixture
def server_env() -> dict[str, str]:
    return dict(SERVER_ENV)


MakeScene = Callable[..., Scene]


@pytest.fixture
def make_scene(tmp_path: Path) -> Iterator[MakeScene]:
    with WireServer() as server:

        def make(
            *,
            faults: Sequence[Fault] = (),
            reuse: ConnectionReuse = ConnectionReuse.REUSED,
            forwarded: bool = True,
        ) -> Scene:
            root = tmp_path / "root"
            root.mkdir()
            scene = Scene(tmp=tmp_path, bare=root / "r.git", work=tmp_path / "work", server=server)
            scene.git("init", "-q", "--bare", "-b", "main", str(scene.bare), cwd=tmp_path)
            scene.git("init", "-q", "-b", "main", str(scene.work), cwd=tmp_path)
            scene.commit("README", b"seed\n")
            scene.git("push", "-q", str(scene.bare), "main:main")
            forward = ForwardSettings(upstream=FRONT, faults=tuple(faults), connection_reuse=reuse)
            front = FrontSettings(root=str(root), git=GIT)
            server.start(WireSettings(front=front, forward=forward if forwarded else None), SERVER_ENV)
            scene.git("remote", "add", "origin", scene.url)
            scene.git("fetch", "-q", str(scene.bare), "main:refs/remotes/origin/main")
            return scene

        yield make
