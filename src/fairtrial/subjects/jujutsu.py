# ruff: noqa: ARG002 - a subject answers the whole protocol, whether it needs each argument or not
"""Jujutsu, which publishes to a git repository by running git.

Facts it stands on (jj 0.45.1): the working copy is a commit of its own, so a bookmark made on it before the work
follows it into `commit`, and stays behind at the next one; a push is a push with lease, and a new bookmark is tracked
by it; one that has nothing to move ends with 0; `workspace add` shares the store of the clone it is run in, and
`workspace forget` leaves the directory; it fetches by `git fetch --porcelain`, which git has since 2.41.
"""

import shutil
import tomllib
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
    sabotage_git,
    seed_git_store,
    serve_git,
)
from fairtrial.subjects.program import PATH, find_program, first_line, remove_workspace, text_of
from fairtrial.wire.settings import FrontSettings

__all__ = ["Jujutsu"]

OLDEST: Final = (0, 38)
INSTALL: Final = "cargo install --locked jj-cli --version 0.45.1"
GIT: Final = "git"  # of the server and of the truth check: the same as for the git subject
OWN_GIT: Final = "jj-git"
OLDEST_GIT: Final = (2, 41)  # jj runs `git fetch --porcelain`
INSTALL_GIT: Final = f"make jj (or put one on PATH as {OWN_GIT})"
GIT_SETTING: Final = "git.executable-path"
REFUSED: Final = (
    "The remote rejected the following updates",
    "The following references unexpectedly moved on the remote",
)
SETTINGS: Final = {
    "user.name": '"fairtrial"',
    "user.email": '"agent@fairtrial.invalid"',
    "operation.hostname": '"localhost"',
    "operation.username": '"fairtrial"',
    "ui.color": '"never"',
    "ui.paginate": '"never"',
    "ui.editor": '"/bin/false"',
}


