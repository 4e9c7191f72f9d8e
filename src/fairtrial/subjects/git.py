"""git, as an agent drives it from the command line.

Facts it stands on (git 2.39, Debian 12): a `file://` clone uses the pack protocol, a path clone would hard-link
objects instead; `GIT_CONFIG_COUNT` needs 2.31; `ls-remote --exit-code` ends with 2 when nothing matches; reading a
blob does not check its hash, so only `fsck` tells a damaged store.
"""

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from fairtrial.host.process import run as run_process
from fairtrial.model.loop import Manner, Motion, Place, Probe, Reading, Step, Transport, Truth, Variant
from fairtrial.protocols import RunProbe
from fairtrial.wire.settings import FrontSettings

__all__ = ["Git"]

OLDEST: Final = (2, 31)
INSTALL: Final = "apt-get install git"
PATH: Final = "/usr/local/bin:/usr/bin:/bin"
DATE: Final = "2026-01-01T00:00:00Z"
SETTINGS: Final = {
    "gc.auto": "0",
    "maintenance.auto": "false",
    "core.hooksPath": "/dev/null",
    "advice.detachedHead": "false",
    "init.defaultBranch": "main",
}


class Git:
    """The git subject; a variant's settings are git configuration keys."""

    kind: ClassVar[str] = "git"
    transports: ClassVar[frozenset[Transport]] = frozenset({Transport.FILE, Transport.HTTP, Transport.HOSTED})
    acquisition_models: ClassVar[Mapping[Manner, str]] = {
        Manner.FRESH: "fresh_full_clone",
        Manner.WARM: "shared_object_worktree",
    }

    def __init__(self, variant: Variant) -> None:
        self._variant = variant
        self._git = variant.binary or "git"

    def probe(self) -> Probe:
        """Find git and refuse one that is older than what the environment needs."""
        found = shutil.which(self._git)
        if found is None:
            return _missing(f"no program '{self._git}' on PATH; install it: {INSTALL}")
        binary = str(Path(found).resolve())
        result = run_process([binary, "--version"], env={"PATH": PATH, "LC_ALL": "C"}, timeout_s=20, capture_bytes=4096)
        text = result.stdout.head.decode("utf-8", "replace").strip()
        numbers = re.match(r"git version (\d+)\.(\d+)", text)
        if not result.ok or numbers is None:
            return _missing(
                f"{binary} --version says {text or result.detail!r}, not a git version; install git: {INSTALL}"
            )
        if (int(numbers[1]), int(numbers[2])) < OLDEST:
            return _missing(f"{binary} is {text}; {OLDEST[0]}.{OLDEST[1]} or newer is needed: {INSTALL}")
        digest = hashlib.sha256(Path(binary).read_bytes()).hexdigest()
        return Probe(binary=binary, version=text, details={"binary_sha256": digest}, missing=None)

    def environment(self, home: Path) -> dict[str, str]:
        """No user or system configuration, no prompt, no pager, C locale, fixed identity and dates."""
        settings = {**SETTINGS, **self._variant.settings}
        pairs = enumerate(settings.items())
        return {
            "PATH": PATH,
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home),
            "LC_ALL": "C",
            "TZ": "UTC",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "GIT_PAGER": "cat",
            "GIT_TEMPLATE_DIR": "",
            "GIT_AUTHOR_NAME": "fairtrial",
            "GIT_AUTHOR_EMAIL": "agent@fairtrial.invalid",
            "GIT_AUTHOR_DATE": DATE,
            "GIT_COMMITTER_NAME": "fairtrial",
            "GIT_COMMITTER_EMAIL": "agent@fairtrial.invalid",
            "GIT_COMMITTER_DATE": DATE,
            "GIT_CONFIG_COUNT": str(len(settings)),
            **{
                f"GIT_CONFIG_{part}_{n}": value
                for n, pair in pairs
                for part, value in zip(("KEY", "VALUE"), pair, strict=True)
            },
        }

    def served_store(self, root: Path) -> Path:
        """A bare repository."""
        return root / "store.git"

    def server(self, transport: Transport, root: Path) -> FrontSettings | None:
        """Loopback HTTP is `git http-backend` behind our own front."""
        return FrontSettings(root=str(root), git=self._git) if transport is Transport.HTTP else None

    def remote(self, transport: Transport, store: Path, port: int | None) -> str:
        """`file://` for the local file transport, so that objects travel as a pack."""
        if transport is Transport.HTTP:
            return f"http://127.0.0.1:{port}/{store.name}"
        return f"file://{store}"

    def create_store(self, place: Place) -> tuple[Step, ...]:
        """One bare repository whose HEAD is the trunk."""
        return (self._step(place.root, "init", "-q", "--bare", "-b", place.trunk, str(place.store)),)

    def seed_store(self, place: Place, tree: Path) -> tuple[Step, ...]:
        """One commit with the seed tree, pushed to the trunk."""
        return (
            self._step(tree, "init", "-q", "-b", place.trunk),
            self._step(tree, "add", "."),
            self._step(tree, "commit", "-q", "-m", "Seed"),
            self._step(tree, "push", "-q", place.remote, f"HEAD:refs/heads/{place.trunk}"),
        )

    def clone_base(self, place: Place) -> tuple[Step, ...]:
        """The clone that worktrees share."""
        return (self._step(place.root, "clone", "-q", "-b", place.trunk, place.remote, str(place.base)),)

    def steps(self, motion: Motion, manner: Manner, place: Place) -> tuple[Step, ...]:
        """What an agent types for each motion."""
        tree = place.workspace
        match motion, manner:
            case Motion.ACQUIRE, Manner.WARM:
                return (
                    self._step(
                        place.base, "worktree", "add", "-q", str(tree), "-b", place.branch, f"origin/{place.trunk}"
                    ),
                )
            case Motion.ACQUIRE, _:
                options = self._variant.acquire_options
                return (
                    self._step(place.root, "clone", "-q", *options, "-b", place.trunk, place.remote, str(tree)),
                    self._step(tree, "switch", "-q", "-c", place.branch, name="branch"),
                )
            case Motion.INSPECT, _:
                return (self._step(tree, "status", "--porcelain=v1"),)
            case Motion.SNAPSHOT, _:
                return (
                    self._step(tree, "add", ".", name=".add"),
                    self._step(tree, "commit", "-q", "-m", place.message, name=".commit"),
                )
            case Motion.PUBLISH, _:
                return (self._step(tree, "push", "-q", "-u", "origin", place.branch),)
            case Motion.DESCRIBE, Manner.REVIEW:
                return (self._step(tree, "show", "--format=%H%n%s", "--stat", "HEAD"),)
            case Motion.END, _:
                return (self._step(place.base, "worktree", "remove", str(tree)),)
            case _:
                return ()  # describe: a commit's message is its description; edit: not git's

    def client_head(self, run: RunProbe, place: Place) -> str | None:
        """HEAD of the working tree."""
        return self._line(run, place.workspace, "rev-parse", "--verify", "-q", "HEAD")

    def read_truth(self, run: RunProbe, place: Place, path: str, transport: Transport) -> Truth:
        """Read the bare repository itself, then fetch the branch into a fresh repository; `fsck` both ways' store."""
        ref = f"refs/heads/{place.branch}"
        wire = self._read_wire(run, place, ref, path)
        if transport is Transport.HOSTED:
            return Truth(readings=(wire,), integrity=None, integrity_detail="a hosted store is out of reach")
        store = self._read_store(run, place.store, ref, path, "store")
        check = run([self._git, "fsck", "--full", "--strict", "--no-progress", "--no-dangling"], cwd=place.store)
        said = (check.stderr.tail + check.stdout.tail).decode("utf-8", "replace").strip()
        return Truth(readings=(store, wire), integrity=check.ok, integrity_detail="" if check.ok else said[-400:])

    def withdraw(self, run: RunProbe, place: Place, branches: Sequence[str]) -> str:
        """Delete branches one by one, without force; what is not there counts as gone."""
        remained: list[str] = []
        pusher = place.root / "withdraw.git"
        run([self._git, "init", "-q", "--bare", str(pusher)], cwd=place.root)
        for branch in branches:
            listed = run([self._git, "ls-remote", "--exit-code", place.remote, f"refs/heads/{branch}"], cwd=place.root)
            if listed.returncode == 2:
                continue
            deleted = run([self._git, "push", "-q", place.remote, "--delete", f"refs/heads/{branch}"], cwd=pusher)
            if not deleted.ok:
                remained.append(f"{branch}: {deleted.stderr.tail.decode('utf-8', 'replace').strip()[-200:]}")
        return "; ".join(remained)

    def _read_store(self, run: RunProbe, repository: Path, ref: str, path: str, source: str) -> Reading:
        head = self._line(run, repository, "rev-parse", "--verify", "-q", f"{ref}^{{commit}}")
        if head is None:
            return Reading(source=source, head=None, content=None, detail=f"{ref} is not there")
        blob = run([self._git, "cat-file", "blob", f"{head}:{path}"], cwd=repository)
        if not blob.ok or blob.stdout.head_truncated:
            return Reading(source=source, head=head, content=None, detail=_said(blob.stderr.tail))
        return Reading(source=source, head=head, content=blob.stdout.head)

    def _read_wire(self, run: RunProbe, place: Place, ref: str, path: str) -> Reading:
        verifier = place.root / f"verify-{place.branch.replace('/', '-')}.git"
        run([self._git, "init", "-q", "--bare", str(verifier)], cwd=place.root)
        fetched = run([self._git, "fetch", "-q", "--no-tags", place.remote, f"+{ref}:{ref}"], cwd=verifier)
        if not fetched.ok:
            return Reading(source="wire", head=None, content=None, detail=_said(fetched.stderr.tail))
        return self._read_store(run, verifier, ref, path, "wire")

    def _line(self, run: RunProbe, cwd: Path, *arguments: str) -> str | None:
        result = run([self._git, *arguments], cwd=cwd)
        return result.stdout.head.decode("utf-8", "replace").strip() or None if result.ok else None

    def _step(self, cwd: Path, *arguments: str, name: str = "") -> Step:
        return Step(argv=(self._git, *arguments), cwd=cwd, name=name)


def _missing(reason: str) -> Probe:
    return Probe(binary=None, version=None, details={}, missing=reason)


def _said(stderr: bytes) -> str:
    return stderr.decode("utf-8", "replace").strip()[-400:]
