"""What every test gets: a world of its own inside the clone, and the rules for parts that a machine may lack.

A test says what it needs: `@pytest.mark.needs("fossil")`, or a whole tier, `@pytest.mark.core`. Without it the test is
skipped, and the reason says how to get it; with `FAIRTRIAL_REQUIRE=core,oak` (tiers and parts) such a skip is a
failure.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from _pytest.nodeid import NodeId
from hypothesis import settings

from fairtrial.host.files import remove_tree
from fairtrial.host.slot import Slot, open_slot, probe_slot

ACCEPTS_NONCOMMERCIAL: Final = os.environ.get("FAIRTRIAL_ACCEPT_NONCOMMERCIAL") == "1"
"""Whoever runs the tests says that their use of it is not commercial."""


class Part(NamedTuple):
    """A program, or something of the kernel, that some tests need.

    Attributes:
        tier: The tier that it belongs to.
        remedy: The command that installs it.
        beside: Parts that it needs in turn.
        places: The directories that a sandbox has it in, where the caller's PATH does not matter; none for PATH.
        refusal: Says why it cannot be had, or None when it can, where it is no program.
    """

    tier: str
    remedy: str
    beside: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    refusal: Callable[[], str | None] | None = None

    def lacks(self, name: str) -> str | None:
        """Say that the program is not there, or not allowed, and how to get it; None when it may be used."""
        if self.refusal is not None:
            refused = self.refusal()
            return None if refused is None else f"no {name} here: {refused} ({self.remedy})"
        if shutil.which(name, path=":".join(self.places) or None) is not None:
            if self.tier != "noncommercial" or ACCEPTS_NONCOMMERCIAL:
                return None
            return f"{name} is for noncommercial use ({self.remedy})"
        place = f"in {' or '.join(self.places)}" if self.places else "on PATH"
        return f"{name} is not {place} ({self.remedy})"


@cache
def _slot_refusal() -> str | None:
    return probe_slot(dict(os.environ))


PARTS: Final = {
    "git": Part("core", "apt-get install git"),
    "hg": Part("core", "apt-get install mercurial"),
    "fossil": Part("core", "apt-get install fossil"),
    "bwrap": Part("core", "apt-get install bubblewrap"),
    "slot": Part("core", "fairtrial doctor", refusal=_slot_refusal),
    "node": Part("core", "apt-get install nodejs", places=("/usr/bin",)),
    "go": Part("core", "apt-get install golang-go", places=("/usr/local/go/bin", "/usr/bin")),
    "cargo": Part("core", "apt-get install cargo-web rustc-web", places=("/usr/bin",)),
    "claude": Part("agents", "make agents"),
    "codex": Part("agents", "make agents"),
    "opencode": Part("agents", "make agents"),
    "gemini": Part("agents", "make agents"),
    "mini": Part("agents", "make agents"),
    "npm": Part("agents", "apt-get install npm", ("node",), places=("/usr/bin",)),
    "ctags": Part("agents", "apt-get install universal-ctags"),
    "gitnexus": Part("noncommercial", "make gitnexus, its directory on PATH, and FAIRTRIAL_ACCEPT_NONCOMMERCIAL=1"),
    "rg": Part("agents", "make agents, or apt-get install ripgrep"),
    "oak": Part("built", "make oak, and its directory on PATH"),
    "jj": Part("built", "make jj, and its directory on PATH", ("jj-git",)),
    "jj-git": Part("built", "make jj, and its directory on PATH"),
}

TIERS: Final = ("core", "agents", "built", "noncommercial")

_LONGEST_ROOT_BYTES: Final = 40
"""Of the place for temporary files: the path of a unix socket ends at 107 bytes, that of a scratch directory at 60."""

_FAILED: Final = pytest.StashKey[bool]()

_FOREIGN: Final = ("FAIRTRIAL_", "FOSSIL_", "GIT_", "HG", "XDG_")
"""Variables of the person who runs the tests that would change what is tested."""

_OURS: Final = ("FAIRTRIAL_ACCEPT_NONCOMMERCIAL", "FAIRTRIAL_KILLS", "FAIRTRIAL_REQUIRE")

settings.register_profile(
    "fairtrial", deadline=None
)  # the machine is shared: an example may take long and still be right
settings.load_profile("fairtrial")


def pytest_configure(config: pytest.Config) -> None:
    """Give this session a home and a place for temporary files, and check `FAIRTRIAL_REQUIRE`."""
    if unknown := sorted(required_names() - set(PARTS) - set(TIERS)):
        message = f"FAIRTRIAL_REQUIRE: unknown {', '.join(unknown)}; valid: {', '.join((*TIERS, *sorted(PARTS)))}"
        raise pytest.UsageError(message)
    if hasattr(config, "workerinput"):
        return  # of xdist: the environment is that of the session that started it
    cache = config.rootpath / ".cache"
    temporary, home = cache / "t", cache / "home"
    if len(os.fsencode(temporary)) > _LONGEST_ROOT_BYTES:
        temporary = Path(tempfile.mkdtemp(prefix="ft-", dir="/var/tmp"))
        config.add_cleanup(lambda: remove_tree(temporary))
    for directory in (temporary, home):
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    for name in [name for name in os.environ if name.startswith(_FOREIGN) and name not in _OURS]:
        del os.environ[name]
    os.environ.update(
        HOME=str(home),
        TMPDIR=str(temporary),
        PYTEST_DEBUG_TEMPROOT=str(temporary),
        HYPOTHESIS_STORAGE_DIRECTORY=str(cache / "hypothesis"),
    )
    tempfile.tempdir = None  # pytest has used it already, and it is remembered


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Write a test's group behind its id, by which `--dist loadgroup` sends the group's tests to one process.

    xdist 3.8 writes it where pytest 9.2 does not look any more. Once it finds the place again this does nothing.
    """
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        if mark is not None and not item.nodeid.endswith(f"@{mark.args[0]}"):
            item._id = NodeId.parse(f"{item.nodeid}@{mark.args[0]}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or fail, a test whose parts or user are not there."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("must run as root")
    if item.get_closest_marker("unprivileged") and os.geteuid() == 0:
        pytest.skip("must not run as root")
    missing = {name: lacks for name in needed_parts(item) if (lacks := PARTS[name].lacks(name)) is not None}
    if not missing:
        return
    reason = "; ".join(missing.values())
    if required := required_names() & {*missing, *(PARTS[name].tier for name in missing)}:
        pytest.fail(f"required by FAIRTRIAL_REQUIRE={','.join(sorted(required))}: {reason}", pytrace=False)
    pytest.skip(reason)


def needed_parts(item: pytest.Item) -> list[str]:
    """The parts that the test's markers name, each once."""
    needed = [str(name) for marker in item.iter_markers("needs") for name in marker.args]
    needed += [name for name, part in PARTS.items() if item.get_closest_marker(part.tier)]
    if unknown := sorted(set(needed) - set(PARTS)):
        pytest.fail(f"needs({', '.join(unknown)}): unknown part; add it to PARTS in tests/conftest.py", pytrace=False)
    return list(dict.fromkeys([*needed, *(beside for name in needed for beside in PARTS[name].beside)]))


def required_names() -> set[str]:
    """Tiers and parts that must not be missing."""
    return {name.strip() for name in os.environ.get("FAIRTRIAL_REQUIRE", "").split(",")} - {""}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember for `tmp_path` that the test failed."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty directory with a short path, which pytest's own would not have; it stays when the test fails."""
    directory = Path(tempfile.mkdtemp(prefix="", dir=os.environ["TMPDIR"]))
    yield directory
    if request.node.stash.get(_FAILED, False) and directory.is_relative_to(request.config.rootpath):
        request.node.add_report_section("teardown", "tmp_path", f"kept: {directory}\n")
    else:
        remove_tree(directory)


@pytest.fixture(scope="session")
def clone(pytestconfig: pytest.Config) -> Path:
    """The root of the clone."""
    return pytestconfig.rootpath


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A directory that any user may enter: with root, sandboxes run under another uid."""
    directory = Path(tempfile.mkdtemp(prefix="ft-", dir="/var/tmp"))
    directory.chmod(0o711)
    yield directory
    remove_tree(directory)


@pytest.fixture
def slot(public_path: Path) -> Slot:
    return open_slot(public_path)
