"""A slot and a workspace for sandboxes that are attacked from inside."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.host.limits import Enforcement, probe_limits
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import Slot
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
