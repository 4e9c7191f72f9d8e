"""A slot and a workspace for sandboxes that are attacked from inside."""

import hashlib
import importlib.metadata
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from fairtrial.host.files import remove_tree
from fairtrial.host.limits import Enforcement, probe_limits
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import Slot
from fairtrial.judging.run import judge_oracle
from fairtrial.judging.values import (
    CapturedFile,
    ChangedPath,
    JudgedTree,
    OracleSpec,
    OracleVerdict,
    Place,
    Runner,
    Surroundings,
)
from fairtrial.model.sandbox import Access, Bind, Limits, SandboxResult, SandboxSpec

RunInside = Callable[..., SandboxResult]


@pytest.fixture
def workspace(slot: Slot) -> Path:
    """An empty directory that is the slot's."""
    directory = slot.root / "w"
    directory.mkdir()
    slot.give(directory)
    return directory


@pytest.fixture(scope="session")
def enforcement_of() -> Callable[[Slot], Enforcement]:
    """What this host enforces, probed once."""
    found: list[Enforcement] = []

    def probe(slot: Slot) -> Enforcement:
        if not found:
            found.append(probe_limits(slot))
        return found[0]

    return probe


@pytest.fixture
def inside(slot: Slot, workspace: Path, enforcement_of: Callable[[Slot], Enforcement]) -> RunInside:
    """Run a shell script (or an argv) in a sandbox on the workspace."""

    def run(script: str | tuple[str, ...], *, binds: tuple[Bind, ...] = (), **changes: object) -> SandboxResult:
        argv = ("sh", "-c", script) if isinstance(script, str) else script
        own = Bind(source=workspace, target="/workspace", access=Access.READ_WRITE)
        wanted: dict[str, object] = {"limits": Limits(wall_s=60, grace_s=0.5), **changes}
        space = wanted.pop("space", None)
        sink = wanted.pop("sink", None)
        spec = SandboxSpec(
            argv=argv, env={"PATH": "/usr/bin:/bin", "HOME": "/home/agent"}, binds=(own, *binds), **wanted
        )
        return run_sandbox(
            spec, slot=slot, enforcement=enforcement_of(slot), space=space, sink=sink, capture_bytes=1 << 20
        )

    return run


class Judge:
    """Judges trees of a few files with oracles of a few files."""

    def __init__(self, slot: Slot, enforcement: Enforcement, captured: Path, toolchain: Path) -> None:
        self.slot = slot
        self.enforcement = enforcement
        self.captured = captured
        self.binds = (Bind(source=toolchain, target="/toolchain"),)
        self.env: dict[str, str] = {}
        self.trees = 0

    def tree(self, base: Mapping[str, str | bytes], change: Mapping[str, str | bytes | Path | None]) -> JudgedTree:
        """A base with a change made in it: text of a file, a path for a link's target, None for what is gone."""
        self.trees += 1
        merged = self.slot.root / f"m{self.trees}"
        merged.mkdir()
        changed = []
        for path, content in (base | change).items():
            if content is None:
                continue
            where = merged / path
            where.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                where.symlink_to(content)
            else:
                where.write_bytes(content if isinstance(content, bytes) else content.encode())
                where.chmod(0o755 if "bin/" in path else 0o644)
        for path in (merged, *merged.rglob("*")):
            self.slot.give(path)
        for path, content in change.items():
            before = base.get(path)
            changed.append(
                ChangedPath(
                    path=path.encode(),
                    before=before.encode() if isinstance(before, str) else before,
                    after=content.encode() if isinstance(content, str) else None if content is None else bytes(content),
                    is_link=isinstance(content, Path),
                )
            )
        return JudgedTree(merged=merged, space=None, change=tuple(changed))

    def oracle(
        self,
        command: str,
        files: Mapping[str, str],
        *,
        runner: Runner | None = None,
        expect_tests: int | None = None,
        place: Place = Place.ORACLE_ROOT,
    ) -> OracleSpec:
        """An oracle whose files are captured."""
        captured = []
        for target, text in files.items():
            digest = hashlib.sha256(text.encode()).hexdigest()
            source = self.captured / digest
            source.write_text(text)
            captured.append(
                CapturedFile(target=target, place=place, source=source, sha256=digest, n_bytes=len(text.encode()))
            )
        return OracleSpec(command=command, files=tuple(captured), runner=runner, expect_tests=expect_tests)

    def surroundings(self, limits: Limits | None = None) -> Surroundings:
        """What is beside a tree: a tool chain with pytest."""
        path = ":".join([*(f"{bind.target}/bin" for bind in self.binds), "/usr/local/go/bin", "/usr/bin", "/bin"])
        env = {"PATH": path, "HOME": "/home/agent", "LC_ALL": "C.UTF-8", **self.env}
        return Surroundings(env=env, binds=self.binds, limits=limits or Limits(wall_s=60, grace_s=0.5))

    def add_toolchain(self, source: Path, target: str) -> None:
        """Have programs of one more directory."""
        self.binds = (*self.binds, Bind(source=source, target=target))

    def __call__(self, oracle: OracleSpec, tree: JudgedTree, limits: Limits | None = None) -> OracleVerdict:
        return judge_oracle(oracle, tree, self.surroundings(limits), slot=self.slot, enforcement=self.enforcement)


@pytest.fixture(scope="session")
def toolchain() -> Iterator[Path]:
    """A virtual environment with pytest on the system's Python, as a task would name it."""
    root = Path(tempfile.mkdtemp(prefix="ft-", dir="/var/tmp"))
    root.chmod(0o755)
    asked = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"],
        check=True,
        capture_output=True,
        text=True,
    )
    packages = root / "lib" / asked.stdout.strip() / "site-packages"
    packages.mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin" / "python3").symlink_to("/usr/bin/python3")
    (root / "pyvenv.cfg").write_text("home = /usr/bin\n")
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        for file in importlib.metadata.files(name) or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), packages / file)
    subprocess.run([root / "bin" / "python3", "-m", "compileall", "-q", packages], check=True)
    yield root
    remove_tree(root)


@pytest.fixture
def judge(slot: Slot, enforcement_of: Callable[[Slot], Enforcement], tmp_path: Path, toolchain: Path) -> Judge:
    captured = tmp_path / "captured"
    captured.mkdir()
    return Judge(slot, enforcement_of(slot), captured, toolchain)
