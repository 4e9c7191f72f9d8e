"""`requirements/built/setup`, in a copy that holds nothing else, with stand-ins for cargo and apt-get on its PATH.

They are no tool of ours: the real cargo takes a quarter of an hour, the real apt-get would change the machine.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SHELL = Path("requirements/built/setup")
CARGO = """#!/bin/sh
[ "$1" = --version ] && echo "cargo {version} (0123 2026-01-01)" && exit
echo "$@" >> "{log}"
echo "home $CARGO_HOME" >> "{log}"
while [ "$1" != --root ]; do shift; done
mkdir -p "$2/bin"
printf '#!/bin/sh\\necho {built}\\n' > "$2/bin/oak"
chmod 755 "$2/bin/oak"
"""
OAK = "oak 0.102.0"


class Machine:
    """A clone with the script alone, a home, and the one directory that its PATH holds beside the system's tools."""

    def __init__(self, clone: Path, root: Path) -> None:
        self.clone, self.home, self.bin, self.log = root / "c", root / "h", root / "b", root / "log"
        (self.clone / SHELL).parent.mkdir(parents=True)
        shutil.copy(clone / SHELL, self.clone / SHELL)
        self.home.mkdir()
        self.bin.mkdir()
        for tool in ("bash", "chmod", "dirname", "env", "flock", "head", "install", "ln", "mkdir", "mv", "rm", "sort"):
            found = shutil.which(tool)
            assert found is not None
            (self.bin / tool).symlink_to(found)

    def put(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o700)

    def put_rust(self, version: str, built: str = OAK) -> None:
        self.put(self.bin / "cargo", CARGO.format(version=version, log=self.log, built=built))
        self.put(self.bin / "rustc", f"#!/bin/sh\necho 'rustc {version} (0123 2026-01-01)'\n")

    def run(self, *names: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.bin), "HOME": str(self.home)}
        argv = [str(self.bin / "bash"), str(self.clone / SHELL), *names]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    @property
    def set_up(self) -> Path:
        return self.clone / ".cache/built/bin/oak"


@pytest.fixture
def machine(clone: Path, tmp_path: Path) -> Machine:
    return Machine(clone, tmp_path)


def prints(text: str) -> str:
    return f"#!/bin/sh\necho '{text}'\n"


@pytest.mark.parametrize("place", ["PATH", ".cargo/bin"])
def test_a_program_of_the_pinned_version_is_copied_so_that_any_user_can_run_it(machine: Machine, place: str) -> None:
    directory = machine.bin if place == "PATH" else machine.home / place
    machine.put(directory / "oak", prints(OAK))
    done = machine.run("oak")
    assert (done.returncode, done.stdout) == (0, f"{machine.set_up.parent}\n"), done.stderr
    assert machine.set_up.stat().st_mode & 0o777 == 0o755
    assert machine.set_up.read_bytes() == (directory / "oak").read_bytes()
    (directory / "oak").unlink()
    assert machine.run("oak").returncode == 0  # and from then on that copy will do


@pytest.mark.parametrize("other", ["oak 0.102.01", "oak 0.101.0", "0.102.0", "oak 0.102.0.1"])
def test_a_program_of_another_version_is_left_alone_and_the_pinned_one_is_built(machine: Machine, other: str) -> None:
    machine.put(machine.bin / "oak", prints(other))
    machine.put_rust("1.96.0")
    done = machine.run("oak")
    assert (done.returncode, done.stdout) == (0, f"{machine.set_up.parent}\n"), done.stderr
    built = machine.clone / ".cache/built"
    assert machine.log.read_text().splitlines() == [
        f"install --locked --version 0.102.0 --root {built}/root oakvcs-cli",
        f"home {built}/cargo",
    ]
    assert machine.set_up.read_text() == "#!/bin/sh\necho oak 0.102.0\n"
    assert [path.name for path in built.iterdir()] == ["bin"]
    assert list(machine.home.iterdir()) == []


@pytest.mark.needs("git")
def test_a_build_finds_no_commit_of_ours_to_name_itself_after(machine: Machine) -> None:
    for words in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@a", "commit", "-q", "--allow-empty", "-mx"],
    ):
        subprocess.run(["git", *words], cwd=machine.clone, check=True)
    machine.put_rust("1.96.0")
    script = (machine.bin / "cargo").read_text()
    look = f'(cd "$CARGO_HOME" && git rev-parse HEAD) >> "{machine.log}" 2>/dev/null\n'
    machine.put(machine.bin / "cargo", script.replace("while ", f"{look}while ", 1))
    (machine.bin / "git").symlink_to(shutil.which("git") or "")
    done = machine.run("oak")
    assert done.returncode == 0, done.stderr
    assert len(machine.log.read_text().splitlines()) == 2


def test_what_was_built_must_be_what_was_asked_for(machine: Machine) -> None:
    machine.put_rust("1.96.0", built="oak 0.103.0")
    done = machine.run("oak")
    assert (done.returncode, done.stdout) == (1, "")
    assert "what was built is not oak 0.102.0" in done.stderr
    assert not machine.set_up.exists()


@pytest.mark.parametrize("version", [None, "0.66.0", "1.87.1"])
def test_without_a_new_enough_cargo_it_takes_debians_new_one_or_names_the_command(
    machine: Machine, version: str | None
) -> None:
    if version is not None:
        machine.put_rust(version)
    machine.put(machine.bin / "apt-get", f'#!/bin/sh\necho "apt-get $@" >> "{machine.log}"\n')
    done = machine.run("oak")
    assert (done.returncode, done.stdout) == (2, "")
    asked = machine.log.read_text().splitlines() if machine.log.exists() else []
    if os.geteuid() == 0:
        packages = "cargo-web rustc-web"
        install = f"apt-get install --yes --no-install-recommends {packages} --no-remove"
        assert asked == ["apt-get update", install]
        assert "Debian's cargo-web is older than Rust 1.88" in done.stderr
    else:
        assert asked == []
        assert re.search(
            r"^sudo apt-get update && sudo apt-get install .* cargo-web rustc-web$", done.stderr, re.MULTILINE
        )


def test_a_name_that_it_does_not_know_is_refused_before_anything_is_done(machine: Machine) -> None:
    done = machine.run("oak", "svn")
    assert (done.returncode, done.stderr) == (2, "built: unknown program 'svn'; valid: oak, jj\n")
    assert not (machine.clone / ".cache").exists()
