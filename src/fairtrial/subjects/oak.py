# ruff: noqa: ARG002 - a subject answers the whole protocol, whether it needs each argument or not
"""Oak, against its own `oak serve` on loopback.

Facts it stands on (oak 0.102.0): a clone makes a branch of its own with a random name, and names may hold no slash;
a store is one SQLite file of the same form as a checkout's own, so a copy of it can be read as a checkout, offline;
reading a blob from it does not check its hash, receiving one over the wire does, but `clone --branch` then ends with
0 all the same; `desc` ends with 0 when the server did not hear of it; there is no check of a whole store.
"""

import json
import re
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar, Final, cast
from urllib.parse import quote

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
    first_line,
    remove_workspace,
    said,
    text_of,
    unused_path,
)

__all__ = ["Oak"]

OLDEST: Final = (0, 100)
INSTALL: Final = "cargo install --locked oakvcs-cli --version 0.102.0"
PUSH_OPTIONS: Final = "push_options"
CONFLICT: Final = 5
UNCONFIRMED: Final = "unconfirmed"
REFUSED: Final = re.compile(r"HTTP 4(?!08|29)\d\d")
NOT_SYNCED: Final = "couldn't sync to server"
# What a client says when what it received was not what its name promises, whatever its exit status.
DAMAGED: Final = ("Invalid hash", "does not match content hash", "Database error")
# A request that only asks failed, of a branch or of the repository itself: nothing was sent that could have published.
ASKING: Final = re.compile(r"/branches/|/api/capabilities|/api/[^/\s)]+/[^/\s)]+\)")
HEAD_QUERY: Final = "SELECT head_hash FROM branch_heads WHERE branch_name = ?"
GET: Final = """
import sys, urllib.error, urllib.request
try:
    sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=20).read())
except urllib.error.HTTPError as error:
    if error.code != 404:
        raise
    sys.stdout.write('{"head": null}')
"""


