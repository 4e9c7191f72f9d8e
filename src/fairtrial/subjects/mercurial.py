# ruff: noqa: ARG002 - a subject answers the whole protocol, whether it needs each argument or not
"""Mercurial, with bookmarks as branches.

Facts it stands on (hg 6.3.2, Debian 12): `share -B` shares bookmarks only while the share extension is on in every
later command too, so it stands in a configuration file; `push` ends with 1 when there was nothing to push; `serve`
says where it listens only with -v when the port was chosen for it; `cat` prints a damaged file without complaint,
only `verify` tells; a server that was killed inside a transaction answers every push with 500 until somebody types
`recover` there.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, cast

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
    look_up,
    remove_workspace,
    said,
    text_of,
    unused_path,
)

__all__ = ["Mercurial"]

OLDEST: Final = (6, 0)
INSTALL: Final = "apt-get install mercurial"
SETTINGS: Final = {"extensions.share": "", "phases.publish": "true"}
KEY: Final = re.compile(r"[\w-]+\.[^\s=#;%\[][^=]*")
NO_KEY: Final = "is no key of an hgrc; write section.name, such as extensions.share"
NOTHING_TO_PUSH: Final = 1
# The server said no, or nothing was ever sent.
DEFINITE: Final = (
    "remote repository changed while pushing",
    "push creates new remote",
    "push failed on remote",
    "hook exited",
    "HTTP Error 4",
    "Connection refused",
    "No such file or directory",
)
HOOKS: Final = {
    StoreFault.REFUSE: ("pretxnchangegroup", "exit 1"),
    StoreFault.KILL_BEFORE: ("pretxnchangegroup", "kill -9 $PPID"),
    StoreFault.KILL_AFTER: ("txnclose", "kill -9 $PPID"),
    StoreFault.KILL_REPORT: ("changegroup", "kill -9 $PPID"),
}


class Mercurial:
    """The hg subject; a variant's settings are `section.key` pairs of an hgrc."""

    kind: ClassVar[str] = "hg"
    transports: ClassVar[frozenset[Transport]] = frozenset(
        {Transport.FILE, Transport.HTTP, Transport.NATIVE, Transport.SSH}
    )
    acquisition_models: ClassVar[Mapping[Manner, str]] = {
        Manner.FRESH: "fresh_full_clone",
        Manner.WARM: "shared_store_share",
    }
    publication_request: ClassVar[str] = "cmd=unbundle"
    publication_mark: ClassVar[str] = "HG20\0\0\0"  # a bundle itself; questions name the format without the zeros

    def __init__(self, variant: Variant) -> None:
        self._variant = variant
        self._hg = variant.binary or "hg"

    def check_settings(self) -> dict[str, str]:
        """A key is a section and a name of an hgrc."""
        return {key: f"{key!r} {NO_KEY}" for key in self._variant.settings if KEY.fullmatch(key) is None}

    def probe(self) -> Probe:
        """Find hg."""
        return find_program(
            self._hg,
            ask=("--version", "-q"),
            pattern=r"Mercurial Distributed SCM \(version (\d+)\.(\d+)[^)]*\)",
            oldest=OLDEST,
            install=INSTALL,
            label="hg",
        )

    def environment(self, home: Path) -> dict[str, str]:
        """Plain output, one configuration file, fixed identity."""
        return {
            "PATH": PATH,
            "HOME": str(home),
            "TMPDIR": str(home),  # a killed server leaves bundles there
            "HGRCPATH": str(home / "hgrc"),
            "HGPLAIN": "1",
            "HGUSER": "fairtrial <agent@fairtrial.invalid>",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }

    def home_files(self, home: Path) -> Mapping[str, str]:
        """An hgrc for clients, and what the server serves: repositories in a directory, looked up anew each time."""
        sections: dict[str, list[str]] = {}
        for name, value in {**SETTINGS, **self._variant.settings}.items():
            section, _, key = name.partition(".")
            sections.setdefault(section, []).append(f"{key} = {value}")
        hgrc = "".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items())
        served = home.parent / "served"
        web = "push_ssl = no\nallow_push = *\nrefreshinterval = 0\naccesslog = /dev/null\n"
        return {"hgrc": hgrc, "hgweb.conf": f"[paths]\n/ = {served}/*\n[web]\n{web}"}

    def served_store(self, root: Path) -> Path:
        """A repository without a working tree."""
        return root / "store"

    def server(self, transport: Transport, root: Path) -> Serve | None:
        """`hg serve` over a directory."""
        if transport not in {Transport.HTTP, Transport.NATIVE}:
            return None
        config = root.parent / "server" / "hgweb.conf"
        options = ("serve", "-v", "--web-conf", str(config), "--address", "127.0.0.1", "--port", "{port}")
        return Serve(argv=(self._hg, *options), cwd=root, ready="listening at ")

    def remote(self, transport: Transport, store: Path, port: int | None) -> str:
        """A path, or the loopback server's address."""
        match transport:
            case Transport.FILE:
                return str(store)
            case Transport.SSH:
                return f"ssh://localhost/{store}"
            case _:
                return f"http://127.0.0.1:{port}/{store.name}"

    def create_store(self, place: Place) -> tuple[Step, ...]:
        """One empty repository."""
        return (self._step(place.root, "init", str(place.store)),)

    def seed_store(self, place: Place, tree: Path) -> tuple[Step, ...]:
        """One commit with the seed tree, pushed with the trunk's bookmark."""
        return (
            self._step(tree, "init"),
            self._step(tree, "commit", "-q", "-A", "-m", "Seed"),
            self._step(tree, "bookmark", place.trunk),
            self._step(tree, "push", "-q", "-B", place.trunk, place.remote),
        )

    def clone_base(self, place: Place) -> tuple[Step, ...]:
        """The clone whose store shares use."""
        options = ("-q", *self._variant.acquire_options, "-u", place.trunk)
        return (self._step(place.root, "clone", *options, place.remote, str(place.base)),)

    def steps(self, motion: Motion, manner: Manner, place: Place) -> tuple[Step, ...]:
        """What an agent types for each motion."""
        tree = place.workspace
        branch = self._step(tree, "bookmark", place.branch, name="branch")
        match motion, manner:
            case Motion.ACQUIRE, Manner.WARM:
                return (
                    self._step(place.root, "share", "-q", "-U", "-B", str(place.base), str(tree), name=".share"),
                    self._step(tree, "update", "-q", place.trunk, name=".update"),
                    branch,
                )
            case Motion.ACQUIRE, Manner.JOIN:
                return (self._step(place.root, "clone", "-q", "-u", place.branch, place.remote, str(tree)),)
            case Motion.ACQUIRE, _:
                options = ("-q", *self._variant.acquire_options, "-u", place.trunk)
                return (self._step(place.root, "clone", *options, place.remote, str(tree)), branch)
            case Motion.INSPECT, _:
                return (self._step(tree, "status", "-Tjson"),)
            case Motion.JOIN, _:  # a pulled bookmark that diverges is kept under the name of where it came from
                return (
                    self._step(tree, "pull", "-q", name=".pull"),
                    self._step(tree, "merge", "-q", f"{place.branch}@default", name=".merge"),
                )
            case Motion.SNAPSHOT, Manner.MERGED:
                return (
                    self._step(tree, "resolve", "-q", "-m", name=".resolve"),
                    self._step(tree, "commit", "-q", "-m", "Merge", name=".commit"),
                )
            case Motion.SNAPSHOT, _:
                return (self._step(tree, "commit", "-q", "-A", "-m", place.message),)
            case Motion.PUBLISH, Manner.FORCE:
                return (self._step(tree, "push", "-q", "-f", "-B", place.branch),)
            case Motion.PUBLISH, _:
                return (self._step(tree, "push", "-q", "-B", place.branch),)
            case Motion.DESCRIBE, Manner.REVIEW:
                return (self._step(tree, "log", "-r", ".", "--stat", "-T", "{node}\n{desc}\n"),)
            case Motion.END, _:
                return (remove_workspace(tree),)
            case _:
                return ()  # describe: a commit's message is its description; edit: not hg's

    def belied(self, motion: Motion, result: ProcessResult) -> str:
        """Its exit status was never seen to say success for a failure."""
        return ""

    def claim(self, result: ProcessResult) -> ClientClaim:
        """Exit 0 claims success, and so does 1: the server had everything already."""
        if not ended_by_itself(result):
            return ClientClaim.NONE
        if result.returncode in {0, NOTHING_TO_PUSH}:
            return ClientClaim.PUBLISHED
        text = text_of(result.stdout.tail) + text_of(result.stderr.tail)
        return ClientClaim.REJECTED if any(words in text for words in DEFINITE) else ClientClaim.UNREPORTED

    def reconcile(self, place: Place) -> tuple[Step, ...]:
        """`id` of the bookmark at the remote; exit 255 when it is not there."""
        argv = (self._hg, "id", "-Tjson", "-r", place.branch, "default")
        return (Step(argv=argv, cwd=place.workspace, expected=(0, 255)),)

    def reconciled_head(self, place: Place, result: ProcessResult) -> str | None:
        """The node that `id` printed."""
        return _node(result)

    def sabotage(self, fault: StoreFault, place: Place) -> Sabotage | None:
        """Hooks, whose parent is the server; over `file` that is the client itself, so nothing can be killed apart."""
        if fault is not StoreFault.REFUSE and "://" not in place.remote:
            return None
        hgrc, mark = place.store / ".hg" / "hgrc", place.root / f"{place.workspace.name}.fired"
        hook, deed = HOOKS[fault]
        text = f"[hooks]\n{hook}.fault = echo x >> {shlex.quote(str(mark))}; {deed}\n"
        return Sabotage(
            arm=(Step(argv=("/bin/sh", "-c", 'printf "%s" "$2" > "$1"', "sh", str(hgrc), text), cwd=place.root),),
            disarm=(Step(argv=("/bin/rm", "-f", str(hgrc)), cwd=place.root),),
            mark=mark,
            repair=(self._step(place.store, "recover"),) if fault is StoreFault.KILL_BEFORE else (),
        )

    def published_branch(self, run: RunProbe, place: Place) -> str | None:
        """The lane names bookmarks."""
        return place.branch

    def local_state(self, run: RunProbe, place: Place) -> LocalState:
        """The phase of the head (draft = not known to be at any server), and `status`."""
        phase = first_line(run, (self._hg, "log", "-r", ".", "-T", "{phase}\n"), cwd=place.workspace)
        status = run([self._hg, "status"], cwd=place.workspace)
        return LocalState(
            unpublished=None if phase is None else phase != "public",
            dirty=bool(status.stdout.head) if status.ok else None,
        )

    def client_head(self, run: RunProbe, place: Place) -> str | None:
        """The working tree's parent."""
        return first_line(run, (self._hg, "log", "-r", ".", "-T", "{node}\n"), cwd=place.workspace)

    def store_head(self, run: RunProbe, place: Place) -> str | None:
        """The bookmark in the served repository."""
        return self._bookmark(run, place.store, place)

    def read_truth(self, run: RunProbe, place: Place, path: str, transport: Transport) -> Truth:
        """The served repository itself, a fresh clone over the transport, and `verify`."""
        store = self._read(run, place.store, place, path, "store")
        check = run([self._hg, "verify", "-q"], cwd=place.store)
        verifier = unused_path(place.root, f"verify-{place.branch}")
        cloned = run([self._hg, "clone", "-q", "-U", place.remote, str(verifier)], cwd=place.root)
        if cloned.ok:
            wire = self._read(run, verifier, place, path, "wire")
        else:
            wire = Reading(source="wire", head=None, content=None, detail=said(cloned), failed=True)
        return Truth(readings=(store, wire), integrity=check.ok, integrity_detail="" if check.ok else said(check))

    def withdraw(self, run: RunProbe, place: Place, branches: Sequence[str]) -> str:
        """Hosted remotes are not driven."""
        return "hg is not driven over hosted remotes"

    def _read(self, run: RunProbe, repository: Path, place: Place, path: str, source: str) -> Reading:
        try:
            head = self._bookmark(run, repository, place)
        except HostError as error:
            return Reading(source=source, head=None, content=None, detail=str(error), failed=True)
        if head is None:
            return Reading(source=source, head=None, content=None, detail=f"no bookmark {place.branch}")
        blob = run([self._hg, "cat", "-r", head, f"path:{path}"], cwd=repository)
        if not blob.ok or blob.stdout.head_truncated:
            return Reading(source=source, head=head, content=None, detail=said(blob))
        return Reading(source=source, head=head, content=blob.stdout.head)

    def _bookmark(self, run: RunProbe, repository: Path, place: Place) -> str | None:
        """Where the bookmark stands: `present` makes nothing of one that is not there, and of that alone."""
        argv = (self._hg, "log", "-r", f"present(bookmark('{place.branch}'))", "-T", "{node}\n")
        return look_up(run, argv, cwd=repository, absent=0)

    def _step(self, cwd: Path, *arguments: str, name: str = "") -> Step:
        return Step(argv=(self._hg, *arguments), cwd=cwd, name=name)


def _node(result: ProcessResult) -> str | None:
    """The node in what `id -Tjson` printed; None when it printed something else."""
    try:
        printed: object = json.loads(text_of(result.stdout.tail))
    except ValueError:
        return None
    if not isinstance(printed, list) or not printed:
        return None
    first: object = cast("list[object]", printed)[0]
    node = cast("dict[str, object]", first).get("node") if isinstance(first, dict) else None
    return node if isinstance(node, str) and node.strip("0") else None
