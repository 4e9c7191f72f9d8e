"""The rules of tests/conftest.py for parts that a machine lacks, tried on a small suite in a directory of its own."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SUITE = """
import os
import pytest

@pytest.mark.needs("git", "fossil")
def test_needing():
    pass

@pytest.mark.core
def test_tier():
    pass

@pytest.mark.root
def test_root():
    assert os.geteuid() == 0

@pytest.mark.unprivileged
def test_unprivileged():
    assert os.geteuid() != 0

def test_plain():
    pass
"""


def run_suite(clone: Path, directory: Path, suite: str, *, programs: tuple[str, ...], require: str | None) -> str:
    """Run the suite where exactly these programs are on PATH; return what pytest printed, its exit code last."""
    (directory / "bin").mkdir()
    for program in programs:
        (directory / "bin" / program).symlink_to("/bin/true")
    shutil.copy(clone / "tests" / "conftest.py", directory)
    shutil.copy(clone / "pyproject.toml", directory)
    (directory / "test_it.py").write_text(suite)
    environment = {**os.environ, "PATH": str(directory / "bin")}
    for name in ("FAIRTRIAL_ACCEPT_NONCOMMERCIAL", "FAIRTRIAL_REQUIRE"):
        environment.pop(name, None)
    if require is not None:
        environment["FAIRTRIAL_REQUIRE"] = require
    argv = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:xdist", "-vv", "test_it.py"]
    done = subprocess.run(argv, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}\nexit {done.returncode}"


def test_a_missing_part_skips_and_the_end_of_the_run_says_how_to_get_it(clone: Path, tmp_path: Path) -> None:
    output = run_suite(clone, tmp_path, SUITE, programs=("git", "hg"), require=None)
    assert "test_needing SKIPPED" in output
    assert re.search(r"^SKIPPED \[1\] .*: fossil is not on PATH \(apt-get install fossil\)$", output, re.MULTILINE)
    assert "fossil is not on PATH (apt-get install fossil); bwrap is not on PATH (apt-get install bubblewrap)" in output
    assert "test_plain PASSED" in output
    assert output.endswith("exit 0")


@pytest.mark.parametrize("require", ["core", " agents , fossil"])
def test_a_missing_part_that_is_required_fails(clone: Path, tmp_path: Path, require: str) -> None:
    output = run_suite(clone, tmp_path, SUITE, programs=("git", "hg"), require=require)
    assert "Failed: required by FAIRTRIAL_REQUIRE=" in output
    assert "fossil is not on PATH (apt-get install fossil)" in output
    assert output.endswith("exit 1")


def test_a_missing_part_of_another_tier_than_the_required_one_skips(clone: Path, tmp_path: Path) -> None:
    output = run_suite(clone, tmp_path, SUITE, programs=("git", "hg"), require="agents,git")
    assert "test_needing SKIPPED" in output
    assert output.endswith("exit 0")


def test_a_missing_part_of_a_tier_of_which_only_another_part_is_required_skips(clone: Path, tmp_path: Path) -> None:
    suite = "import pytest\n\n@pytest.mark.needs('jj', 'git')\ndef test_it():\n    pass\n"
    output = run_suite(clone, tmp_path, suite, programs=("git", "oak"), require="core,oak")
    assert "test_it SKIPPED" in output
    assert "jj is not on PATH (make jj, and its directory on PATH)" in output
    assert output.endswith("exit 0")


@pytest.mark.needs("node", "go", "cargo")
def test_with_every_part_there_nothing_is_skipped_but_for_the_user(clone: Path, tmp_path: Path) -> None:
    output = run_suite(clone, tmp_path, SUITE, programs=("git", "hg", "fossil", "bwrap"), require="core")
    assert "test_needing PASSED" in output
    assert "test_tier PASSED" in output
    passing, skipped = ("root", "unprivileged") if os.geteuid() == 0 else ("unprivileged", "root")
    assert f"test_{passing} PASSED" in output
    assert f"test_{skipped} SKIPPED (must {'not ' if os.geteuid() == 0 else ''}run as root)" in output
    assert output.endswith("exit 0")


def test_a_misspelt_requirement_is_refused(clone: Path, tmp_path: Path) -> None:
    output = run_suite(clone, tmp_path, SUITE, programs=(), require="core,fosil")
    valid = "core, agents, built, noncommercial, bwrap, cargo, claude, codex, ctags, fossil"
    assert f"FAIRTRIAL_REQUIRE: unknown fosil; valid: {valid}" in output
    assert output.endswith("exit 4")


def test_a_part_that_is_for_noncommercial_use_is_skipped_until_that_is_said(clone: Path, tmp_path: Path) -> None:
    suite = "import pytest\n\n@pytest.mark.needs('gitnexus')\ndef test_it():\n    pass\n"
    for require, says in ((None, "1 skipped"), ("noncommercial", "required by FAIRTRIAL_REQUIRE=noncommercial: ")):
        directory = tmp_path / str(require)
        directory.mkdir()
        output = run_suite(clone, directory, suite, programs=("gitnexus",), require=require)
        assert "gitnexus is for noncommercial use (make gitnexus, " in output
        assert says in output


def test_a_misspelt_need_fails_instead_of_skipping_for_ever(clone: Path, tmp_path: Path) -> None:
    suite = "import pytest\n\n@pytest.mark.needs('gti')\ndef test_it():\n    pass\n"
    output = run_suite(clone, tmp_path, suite, programs=("git",), require=None)
    assert "needs(gti): unknown part" in output
    assert output.endswith("exit 1")


def test_a_test_has_a_home_and_temporary_files_of_its_own(clone: Path, tmp_path: Path) -> None:
    assert Path.home() == clone / ".cache" / "home"
    assert tmp_path.parent == Path(tempfile.gettempdir())
    assert len(os.fsencode(tmp_path)) <= 50
    assert not [name for name in os.environ if name.startswith(("GIT_", "XDG_"))]


def test_a_clone_with_a_long_path_gets_short_temporary_directories_and_leaves_none(clone: Path, tmp_path: Path) -> None:
    suite = "def test_fails(tmp_path):\n    (tmp_path / 'file').touch()\n    assert False, f'at {tmp_path}.'\n"
    clone_elsewhere = tmp_path / "a-directory-whose-path-is-too-long"
    clone_elsewhere.mkdir()
    output = run_suite(clone, clone_elsewhere, suite, programs=(), require=None)
    used, *_ = re.findall(r"at (/var/tmp/ft-.*)\.$", output, re.MULTILINE)
    assert not Path(used).parent.exists()


def test_only_variables_that_are_meant_for_the_tests_reach_them(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = """
import os

SEEN = {name for name in os.environ if name.startswith("FAIRTRIAL_")}

def test_it():
    assert SEEN == {"FAIRTRIAL_KILLS"}
"""
    monkeypatch.setenv("FAIRTRIAL_KILLS", "7")
    monkeypatch.setenv("FAIRTRIAL_LOG", "debug")
    output = run_suite(clone, tmp_path, suite, programs=(), require=None)
    assert output.endswith("exit 0"), output