class Jujutsu:
    """The jj subject; a variant's settings are TOML values of its configuration."""

    kind: ClassVar[str] = "jj"
    transports: ClassVar[frozenset[Transport]] = frozenset(
        {Transport.FILE, Transport.HTTP, Transport.NATIVE, Transport.SSH}
    )
    acquisition_models: ClassVar[Mapping[Manner, str]] = {
        Manner.FRESH: "fresh_full_clone",
        Manner.WARM: "shared_store_workspace",
    }
    publication_request: ClassVar[str] = PUBLICATION_REQUEST
    publication_mark: ClassVar[str] = PUBLICATION_MARK

    def __init__(self, variant: Variant) -> None:
        self._variant = variant
        self._jj = variant.binary or "jj"

    def check_settings(self) -> dict[str, str]:
        """Each must be a line of TOML beside those before it, and the git that it names be text."""
        wrong: dict[str, str] = {}
        lines = [f"{name} = {value}" for name, value in SETTINGS.items() if name not in self._variant.settings]
        for name, value in self._variant.settings.items():
            line = f"{name} = {value}"
            try:
                tomllib.loads("\n".join((*lines, line)))
                if name == GIT_SETTING and not isinstance(tomllib.loads(f"git = {value}")["git"], str):
                    wrong[name] = f"{value} is no text; write the program's path in two pairs of quotes, '\"PATH\"'"
                lines.append(line)
            except tomllib.TOMLDecodeError as error:
                wrong[name] = f"{line} is no line of jj's configuration ({error}); text is quoted twice: '\"text\"'"
        return wrong

    def probe(self) -> Probe:
        """Find jj, and the git that it runs."""
        found = find_program(
            self._jj,
            ask=("--version",),
            pattern=r"jj (\d+)\.(\d+)\S*",
            oldest=OLDEST,
            install=INSTALL,
            label="jj",
        )
        if found.missing is not None:
            return found
        own = self._own_git()
        git = find_program(
            own,
            ask=("--version",),
            pattern=r"git version (\d+)\.(\d+)\S*",
            oldest=OLDEST_GIT,
            install=INSTALL_GIT,
            label=own,
        )
        if git.missing is not None:
            return replace(git, missing=f"jj runs git: {git.missing}")
        ran = {"git_version": git.version or "", "git_sha256": git.details["binary_sha256"]}
        return replace(found, details={**found.details, **ran})

    def environment(self, home: Path) -> dict[str, str]:
        """Its own configuration file, and git's environment for the git that it runs."""
        return {**git_environment(home, {}), "JJ_CONFIG": str(home / "jj.toml")}

    def home_files(self, home: Path) -> Mapping[str, str]:
        """Identity, plain output, no editor, and the git that is run."""
        own = shutil.which(self._own_git()) or self._own_git()
        settings = {**SETTINGS, GIT_SETTING: f'"{own}"', **self._variant.settings}
        lines = (f"{name} = {value}\n" for name, value in settings.items())
        return {"jj.toml": "".join(lines)}

    def served_store(self, root: Path) -> Path:
        """A bare git repository."""
        return root / "store.git"

    def server(self, transport: Transport, root: Path) -> FrontSettings | Serve | None:
        """The servers of git."""
        return serve_git(shutil.which(GIT, path=PATH) or f"/usr/bin/{GIT}", transport, root)

    def remote(self, transport: Transport, store: Path, port: int | None) -> str:
        """An address of git."""
        return git_remote(transport, store, port)

    def create_store(self, place: Place) -> tuple[Step, ...]:
        """One bare git repository."""
        return create_git_store(GIT, place)

    def seed_store(self, place: Place, tree: Path) -> tuple[Step, ...]:
        """One commit with the seed tree, by git."""
        return seed_git_store(GIT, place, tree)

    def clone_base(self, place: Place) -> tuple[Step, ...]:
        """The clone whose store workspaces share."""
        options = self._variant.acquire_options
        return (self._step(place.root, "git", "clone", *options, place.remote, str(place.base)),)

    def steps(self, motion: Motion, manner: Manner, place: Place) -> tuple[Step, ...]:
        """What an agent types for each motion."""
        tree = place.workspace
        branch = self._step(tree, "bookmark", "create", place.branch, name="branch")
        match motion, manner:
            case Motion.ACQUIRE, Manner.WARM:
                return (self._step(place.base, "workspace", "add", str(tree), "-r", place.trunk), branch)
            case Motion.ACQUIRE, Manner.JOIN:
                options = (*self._variant.acquire_options, "-b", place.branch)
                return (
                    self._step(place.root, "git", "clone", *options, place.remote, str(tree)),
                    self._step(tree, "bookmark", "track", place.branch, "--remote", "origin", name=".track"),
                )
            case Motion.ACQUIRE, _:
                options = self._variant.acquire_options
                return (self._step(place.root, "git", "clone", *options, place.remote, str(tree)), branch)
            case Motion.INSPECT, _:
                return (self._step(tree, "status"),)
            case Motion.JOIN, _:  # the bookmark moves with its commit
                return (
                    self._step(tree, "git", "fetch", name=".fetch"),
                    self._step(tree, "rebase", "-b", "@", "-o", f'"{place.branch}"@origin', name=".rebase"),
                )
            case Motion.SNAPSHOT, Manner.MERGED:  # into the commit below, which holds the conflict
                return (self._step(tree, "squash", name=".squash"),)
            case Motion.SNAPSHOT, Manner.JOIN:  # on a branch that is published already: its bookmark stayed behind
                return (
                    self._step(tree, "commit", "-m", place.message, name=".commit"),
                    self._step(tree, "bookmark", "move", place.branch, "--to", "@-", name=".move"),
                )
            case Motion.SNAPSHOT, _:
                return (self._step(tree, "commit", "-m", place.message),)
            case Motion.PUBLISH, _ if manner is not Manner.FORCE:
                return (self._step(tree, "git", "push", "-b", place.branch),)
            case Motion.DESCRIBE, Manner.REVIEW:
                return (self._step(tree, "show", "@-", "--stat"),)
            case Motion.END, _:
                return (self._step(tree, "workspace", "forget", name=".forget"), remove_workspace(tree))
            case _:
                # publish by force: a push moves a bookmark from where it was last seen, or not at all;
                # describe: a commit's message is its description; edit: not jj's
                return ()

    def belied(self, motion: Motion, result: ProcessResult) -> str:
        """Its exit status was never seen to say success for a failure."""
        return ""

    def claim(self, result: ProcessResult) -> ClientClaim:
        """As of the git that it runs; refused refs are told in its own words."""
        claim = claim_of_git(result)
        refused = any(words in text_of(result.stderr.tail) for words in REFUSED)
        return ClientClaim.REJECTED if claim is ClientClaim.UNREPORTED and refused else claim

    def reconcile(self, place: Place) -> tuple[Step, ...]:
        """Fetch, then ask where the remote's bookmark stands."""
        return (
            self._step(place.workspace, "git", "fetch", name=".fetch"),
            self._step(place.workspace, *_commits(f'present("{place.branch}"@origin)'), name=".log"),
        )

    def reconciled_head(self, place: Place, result: ProcessResult) -> str | None:
        """The commit that `log` printed."""
        return text_of(result.stdout.tail).strip() or None if result.ok else None

    def sabotage(self, fault: StoreFault, place: Place) -> Sabotage | None:
        """Hooks in the bare git repository."""
        return sabotage_git(fault, place)

    def published_branch(self, run: RunProbe, place: Place) -> str | None:
        """The lane names bookmarks."""
        return place.branch

    def local_state(self, run: RunProbe, place: Place) -> LocalState:
        """Commits below the working copy that no remote bookmark holds, and the working copy's own change."""
        ahead = run((self._jj, *_commits("remote_bookmarks()..@-")), cwd=place.workspace)
        change = run((self._jj, "diff", "--name-only"), cwd=place.workspace)
        return LocalState(
            unpublished=bool(ahead.stdout.head) if ahead.ok else None,
            dirty=bool(change.stdout.head) if change.ok else None,
        )

    def client_head(self, run: RunProbe, place: Place) -> str | None:
        """The commit below the working copy."""
        return first_line(run, (self._jj, *_commits("@-")), cwd=place.workspace)

    def store_head(self, run: RunProbe, place: Place) -> str | None:
        """The ref in the bare git repository."""
        return git_store_head(run, GIT, place)

    def read_truth(self, run: RunProbe, place: Place, path: str, transport: Transport) -> Truth:
        """As for git."""
        return read_git_truth(run, GIT, place, path)

    def withdraw(self, run: RunProbe, place: Place, branches: Sequence[str]) -> str:
        """Hosted remotes are not driven."""
        return "jj is not driven over hosted remotes"

    def _own_git(self) -> str:
        """The git that a variant names, else one that is on PATH for jj alone, else the machine's."""
        named = self._variant.settings.get(GIT_SETTING)
        if named is not None:
            return str(tomllib.loads(f"git = {named}")["git"])
        return GIT if shutil.which(OWN_GIT) is None else OWN_GIT

    def _step(self, cwd: Path, *arguments: str, name: str = "") -> Step:
        return Step(argv=(self._jj, *arguments), cwd=cwd, name=name)


def _commits(revisions: str) -> tuple[str, ...]:
    """Arguments that print the ids of commits, one a line."""
    return ("log", "--no-graph", "-r", revisions, "-T", r'commit_id ++ "\n"')