class Oak:
    """The oak subject; its variants differ by binary and by `push_options` in their settings."""

    kind: ClassVar[str] = "oak"
    transports: ClassVar[frozenset[Transport]] = frozenset({Transport.HTTP, Transport.NATIVE})
    acquisition_models: ClassVar[Mapping[Manner, str]] = {
        Manner.FRESH: "fresh_full_clone",
        Manner.WARM: "second_full_clone",
    }
    publication_request: ClassVar[str] = "POST /api/lane/store/push"
    publication_mark: ClassVar[str] = "POST /api/lane/store/push"

    def __init__(self, variant: Variant) -> None:
        self._variant = variant
        self._oak = variant.binary or "oak"

    def check_settings(self) -> dict[str, str]:
        """There is one setting."""
        return {
            key: f"oak has no setting {key!r}; valid: {PUSH_OPTIONS}"
            for key in self._variant.settings
            if key != PUSH_OPTIONS
        }

    def probe(self) -> Probe:
        """Find oak."""
        return find_program(
            self._oak,
            ask=("--version",),
            pattern=r"oak (\d+)\.(\d+)\S*",
            oldest=OLDEST,
            install=INSTALL,
            label="oak",
        )

    def environment(self, home: Path) -> dict[str, str]:
        """One home, one author, no look for updates, no credential and no remote from outside."""
        return {
            "PATH": PATH,
            "HOME": str(home),
            "OAK_AUTHOR": "fairtrial",
            "OAK_NO_UPDATE_CHECK": "1",
            "NO_COLOR": "1",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }

    def home_files(self, home: Path) -> Mapping[str, str]:
        """None: its defaults will do."""
        return {}

    def served_store(self, root: Path) -> Path:
        """The file in which `oak serve` keeps the repository lane/store."""
        return root / "lane" / "store.oakdb"

    def server(self, transport: Transport, root: Path) -> Serve | None:
        """`oak serve` over a directory."""
        if transport not in {Transport.HTTP, Transport.NATIVE}:
            return None
        return Serve(
            argv=(self._oak, "serve", "--dir", str(root), "--port", "{port}"), cwd=root, ready="listening on http://"
        )

    def remote(self, transport: Transport, store: Path, port: int | None) -> str:
        """The server's address; the repository is a separate argument."""
        return f"http://127.0.0.1:{port}"

    def create_store(self, place: Place) -> tuple[Step, ...]:
        """None: the first push creates the repository."""
        return ()

    def seed_store(self, place: Place, tree: Path) -> tuple[Step, ...]:
        """One commit with the seed tree on a branch of its own: `oak serve` has no trunk to merge it into."""
        return (
            self._step(tree, "init"),
            self._step(tree, "commit"),
            self._step(tree, "push", "-r", place.remote, "--repo", _repository(place)),
        )

    def clone_base(self, place: Place) -> tuple[Step, ...]:
        """None: clones share nothing."""
        return ()

    def steps(self, motion: Motion, manner: Manner, place: Place) -> tuple[Step, ...]:
        """What an agent types for each motion."""
        tree = place.workspace
        match motion, manner:
            case Motion.ACQUIRE, _:
                branch = ("--branch", place.branch) if manner is Manner.JOIN else ()
                options = ("-r", place.remote, *branch, *self._variant.acquire_options)
                return (self._step(place.root, "clone", _repository(place), str(tree), *options),)
            case Motion.INSPECT, _:
                return (self._step(tree, "status", "--json"),)
            case (
                Motion.JOIN,
                _,
            ):  # it puts the branch where the other has it: what was committed here must be done again
                return (self._step(tree, "pull"),)
            case Motion.SNAPSHOT, Manner.MERGED:
                return (self._step(tree, "commit", name=".commit"),)
            case Motion.SNAPSHOT, _:
                return (self._step(tree, "commit"),)
            case Motion.PUBLISH, _:
                force = ("-f",) if manner is Manner.FORCE else ()
                return (self._step(tree, "push", *force, *self._variant.settings.get(PUSH_OPTIONS, "").split()),)
            case Motion.DESCRIBE, Manner.REVIEW:
                return (self._step(tree, "log", "-n", "1", "-v"),)
            case Motion.DESCRIBE, _:
                return (self._step(tree, "desc", place.message),)
            case Motion.END, _:
                return (remove_workspace(tree),)
            case _:
                return ()  # edit: not oak's

    def belied(self, motion: Motion, result: ProcessResult) -> str:
        """A description that did not reach the server and a clone that received damaged bytes end with 0."""
        text = text_of(result.stderr.tail)
        described = motion is not Motion.DESCRIBE or NOT_SYNCED not in text
        acquired = motion is not Motion.ACQUIRE or not any(words in text for words in DAMAGED)
        return "" if described and acquired else text.strip()

    def claim(self, result: ProcessResult) -> ClientClaim:
        """Exit 0 claims success; a conflict, a refusal or a question that failed is a definite no; doubt is said so."""
        if not ended_by_itself(result):
            return ClientClaim.NONE
        if result.returncode == 0:
            return ClientClaim.PUBLISHED
        text = text_of(result.stdout.tail) + text_of(result.stderr.tail)
        if UNCONFIRMED in text:
            return ClientClaim.UNKNOWN
        definite = REFUSED.search(text) is not None or ASKING.search(text) is not None
        return ClientClaim.REJECTED if definite or result.returncode == CONFLICT else ClientClaim.UNREPORTED

    def reconcile(self, place: Place) -> tuple[Step, ...]:
        """The state that agents read, refreshed from the server."""
        return (self._step(place.workspace, "agent", "state", "--json", "--refresh", "--compact"),)

    def reconciled_head(self, place: Place, result: ProcessResult) -> str | None:
        """The head that the server told of."""
        return _text(_json(result), "current_branch_pushed_head")

    def sabotage(self, fault: StoreFault, place: Place) -> Sabotage | None:
        """None: `oak serve` has neither hooks nor users."""
        return None

    def published_branch(self, run: RunProbe, place: Place) -> str | None:
        """The branch that the clone made."""
        return _text(_json(run([self._oak, "status", "--json"], cwd=place.workspace)), "branch")

    def local_state(self, run: RunProbe, place: Place) -> LocalState:
        """The state that agents read; up to 0.102 it says `needs_push` after a push too, unless refreshed."""
        state = _json(run([self._oak, "agent", "state", "--json"], cwd=place.workspace))
        unpublished, dirty = state.get("needs_push", False), state.get("dirty")
        return LocalState(
            unpublished=bool(unpublished) if state else None, dirty=dirty if isinstance(dirty, bool) else None
        )

    def client_head(self, run: RunProbe, place: Place) -> str | None:
        """The workspace's head."""
        return first_line(run, (self._oak, "hash"), cwd=place.workspace)

    def store_head(self, run: RunProbe, place: Place) -> str | None:
        """The branch's head in the store's file."""
        try:
            with closing(sqlite3.connect(place.store.as_uri() + "?mode=ro", uri=True)) as store:
                found = store.execute(HEAD_QUERY, (place.branch,)).fetchone()
        except sqlite3.Error as error:
            raise HostError(f"{place.store}: the store cannot be read: {error}") from error
        return None if found is None else str(found[0])

    def read_truth(self, run: RunProbe, place: Place, path: str, transport: Transport) -> Truth:
        """The server's own file read as a checkout, a fresh clone of the branch, and what SQLite says of the file."""
        store, problems = self._read_store(run, place, path)
        wire, complaints = self._read_wire(run, place, path)
        complaint = "; ".join(filter(None, (problems, complaints)))
        return Truth(readings=(store, wire), integrity=not complaint, integrity_detail=complaint)

    def withdraw(self, run: RunProbe, place: Place, branches: Sequence[str]) -> str:
        """Hosted remotes are not driven."""
        return "oak is not driven over hosted remotes"

    def _read_store(self, run: RunProbe, place: Place, path: str) -> tuple[Reading, str]:
        """Read the store's file; also what SQLite says of its soundness, "" when sound."""
        copy = unused_path(place.root, f"store-{place.branch}")
        (copy / ".oak").mkdir(parents=True)
        try:
            with closing(sqlite3.connect(place.store)) as store, closing(sqlite3.connect(copy / ".oak/oak.db")) as db:
                store.backup(db)  # also what is still in the write-ahead log
                found = store.execute(HEAD_QUERY, (place.branch,)).fetchone()
                report = str(store.execute("PRAGMA integrity_check").fetchone()[0])
        except sqlite3.Error as error:
            return Reading(source="store", head=None, content=None, detail=str(error), failed=True), str(error)
        problems = "" if report == "ok" else report
        if found is None:
            return Reading(source="store", head=None, content=None, detail=f"no branch {place.branch}"), problems
        switched = run([self._oak, "switch", place.branch], cwd=copy)
        return self._read_checkout(run, copy, path, "store", str(found[0]), switched), problems

    def _read_wire(self, run: RunProbe, place: Place, path: str) -> tuple[Reading, str]:
        """Clone the branch and ask the server for its head; also what the client said of damage, "" when nothing."""
        url = f"{place.remote}/api/{_repository(place)}/branches/{quote(place.branch, safe='')}"
        asked = run([sys.executable, "-I", "-c", GET, url], cwd=place.root)
        served = _json(asked)
        clone = unused_path(place.root, f"verify-{place.branch}")
        options = ("-r", place.remote, "--branch", place.branch)
        cloned = run([self._oak, "clone", _repository(place), str(clone), *options], cwd=place.root)
        complaint = text_of(cloned.stderr.tail).strip()
        damage = complaint if any(words in complaint for words in DAMAGED) else ""
        head = _text(served, "head")
        if head is None:
            detail = said(asked) if "head" not in served else "the server names no head"
            return Reading(source="wire", head=None, content=None, detail=detail, failed="head" not in served), damage
        return self._read_checkout(run, clone, path, "wire", head, cloned), damage

    def _read_checkout(
        self, run: RunProbe, checkout: Path, path: str, source: str, head: str, made: ProcessResult
    ) -> Reading:
        """Read a checkout that must be at `head`."""
        at = first_line(run, (self._oak, "hash"), cwd=checkout) if made.ok else None
        file = checkout / path
        if at != head or not file.is_file():
            return Reading(source=source, head=head, content=None, detail=f"a checkout is at {at}: {said(made)}")
        return Reading(source=source, head=head, content=file.read_bytes())

    def _step(self, cwd: Path, *arguments: str, name: str = "") -> Step:
        return Step(argv=(self._oak, *arguments), cwd=cwd, name=name)


def _repository(place: Place) -> str:
    """OWNER/NAME, which the store's path tells."""
    return f"{place.store.parent.name}/{place.store.stem}"


def _json(result: ProcessResult) -> Mapping[str, object]:
    """The object that a command printed; empty for anything else."""
    try:
        printed: object = json.loads(text_of(result.stdout.tail))
    except ValueError:
        return {}
    return cast("Mapping[str, object]", printed) if isinstance(printed, dict) else {}


def _text(values: Mapping[str, object], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) else None
