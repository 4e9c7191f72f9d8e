"""The context `ctags` without a sandbox: what it finds on a host, and the query that proves an index."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from fairtrial.contexts.ctags import Ctags
from fairtrial.model.context import INDEX, ContextInstallation
from fairtrial.payload import __path__ as payload_path

SERVER: Final = Path(payload_path[0]) / "ctags_server.py"
HERE: Final = ContextInstallation(programs={"ctags": ("ctags",), "server": ("python3", "server.py")})


@pytest.mark.needs("ctags")
def test_it_is_found_with_the_versions_of_both_its_parts() -> None:
    probe = Ctags().probe()
    assert probe.missing is None
    assert probe.version is not None
    assert probe.version.startswith("Universal Ctags ")
    assert ", mcp 2." in probe.version
    assert probe.installation is not None
    assert all(bind.source.resolve() == bind.source for bind in probe.installation.binds)


@pytest.mark.parametrize(
    ("says", "why"), [(None, "no program 'ctags' on PATH"), ("Exuberant Ctags 5.8", "is no Universal Ctags with JSON")]
)
def test_what_is_missing_is_said_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str | None, why: str
) -> None:
    if says is not None:
        (tmp_path / "ctags").write_text(f"#!/bin/sh\necho '{says}'\n")
        (tmp_path / "ctags").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    probe = Ctags().probe()
    assert probe.installation is None
    assert probe.missing is not None
    assert why in probe.missing
    assert probe.missing.endswith(Ctags.install)


def test_it_reads_nothing_that_the_tree_says_of_ctags_and_writes_to_the_index_alone() -> None:
    command = Ctags().build(HERE)
    assert command.argv[:2] == ("ctags", "--options=NONE")
    assert command.argv[command.argv.index("-f") + 1].startswith(f"{INDEX}/")


@pytest.mark.needs("ctags")
def test_the_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "b.py").write_text("def two(): pass\n")
    (tree / "a.py").write_text("class One:\n    def it(self): pass\n")
    (tree / ".ctags.d").mkdir()
    (tree / ".ctags.d" / "x.ctags").write_text("--exclude=a.py\n")
    made = []
    for name in ("1", "2"):
        words = [word.replace(f"{INDEX}/tags.jsonl", str(tmp_path / name)) for word in Ctags().build(HERE).argv]
        subprocess.run(words, cwd=tree, check=True, capture_output=True)
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    assert [json.loads(line)["name"] for line in made[0].splitlines()] == ["One", "it", "two"]


@pytest.mark.parametrize(
    ("value", "is_found"),
    [
        ("see hidden/plan", True),
        ("see hidden\\/plan", False),
        ("see hid", False),
        ("unhidden/plan", False),
        ("hidden/plans", False),
    ],
)
def test_the_proof_looks_at_values_and_not_at_how_json_writes_them(tmp_path: Path, value: str, is_found: bool) -> None:
    index = tmp_path / "tags.jsonl"
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in value)
    index.write_text(f'{{"_type": "tag", "name": "f", "path": "a.py", "pattern": "{escaped}"}}\n')
    argv = [sys.executable, "-S", "-P", str(SERVER), "prove", str(index), "other", "hidden/plan"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert (done.stdout != "") == is_found
