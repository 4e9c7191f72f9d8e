"""Where the programs of an agent lie on the host is told nowhere inside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = [
    pytest.mark.needs("bwrap", "git", "slot"),
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("attack-sweep"),
]

LOOK: Final = """#!/bin/sh
case "$*" in *--version*) echo 99.0.0; exit;; esac
(cat /proc/[0-9]*/mountinfo /proc/[0-9]*/mounts /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'
 for file in /opt/agent /opt/agent/* /opt/agent/*/*; do test ! -w $file || echo "writable $file"; done) >seen
"""
PLACES: Final = {
    "claude-code": {"claude": "lib/claude.exe"},
    "codex": {"codex": "lib/codex/bin/codex"},
    "gemini-cli": {"gemini": "lib/gemini/bundle/gemini.js", "node": "lib/node/bin/node"},
    "opencode": {"opencode": "lib/opencode.exe", "rg": "lib/path/rg"},
}


@pytest.mark.parametrize("agent", PLACES)
def test_an_agent_that_is_installed_below_a_home_does_not_tell_whose_it_is(
    sweep: Callable[..., Any], open_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    world = open_world()
    home: Path = world.root / "home" / "alice-of-example"
    (home / "bin").mkdir(parents=True)
    for name, place in PLACES[agent].items():
        program = home / place
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(LOOK)
        program.chmod(0o755)
        (home / "bin" / name).symlink_to(program)
    monkeypatch.setenv("PATH", f"{home}/bin", prepend=":")
    swept = sweep({"places": ("", {})}, "--agent", agent, world=world)
    seen = swept.patch("places")
    assert " /opt/agent" in seen, swept.rows["places"]["error_detail"]
    assert "writable" not in seen
    assert [line for line in seen.splitlines() if "alice-of-example" in line or "/lib/" in line] == []
    assert not list(world.root.glob("ft-*")), "the scratch directory is gone"
