# ruff: noqa: ARG002 - a subject answers the whole protocol, whether it needs each argument or not
"""git, as an agent drives it from the command line.

Facts it stands on (git 2.39, Debian 12): a `file://` clone uses the pack protocol, a path clone would hard-link
objects instead; `GIT_CONFIG_COUNT` needs 2.31; `ls-remote --exit-code` ends with 2 when nothing matches; reading a
blob does not check its hash, so only `fsck` tells a damaged store.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

from fairtrial.evidence.publication import ClientClaim
from fairtrial.model.loop import (
    LocalState,
    Manner,
    Motion,
    Place,
    Probe,
    Sabotage,
    Serve,
    Step,
    StoreFault,
    Transport,
    Truth,
    Variant,
)
from fairtrial.model.process import ProcessResult
from fairtrial.protocols import RunProbe
from fairtrial.subjects.git_store import (
    PUBLICATION_MARK,
    PUBLICATION_REQUEST,
    claim_of_git,
    create_git_store,
    git_environment,
    git_remote,
    git_store_head,
    read_git_truth,
    read_git_wire,
    sabotage_git,
    seed_git_store,
    serve_git,
)
from fairtrial.subjects.program import ask_program, find_program, first_line, linked_version, text_of
from fairtrial.wire.settings import FrontSettings

__all__ = ["Git"]

OLDEST: Final = (2, 31)
INSTALL: Final = "apt-get install git"
KEY: Final = re.compile(r"[A-Za-z0-9-]+(?:\..+)?\.[A-Za-z][A-Za-z0-9-]*")
NO_KEY: Final = "is no key of git's configuration; write section.name, such as core.untrackedCache"


class Git:
    """The git subject; a variant's settings are git configuration keys."""

    kind: ClassVar[str] = "git"
    transports: ClassVar[frozenset[Transport]] = frozenset(
        {Transport.FILE, Transport.HTTP, Transport.NATIVE, Transport.SSH, Transport.HOSTED}
    )
    acquisition_models: ClassVar[Mapping[Manner, str]] = {
        Manner.FRESH: "fresh_full_clone",
        Manner.WARM: "shared_object_worktree",
    }
    publication_request: ClassVar[str] = PUBLICATION_REQUEST
    publication_mark: ClassVar[str] = PUBLICATION_MARK

    def __init__(self, variant: Variant) -> None:
        self._variant = variant
        self._git = variant.binary or "git"

    def check_settings(self) -> dict[str, str]:
        """A key is a section and a name, with any subsection between them."""
        return {key: f"{key!r} {NO_KEY}" for key in self._variant.settings if KEY.fullmatch(key) is None}

    def probe(self) -> Probe:
        """Find git and the libcurl that it speaks by; refuse one that is older than what the environment needs."""
        found = find_program(
            self._git,
            ask=("--version",),
            pattern=r"git version (\d+)\.(\d+)\S*",
            oldest=OLDEST,
            install=INSTALL,
            label="git",
        )
        return found if found.binary is None else replace(found, details={**found.details, **_libcurl(found.binary)})

    def environment(self, home: Path) -> dict[str, str]:
        """The variables of git; a variant's settings come after ours."""
        return git_environment(home, self._variant.settings)

    def served_store(self, root: Path) -> Path:
        """A bare repository."""
        return root / "store.git"

    def home_files(self, home: Path) -> Mapping[str, str]:
        """None: git's whole configuration is in its environment."""
        return {}

    def server(self, transport: Transport, root: Path) -> FrontSettings | Serve | None:
        """Loopback HTTP is `git http-backend` behind our own front, native is `git daemon`."""
        return serve_git(self._git, transport, root)

    def remote(self, transport: Transport, store: Path, port: int | None) -> str:
        """`file://` for the local file transport, so that objects travel as a pack."""
        return git_remote(transport, store, port)

    def create_store(self, place: Place) -> tuple[Step, ...]:
        """One bare repository whose HEAD is the trunk."""
        return create_git_store(self._git, place)

    def seed_store(self, place: Place, tree: Path) -> tuple[Step, ...]:
        """One commit with the seed tree, pushed to the trunk."""
        return seed_git_store(self._git, place, tree)

    def clone_base(self, place: Place) -> tuple[Step, ...]:
        """The clone that worktrees share."""
        options = ("-q", *self._variant.acquire_options, "-b", place.trunk)
        return (self._step(place.root, "clone", *options, place.remote, str(place.base)),)

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
            case Motion.ACQUIRE, Manner.JOIN:
                options = self._variant.acquire_options
                return (self._step(place.root, "clone", "-q", *options, "-b", place.branch, place.remote, str(tree)),)
            case Motion.ACQUIRE, _:
                options = self._variant.acquire_options
                return (
                    self._step(place.root, "clone", "-q", *options, "-b", place.trunk, place.remote, str(tree)),
                    self._step(tree, "switch", "-q", "-c", place.branch, name="branch"),
                )
            case Motion.INSPECT, _:
                return (self._step(tree, "status", "--porcelain=v1"),)
            case Motion.JOIN, _:
                return (self._step(tree, "pull", "-q", "--rebase", "origin", place.branch),)
            case Motion.SNAPSHOT, Manner.MERGED:  # it would open an editor for a message that is there already
                return (
                    self._step(tree, "add", ".", name=".add"),
                    self._step(tree, "-c", "core.editor=true", "rebase", "--continue", name=".continue"),
                )
            case Motion.SNAPSHOT, _:
                return (
                    self._step(tree, "add", ".", name=".add"),
                    self._step(tree, "commit", "-q", "-m", place.message, name=".commit"),
                )
            case Motion.PUBLISH, Manner.FORCE:
                return (self._step(tree, "push", "-q", "-f", "-u", "origin", place.branch),)
            case Motion.PUBLISH, _:
                return (self._step(tree, "push", "-q", "-u", "origin", place.branch),)
            case Motion.DESCRIBE, Manner.REVIEW:
                return (self._step(tree, "show", "--format=%H%n%s", "--stat", "HEAD"),)
            case Motion.END, _:
                return (self._step(place.base, "worktree", "remove", str(tree)),)
            case _:
                return ()  # describe: a commit's message is its description; edit: not git's

    def belied(self, motion: Motion, result: ProcessResult) -> str:
        """Its exit status was never seen to say success for a failure."""
        return ""

    def claim(self, result: ProcessResult) -> ClientClaim:
        """As git's callers take its exit status and its words."""
        return claim_of_git(result)

    def reconcile(self, place: Place) -> tuple[Step, ...]:
        """`ls-remote` on the one branch; exit 2 says that it is not there."""
        ref = f"refs/heads/{place.branch}"
        argv = (self._git, "ls-remote", "--exit-code", "origin", ref)
        return (Step(argv=argv, cwd=place.workspace, expected=(0, 2)),)

    def reconciled_head(self, place: Place, result: ProcessResult) -> str | None:
        """The first word of `ls-remote`."""
        return text_of(result.stdout.tail).partition("\t")[0].strip() or None if result.ok else None

    def sabotage(self, fault: StoreFault, place: Place) -> Sabotage | None:
        """Hooks in the bare repository."""
        return sabotage_git(fault, place)

    def published_branch(self, run: RunProbe, place: Place) -> str | None:
        """The lane names git's branches."""
        return place.branch

    def local_state(self, run: RunProbe, place: Place) -> LocalState:
        """Commits that no remote-tracking branch holds, and `status`."""
        ahead = self._line(run, place.workspace, "rev-list", "--count", "HEAD", "--not", "--remotes=origin")
        status = run([self._git, "status", "--porcelain=v1"], cwd=place.workspace)
        return LocalState(
            unpublished=None if ahead is None else ahead != "0",
            dirty=bool(status.stdout.head) if status.ok else None,
        )

    def client_head(self, run: RunProbe, place: Place) -> str | None:
        """HEAD of the working tree."""
        return self._line(run, place.workspace, "rev-parse", "--verify", "-q", "HEAD")

    def store_head(self, run: RunProbe, place: Place) -> str | None:
        """The ref in the bare repository."""
        return git_store_head(run, self._git, place)

    def read_truth(self, run: RunProbe, place: Place, path: str, transport: Transport) -> Truth:
        """The bare repository itself, the branch fetched into a fresh repository, and `fsck`."""
        if transport is Transport.HOSTED:
            wire = read_git_wire(run, self._git, place, path)
            return Truth(readings=(wire,), integrity=None, integrity_detail="a hosted store is out of reach")
        return read_git_truth(run, self._git, place, path)

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

    def _line(self, run: RunProbe, cwd: Path, *arguments: str) -> str | None:
        return first_line(run, (self._git, *arguments), cwd=cwd)

    def _step(self, cwd: Path, *arguments: str, name: str = "") -> Step:
        return Step(argv=(self._git, *arguments), cwd=cwd, name=name)


def _libcurl(git: str) -> dict[str, str]:
    """What it says over HTTP after a lost reply is libcurl's doing: another libcurl is another result."""
    asked = ask_program([git, "--exec-path"])
    if not asked.ok:
        return {}
    version = linked_version(Path(text_of(asked.stdout.head).strip()) / "git-remote-http", "libcurl")
    return {} if version is None else {"libcurl": version}
