# ruff: noqa: ARG002 - a subject answers the whole protocol, whether it needs each argument or not
"""Fossil: a clone is one database file beside the checkout, and a branch is made by the commit.

Facts it stands on (fossil 2.21, Debian 12): `push` ends with 0 whatever happened, and a failed login leaves even
standard error empty; `test-integrity` ends with 0 on a damaged store; both must be read. With autosync on, `commit`
publishes by itself: it is switched off before the clock starts. `server` cannot choose a port. A push that diverges
is taken: both commits stay as open leaves of one branch, and `info BRANCH` names whichever was committed last.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from fairtrial.errors import HostError
from fairtrial.evidence.publication import ClientClaim
from fairtrial.model.loop import (
    LocalState,
    Manner,
    Motion,
    Place,
    Probe,
    Reading,
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
from fairtrial.subjects.program import (
    PATH,
    ended_by_itself,
    find_program,
    remove_workspace,
    said,
    text_of,
    unused_path,
)

__all__ = ["Fossil"]

OLDEST: Final = (2, 21)
INSTALL: Final = "apt-get install fossil"
KEY: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
NO_KEY: Final = "is no name of a fossil setting; write one that `fossil help --setting` lists"
USER: Final = "bench"
PASSWORD: Final = "pw"  # noqa: S105 - of a server that lives for one trial on 127.0.0.1
SOUND_BLOBS: Final = re.compile(r"checked: +0 errors")
TRUNK: Final = "trunk"  # fossil's own name for it, which `new` gives
ROUND_TRIPS: Final = re.compile(r"Round-trips: \d+ +Artifacts sent: \d+ +received: \d+")
READ_ONLY: Final = "gjorz"
HASH: Final = re.compile(r"^(?:hash|checkout): +([0-9a-f]{40,64})", re.MULTILINE)
TOLD_LEAF: Final = re.compile(r"^([0-9a-f]{40})[0-9a-f]* .*\*LEAF\*", re.MULTILINE)  # as many digits as `info` prints
LEAVES: Final = (  # as many digits as `info` prints
    "SELECT substr(blob.uuid, 1, 40) FROM leaf JOIN blob USING (rid) JOIN event ON event.objid = leaf.rid"
    " JOIN tagxref ON tagxref.rid = leaf.rid AND tagxref.tagtype > 0 JOIN tag ON tag.tagid = tagxref.tagid"
    " WHERE tag.tagname = 'branch' AND tagxref.value = 'BRANCH' AND leaf.rid NOT IN"
    " (SELECT rid FROM tagxref JOIN tag USING (tagid) WHERE tagname = 'closed' AND tagtype > 0)"
    " ORDER BY event.mtime DESC, blob.uuid"
)
SET_CAPABILITIES: Final = """
"$0" user capabilities "$1" "$2" -R "$3" || exit
got=$("$0" user capabilities "$1" -R "$3")
[ "$got" = "$2" ] || { echo "the capabilities are $got, not $2" >&2; exit 1; }
"""
KILL: Final = "tclEval {exec /bin/sh -c {echo x >> 'MARK'; kill -9 $PPID}}"


class Fossil:
    """The fossil subject; a variant's settings are fossil settings."""

    kind: ClassVar[str] = "fossil"
    transports: ClassVar[frozenset[Transport]] = frozenset(
        {Transport.FILE, Transport.HTTP, Transport.NATIVE, Transport.SSH}
    )
    acquisition_models: ClassVar[Mapping[Manner, str]] = {
        Manner.FRESH: "fresh_full_clone",
        Manner.WARM: "shared_repository_checkout",
    }
    publication_request: ClassVar[str] = "POST /store"
    publication_mark: ClassVar[str] = "application/x-fossil"  # of every request: over ssh its address is a path

    def __init__(self, variant: Variant) -> None:
        self._variant = variant
        self._fossil = variant.binary or "fossil"

    def check_settings(self) -> dict[str, str]:
        """A key is a name that `fossil settings` takes."""
        return {key: f"{key!r} {NO_KEY}" for key in self._variant.settings if KEY.fullmatch(key) is None}

    def probe(self) -> Probe:
        """Find fossil."""
        return find_program(
            self._fossil,
            ask=("version",),
            pattern=r"fossil version (\d+)\.(\d+)[^\[]*\[[0-9a-f]+\]",
            oldest=OLDEST,
            install=INSTALL,
            label="fossil",
        )

    def environment(self, home: Path) -> dict[str, str]:
        """One home for its global settings, one user."""
        return {
            "PATH": PATH,
            "HOME": str(home),
            "FOSSIL_HOME": str(home),
            "FOSSIL_USER": USER,
            "USER": USER,
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }

    def home_files(self, home: Path) -> Mapping[str, str]:
        """None: its settings are in a database that only fossil writes."""
        return {}

    def served_store(self, root: Path) -> Path:
        """One repository file."""
        return root / "store.fossil"

    def server(self, transport: Transport, root: Path) -> Serve | None:
        """`fossil server` over a directory of repositories."""
        if transport not in {Transport.HTTP, Transport.NATIVE}:
            return None
        options = ("server", str(root), "--port", "{port}", "--localhost", "--nojail")
        return Serve(argv=(self._fossil, *options), cwd=root, ready="Listening for HTTP requests on TCP port")

    def remote(self, transport: Transport, store: Path, port: int | None) -> str:
        """A file or ssh address, or the loopback server's with the login that pushing needs."""
        if transport is Transport.FILE:
            return f"file://{store}"
        if transport is Transport.SSH:
            return f"ssh://localhost/{store}"
        return f"http://{USER}:{PASSWORD}@127.0.0.1:{port}/{store.stem}"

    def create_store(self, place: Place) -> tuple[Step, ...]:
        """One repository with one user; the settings both as the client's own and in the repository.

        A clone of a file:// address is a copy of the file, and settings in a repository win over the client's own. The
        backoffice is off: after a push the server leaves a process of its own session sleeping for a minute.
        """
        store = ("-R", str(place.store))
        settings = (
            "autosync=0",
            "backoffice-disable=1",
            *(f"{name}={value}" for name, value in self._variant.settings.items()),
        )
        return (
            self._step(place.root, "new", "-A", USER, str(place.store)),
            self._step(place.root, "user", "password", USER, PASSWORD, *store),
            *(
                self._step(place.root, "settings", *setting.split("=", 1), *where)
                for setting in settings
                for where in (("--global",), store)
            ),
        )

    def seed_store(self, place: Place, tree: Path) -> tuple[Step, ...]:
        """One commit with the seed tree, pushed over the transport."""
        clone = tree.with_suffix(".fossil")
        return (
            self._step(place.root, "clone", "--save-http-password", "--no-open", place.remote, str(clone)),
            self._step(tree, "open", str(clone), "--nosync", "--force", "--keep"),
            self._step(tree, "addremove"),
            self._step(tree, "commit", "--no-warnings", "-m", "Seed"),
            self._step(tree, "push"),
            self._step(tree, "close"),
        )

    def clone_base(self, place: Place) -> tuple[Step, ...]:
        """The clone that checkouts share."""
        options = ("--save-http-password", *self._variant.acquire_options, "--no-open")
        return (self._step(place.root, "clone", *options, place.remote, str(_clone_of(place.base))),)

    def steps(self, motion: Motion, manner: Manner, place: Place) -> tuple[Step, ...]:
        """What an agent types for each motion."""
        tree = place.workspace
        match motion, manner:
            case Motion.ACQUIRE, Manner.WARM:
                shared = str(_clone_of(place.base))
                return (self._step(place.root, "open", shared, TRUNK, "--nosync", "--workdir", str(tree)),)
            case Motion.ACQUIRE, Manner.JOIN:
                clone = str(_clone_of(tree))
                cloned = ("clone", "--save-http-password", "--no-open", place.remote, clone)
                opened = ("open", clone, place.branch, "--nosync", "--workdir", str(tree))
                return (
                    self._step(place.root, *cloned, name=".clone"),
                    self._step(place.root, *opened, name=".open"),
                )
            case Motion.ACQUIRE, _:
                options = ("--save-http-password", *self._variant.acquire_options, "--workdir", str(tree))
                return (self._step(place.root, "clone", *options, place.remote, str(_clone_of(tree))),)
            case Motion.INSPECT, _:
                return (self._step(tree, "changes", "--differ"),)
            case Motion.JOIN, _:  # without a name it merges the branch's other leaf
                return (self._step(tree, "pull", name=".pull"), self._step(tree, "merge", name=".merge"))
            case Motion.SNAPSHOT, Manner.MERGED:
                return (self._step(tree, "commit", "--no-warnings", "-m", "Merge", name=".commit"),)
            case Motion.SNAPSHOT, _:
                branch = () if manner is Manner.JOIN else ("--branch", place.branch)
                options = ("--no-warnings", *branch, "-m", place.message)
                return (
                    self._step(tree, "addremove", name=".add"),
                    self._step(tree, "commit", *options, name=".commit"),
                )
            case Motion.PUBLISH, Manner.FORCE:
                return ()  # it has none: what diverges becomes a fork beside the other
            case Motion.PUBLISH, _:
                return (self._step(tree, "push"),)
            case Motion.DESCRIBE, Manner.REVIEW:
                return (self._step(tree, "timeline", "current", "-n", "1", "-v"),)
            case Motion.END, _:
                return (self._step(tree, "close", name=".close"), remove_workspace(tree))
            case _:
                return ()  # describe: a commit's comment is its description; edit: not fossil's

    def belied(self, motion: Motion, result: ProcessResult) -> str:
        """A push has succeeded only when nothing complained and the server made a round trip."""
        if motion is not Motion.PUBLISH:
            return ""
        stdout, stderr = text_of(result.stdout.tail), text_of(result.stderr.tail).strip()
        if stderr:
            return stderr
        complaint = re.search(r"^Error: .*$", stdout, re.MULTILINE)
        if complaint:
            return complaint[0]
        return "" if ROUND_TRIPS.search(stdout) else "push told of no round trip to the server"

    def claim(self, result: ProcessResult) -> ClientClaim:
        """As a caller takes it: exit status 0 and "Push done" claim success, whatever stands beside them."""
        if not ended_by_itself(result):
            return ClientClaim.NONE
        return ClientClaim.PUBLISHED if result.returncode == 0 else ClientClaim.UNREPORTED

    def reconcile(self, place: Place) -> tuple[Step, ...]:
        """A pull says whether the server answers; only a fresh clone says what it holds, so that is what is asked.

        By the branch's leaves, as the truth check does: `info BRANCH` tells of one leaf of a fork, whichever was
        committed last.
        """
        clone = unused_path(place.root, f"reconcile-{place.branch}", ".fossil")
        asked = ("timeline", "-t", "ci", "-b", place.branch, "-n", "0", "-F", "%H %p", "-R", str(clone))
        return (
            self._step(place.root, "clone", "--no-open", "--once", place.remote, str(clone), name=".clone"),
            Step(argv=(self._fossil, *asked), cwd=place.root, expected=(0, 1)),
        )

    def reconciled_head(self, place: Place, result: ProcessResult) -> str | None:
        """Of the leaves in the timeline what the client published if it is there, else the newest."""
        leaves = TOLD_LEAF.findall(text_of(result.stdout.tail)) if result.ok else []
        return next(iter(_ours_first(leaves, place)), None)

    def sabotage(self, fault: StoreFault, place: Place) -> Sabotage | None:
        """A login that may read and not write, where there is a login; a script that the server runs when pushed to.

        The script needs fossil built with Tcl, as Debian's is; what a client starts for a file:// address has none. It
        can kill the server and not refuse: what it calls an error is said to the client, and the push is kept.
        """
        if fault is StoreFault.REFUSE and place.remote.startswith("http"):
            return Sabotage(arm=(self._allow(place, READ_ONLY),), disarm=(self._allow(place, "s"),))
        if fault is not StoreFault.KILL_BEFORE or place.remote.startswith("file:"):
            return None
        mark = place.root / f"{place.workspace.name}.fired"
        script = KILL.replace("MARK", str(mark)).replace("'", "''")
        armed = "".join(
            f"REPLACE INTO config(name, value, mtime) VALUES('{name}', '{value}', now());"
            for name, value in (("tcl", "1"), ("xfer-push-script", script))
        )
        disarmed = (
            "DELETE FROM config WHERE name IN ('tcl', 'xfer-push-script')"  # a clone would be sent `tcl`, and fail
        )
        return Sabotage(
            arm=(self._step(place.root, "sql", "-R", str(place.store), armed),),
            disarm=(self._step(place.root, "sql", "-R", str(place.store), disarmed),),
            mark=mark,
        )

    def published_branch(self, run: RunProbe, place: Place) -> str | None:
        """The lane names branches."""
        return place.branch

    def local_state(self, run: RunProbe, place: Place) -> LocalState:
        """Its own table of unsent artifacts (it forgets them when a push fails), and `changes`."""
        unsent = run([self._fossil, "sql", "SELECT count(*) FROM unsent"], cwd=place.workspace)
        changes = run([self._fossil, "changes", "--differ"], cwd=place.workspace)
        return LocalState(
            unpublished=text_of(unsent.stdout.head).strip() not in {"", "0"} if unsent.ok else None,
            dirty=bool(changes.stdout.head.strip()) if changes.ok else None,
        )

    def client_head(self, run: RunProbe, place: Place) -> str | None:
        """The checked-out version."""
        return _hash(run([self._fossil, "info", "current"], cwd=place.workspace))

    def store_head(self, run: RunProbe, place: Place) -> str | None:
        """The branch's open leaf in the served repository: of a fork, ours if it is there, else the newest."""
        return next(iter(self._leaves(run, place.store, place)), None)

    def read_truth(self, run: RunProbe, place: Place, path: str, transport: Transport) -> Truth:
        """The served repository itself, a fresh clone over the transport, and `test-integrity`."""
        store = self._read(run, place.store, place, path, "store")
        check = run([self._fossil, "test-integrity", "-R", str(place.store)], cwd=place.root)
        report = text_of(check.stdout.tail)
        sound = check.ok and SOUND_BLOBS.search(report) is not None and "integrity-check: ok" in report
        verifier = unused_path(place.root, f"verify-{place.branch}", ".fossil")
        cloned = run([self._fossil, "clone", "--no-open", "--once", place.remote, str(verifier)], cwd=place.root)
        if cloned.ok:
            wire = self._read(run, verifier, place, path, "wire")
        else:
            wire = Reading(source="wire", head=None, content=None, detail=said(cloned), failed=True)
        return Truth(readings=(store, wire), integrity=sound, integrity_detail="" if sound else said(check))

    def withdraw(self, run: RunProbe, place: Place, branches: Sequence[str]) -> str:
        """Hosted remotes are not driven."""
        return "fossil is not driven over hosted remotes"

    def _read(self, run: RunProbe, repository: Path, place: Place, path: str, source: str) -> Reading:
        try:
            leaves = self._leaves(run, repository, place)
        except HostError as error:
            return Reading(source=source, head=None, content=None, detail=str(error), failed=True)
        if not leaves:
            return Reading(source=source, head=None, content=None, detail=f"no branch {place.branch}")
        head, *beside = leaves
        blob = run([self._fossil, "cat", path, "-r", head, "-R", str(repository)], cwd=place.root)
        if not blob.ok or blob.stdout.head_truncated:
            return Reading(source=source, head=head, content=None, detail=said(blob), beside=tuple(beside))
        return Reading(source=source, head=head, content=blob.stdout.head, beside=tuple(beside))

    def _leaves(self, run: RunProbe, repository: Path, place: Place) -> list[str]:
        """The branch's open leaves, what the client published first, then the newest first."""
        query = LEAVES.replace("BRANCH", place.branch.replace("'", "''"))
        asked = run([self._fossil, "sql", "--readonly", "-R", str(repository), query], cwd=place.root)
        if not asked.ok or asked.stderr.n_bytes:  # it ends with 0 after an error in SQL
            raise HostError(f"{repository}: the store cannot be read: {said(asked)}")
        leaves = [line.strip().strip("'") for line in text_of(asked.stdout.head).splitlines()]
        return _ours_first(leaves, place)

    def _allow(self, place: Place, capabilities: str) -> Step:
        """Set what the login may do, and read it back: no mark would tell that it was not set."""
        script = ("/bin/sh", "-c", SET_CAPABILITIES, self._fossil, USER, capabilities, str(place.store))
        return Step(argv=script, cwd=place.root)

    def _step(self, cwd: Path, *arguments: str, name: str = "") -> Step:
        return Step(argv=(self._fossil, *arguments), cwd=cwd, name=name)


def _clone_of(workspace: Path) -> Path:
    """The repository file that belongs to a workspace; it must not lie inside it."""
    return workspace.with_name(f"{workspace.name}.fossil")


def _ours_first(leaves: Sequence[str], place: Place) -> list[str]:
    """What the client published first, the others in their order."""
    return sorted(leaves, key=lambda leaf: leaf != place.published)


def _hash(result: ProcessResult) -> str | None:
    """The version in what `info` printed; None when it found none."""
    found = HASH.search(text_of(result.stdout.tail)) if result.ok else None
    return found[1] if found else None
