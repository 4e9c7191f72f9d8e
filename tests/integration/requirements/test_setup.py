"""`requirements/setup` in a copy that holds nothing else: which packages it says are missing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SHELL = Path("requirements/setup")
TOOLS = ("bash", "dirname", "env", "mkdir")
EVERY = ("git", "bwrap", "hg", "fossil")
UNPRIVILEGED = 65534


def run_setup(clone: Path, place: Path, lock: str, *programs: str) -> subprocess.CompletedProcess[str]:
    """Run it as a user without rights where exactly these programs can be found, and a Python that will do."""
    (place / "c" / SHELL).parent.mkdir(parents=True)
    shutil.copy(clone / SHELL, place / "c" / SHELL)
    (place / "bin").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (place / "bin" / tool).symlink_to(found)
    for program in ("apt-get", *programs):
        (place / "bin" / program).symlink_to("/bin/true")
    (place / "bin" / "python3").symlink_to("/bin/true")
    for path in (place, place / "c", place / "c" / "requirements"):
        path.chmod(0o777)
    return subprocess.run(
        [shutil.which("bash") or "bash", str(place / "c" / SHELL), lock],
        env={"PATH": str(place / "bin")},
        user=None if os.geteuid() else UNPRIVILEGED,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("lock", "there", "line"),
    [
        ("run", ("git",), "bubblewrap"),
        ("run", ("bwrap",), "git"),
        ("run", (), "git bubblewrap"),
        ("dev", ("git", "bwrap"), "mercurial fossil"),
        ("dev", ("git", "bwrap", "fossil"), "mercurial"),
    ],
)
def test_a_user_without_rights_is_told_the_one_line_that_installs_what_is_missing(
    clone: Path, public_path: Path, lock: str, there: tuple[str, ...], line: str
) -> None:
    done = run_setup(clone, public_path, lock, *there)
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith(f"sudo apt-get update && sudo apt-get install --yes {line}\n")


@pytest.mark.parametrize(("lock", "n_needed"), [("run", 2), ("dev", 4)])
def test_where_everything_is_there_nobody_is_asked(clone: Path, public_path: Path, lock: str, n_needed: int) -> None:
    done = run_setup(clone, public_path, lock, *EVERY[:n_needed])
    assert "apt-get" not in done.stderr
    assert "flock" in done.stderr, "it went on to the next step, whose tool is not here"
