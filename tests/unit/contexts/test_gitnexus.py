"""The context `gitnexus` without a sandbox: what it finds on a host, and what it asks for."""

import json
from pathlib import Path
from typing import Final

import pytest

from fairtrial.contexts.gitnexus import MODULES, NODE, GitNexus
from fairtrial.model.context import INDEX, ContextInstallation

HERE: Final = ContextInstallation(programs={"gitnexus": ("node", "cli.js"), "script": ("python3", "script.py")})


def write_package(root: Path, *, node: str | None, version: str = "1.6.12") -> Path:
    """An installation as npm lays it out; `node` is what the Node beside it says of its version."""
    package, programs = root / "node_modules" / "gitnexus", root / "node_modules" / ".bin"
    (package / "dist").mkdir(parents=True)
    programs.mkdir()
    (package / "package.json").write_text(json.dumps({"name": "gitnexus", "version": version}))
    (package / "dist" / "index.js").write_text("")
    (package / "dist" / "index.js").chmod(0o755)
    (programs / "gitnexus").symlink_to("../gitnexus/dist/index.js")
    if node is not None:
        (programs / "node").write_text(f"#!/bin/sh\necho {node}\n")
        (programs / "node").chmod(0o755)
    return programs


def test_it_is_found_with_the_node_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = write_package(tmp_path, node="v22.20.0")
    monkeypatch.setenv("PATH", str(programs))
    probe = GitNexus().probe()
    assert (probe.missing, probe.version, probe.details) == (None, GitNexus.tested_version, {})
    assert probe.installation is not None
    assert probe.installation.programs["gitnexus"] == (NODE, f"{MODULES}/gitnexus/dist/index.js")
    mounted = {bind.target: bind.source for bind in probe.installation.binds}
    assert (mounted[NODE], mounted[MODULES]) == (programs / "node", tmp_path / "node_modules")
    assert all(path.resolve() == path for path in mounted.values())


@pytest.mark.parametrize("version", ["1.6.11", "1.6.12-rc.1", "1.6.13"])
def test_another_version_than_the_proven_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("PATH", str(write_package(tmp_path, node="v22.20.0", version=version)))
    probe = GitNexus().probe()
    assert (probe.installation, probe.version) == (None, None)
    assert f"is gitnexus {version}, and only 1.6.12 is proven" in str(probe.missing)
    assert str(probe.missing).endswith(GitNexus.install)


def test_another_node_than_the_tested_one_is_said_to_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(write_package(tmp_path, node="v24.11.1")))
    assert GitNexus().probe().details == {"untested": f"tested with {GitNexus.tested_version}"}


@pytest.mark.parametrize("node", [None, "v20.19.5", "v22.17.9", "nonsense"])
def test_a_node_that_is_too_old_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str | None) -> None:
    monkeypatch.setenv("PATH", str(write_package(tmp_path, node=node)))
    probe = GitNexus().probe()
    assert probe.installation is None
    assert str(probe.missing).startswith("no Node 22.18 or newer beside it or on PATH; install it (its licence ")
    assert str(probe.missing).endswith(GitNexus.install)


def test_a_program_of_that_name_that_npm_did_not_install_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(GitNexus().probe().missing).startswith("no program 'gitnexus' on PATH; ")
    (tmp_path / "gitnexus").write_text("")
    (tmp_path / "gitnexus").chmod(0o755)
    assert "is in no package 'gitnexus' of npm; " in str(GitNexus().probe().missing)


def test_it_is_built_offline_beside_the_tree_and_served_from_there() -> None:
    context = GitNexus()
    for command in (context.build(HERE), context.prove(HERE, ["a"]), context.serve(HERE)):
        assert command.argv[3] == INDEX
        assert (command.env["GITNEXUS_STORAGE_PATH"], command.env["GITNEXUS_LBUG_EXTENSION_INSTALL"]) == (
            INDEX,
            "never",
        )
    assert context.prove(HERE, ["a", "b"]).argv[-3:] == ("--", "a", "b")


@pytest.mark.needs("gitnexus")
def test_the_one_that_is_installed_is_found() -> None:
    assert GitNexus().probe().missing is None
