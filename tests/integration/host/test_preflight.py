import os
from pathlib import Path

import pytest

from fairtrial.errors import HostError
from fairtrial.host import launch
from fairtrial.host.limits import probe_limits
from fairtrial.host.preflight import require_sandboxes
from fairtrial.host.slot import Slot, find_system_program

pytestmark = pytest.mark.needs("bwrap")


def test_where_sandboxes_work_nothing_is_said(slot: Slot) -> None:
    require_sandboxes(slot, probe_limits(slot))
    assert list(slot.root.iterdir()) == []


def test_where_bubblewrap_fails_its_reason_and_a_remedy_are_told(
    slot: Slot, public_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = public_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)

    def find(name: str, package: str) -> str:
        return os.fspath(broken) if name == "bwrap" else find_system_program(name, package)

    monkeypatch.setattr(launch, "find_system_program", find)
    with pytest.raises(HostError, match="No permissions to create new namespace; install bubblewrap"):
        require_sandboxes(slot, probe_limits(slot))
