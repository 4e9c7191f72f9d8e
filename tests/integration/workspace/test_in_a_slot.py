"""The workspace's tests once more where layers are overlays: in a worker that owns its mount namespace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairtrial.host.slot import probe_slot, slot_argv

pytestmark = [pytest.mark.needs("git"), pytest.mark.timeout(600)]


def test_what_holds_for_copies_holds_for_overlays(clone: Path) -> None:
    if refused := probe_slot(dict(os.environ)):
        pytest.skip(f"no slot here: {refused}")
    options = ["-q", "-n0", "-p", "no:randomly", "-o", "cache_dir=.cache/pytest-slot"]
    argv = slot_argv([sys.executable, "-m", "pytest", *options, "tests/unit/workspace/test_change.py"], 7)
    done = subprocess.run(argv, cwd=clone, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
