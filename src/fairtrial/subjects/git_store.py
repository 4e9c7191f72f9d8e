"""A bare git repository as a published store: how it is served, read back and checked.

For git itself and for tools that publish to git.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError
from fairtrial.evidence.publication import ClientClaim
from fairtrial.model.loop import Place, Reading, Sabotage, Serve, Step, StoreFault, Transport, Truth
from fairtrial.model.process import ProcessResult
from fairtrial.protocols import RunProbe
from fairtrial.subjects.program import PATH, ended_by_itself, look_up, said, text_of, unused_path
from fairtrial.wire.settings import FrontSettings

__all__ = [
    "PUBLICATION_MARK",
    "PUBLICATION_REQUEST",
    "claim_of_git",
    "create_git_store",
    "git_environment",
    "git_remote",
    "git_store_head",
    "read_git_truth",
    "read_git_wire",
    "sabotage_git",
    "seed_git_store",
    "serve_git",
]

PUBLICATION_REQUEST: Final = "POST /store.git/git-receive-pack"
PUBLICATION_MARK: Final = " report-status"  # a capability that only a push asks for
ABSENT: Final = 1  # `rev-parse --verify -q` of what is not there, and without a word
NO_MATCH: Final = 2  # `ls-remote --exit-code` of what is not there
DATE: Final = "2026-01-01T00:00:00Z"
OWN_HOOKS: Final = ("-c", "core.hooksPath=hooks")  # a server runs its repository's own; `-c` wins over the environment
SETTINGS: Final = {
    "gc.auto": "0",
    "maintenance.auto": "false",
    "core.hooksPath": "/dev/null",
    "advice.detachedHead": "false",
    "init.defaultBranch": "main",
}
# The server or a hook said no to the ref, or nothing was ever sent.
DEFINITE: Final = (
    "[remote rejected]",
    "[rejected]",
    "unable to access",
    "unable to connect",
    "does not appear to be a git repository",
)
HOOKS: Final = {
    StoreFault.REFUSE: ("pre-receive", "echo x >> MARK; echo 'not today' >&2; exit 1\n"),
    StoreFault.KILL_BEFORE: ("pre-receive", "echo x >> MARK; kill -9 $PPID\n"),
    StoreFault.KILL_AFTER: ("reference-transaction", '[ "$1" = committed ] || exit 0; echo x >> MARK; kill -9 $PPID\n'),
    StoreFault.KILL_REPORT: ("post-receive", "echo x >> MARK; kill -9 $PPID\n"),
}


def git_environment(home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """No user or system configuration, no prompt, no pager, C locale, fixed identity and dates."""
    pairs = enumerate({**SETTINGS, **settings}.items())
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
        "GIT_CONFIG_COUNT": str(len(SETTINGS.keys() | settings.keys())),
        **{
            f"GIT_CONFIG_{part}_{n}": value
            for n, pair in pairs
            for part, value in zip(("KEY", "VALUE"), pair, strict=True)
        },
    }


def serve_git(git: str, transport: Transport, root: Path) -> FrontSettings | Serve | None:
    """Loopback HTTP is `git http-backend` behind our own front, native is `git daemon`."""
    match transport:
        case Transport.HTTP:
            return FrontSettings(root=str(root), git=git)
        case Transport.NATIVE:
            options = ("--verbose", "--log-destination=stderr", "--reuseaddr", "--listen=127.0.0.1", "--port={port}")
            exports = (f"--base-path={root}", "--export-all", "--enable=receive-pack", str(root))
            return Serve(argv=(git, *OWN_HOOKS, "daemon", *options, *exports), cwd=root, ready="Ready to rumble")
        case _:
            return None


def git_remote(transport: Transport, store: Path, port: int | None) -> str:
    """`file://` for the local file transport, so that objects travel as a pack."""
    match transport:
        case Transport.HTTP:
            return f"http://127.0.0.1:{port}/{store.name}"
        case Transport.NATIVE:
            return f"git://127.0.0.1:{port}/{store.name}"
        case Transport.SSH:
            return f"ssh://localhost{store}"
        case _:
            return f"file://{store}"


def create_git_store(git: str, place: Place) -> tuple[Step, ...]:
    """One bare repository whose HEAD is the trunk, and which filters for partial clones."""
    return (
        Step(argv=(git, "init", "-q", "--bare", "-b", place.trunk, str(place.store)), cwd=place.root),
        Step(argv=(git, "config", "uploadpack.allowFilter", "true"), cwd=place.store),
    )


def seed_git_store(git: str, place: Place, tree: Path) -> tuple[Step, ...]:
    """One commit with the seed tree, pushed to the trunk."""
    return (
        Step(argv=(git, "init", "-q", "-b", place.trunk), cwd=tree),
        Step(argv=(git, "add", "."), cwd=tree),
        Step(argv=(git, "commit", "-q", "-m", "Seed"), cwd=tree),
        Step(argv=(git, "push", "-q", place.remote, f"HEAD:refs/heads/{place.trunk}"), cwd=tree),
    )


def claim_of_git(result: ProcessResult) -> ClientClaim:
    """Exit 0 claims success; a rejected ref or a remote out of reach is a definite no; all else tells nothing."""
    if not ended_by_itself(result):
        return ClientClaim.NONE
    if result.returncode == 0:
        return ClientClaim.PUBLISHED
    text = text_of(result.stdout.tail) + text_of(result.stderr.tail)
    return ClientClaim.REJECTED if any(words in text for words in DEFINITE) else ClientClaim.UNREPORTED


def git_store_head(run: RunProbe, git: str, place: Place) -> str | None:
    """The branch's head in the bare repository itself."""
    return _rev_parse(run, git, place.store, f"refs/heads/{place.branch}")


def sabotage_git(fault: StoreFault, place: Place) -> Sabotage:
    """Hooks in the bare repository; a hook's parent is the server's `receive-pack`."""
    name, deed = HOOKS[fault]
    hook, mark = place.store / "hooks" / name, place.root / f"{place.workspace.name}.fired"
    script = f"#!/bin/sh\n{deed}".replace("MARK", shlex.quote(str(mark)))
    install = 'mkdir -p "${1%/*}" && printf "%s" "$2" > "$1" && chmod 755 "$1"'
    return Sabotage(
        arm=(Step(argv=("/bin/sh", "-c", install, "sh", str(hook), script), cwd=place.root),),
        disarm=(Step(argv=("/bin/rm", "-f", str(hook)), cwd=place.root),),
        mark=mark,
    )


def read_git_truth(run: RunProbe, git: str, place: Place, path: str) -> Truth:
    """Read the bare repository itself, fetch the branch over the transport, and `fsck` the store."""
    store = _read_repository(run, git, place.store, f"refs/heads/{place.branch}", path, "store")
    check = run([git, "fsck", "--full", "--strict", "--no-progress", "--no-dangling"], cwd=place.store)
    wire = read_git_wire(run, git, place, path)
    return Truth(readings=(store, wire), integrity=check.ok, integrity_detail="" if check.ok else said(check))


def read_git_wire(run: RunProbe, git: str, place: Place, path: str) -> Reading:
    """Fetch the branch into a fresh repository and read it there."""
    ref = f"refs/heads/{place.branch}"
    verifier = unused_path(place.root, f"verify-{place.branch}", ".git")
    run([git, "init", "-q", "--bare", str(verifier)], cwd=place.root)
    fetched = run([git, "fetch", "-q", "--no-tags", place.remote, f"+{ref}:{ref}"], cwd=verifier)
    if not fetched.ok:
        listed = run([git, "ls-remote", "--exit-code", place.remote, ref], cwd=verifier)
        absent = listed.returncode == NO_MATCH
        return Reading(source="wire", head=None, content=None, detail=said(fetched), failed=not absent)
    return _read_repository(run, git, verifier, ref, path, "wire")


def _read_repository(run: RunProbe, git: str, repository: Path, ref: str, path: str, source: str) -> Reading:
    try:
        head = _rev_parse(run, git, repository, f"{ref}^{{commit}}")
    except HostError as error:
        return Reading(source=source, head=None, content=None, detail=str(error), failed=True)
    if head is None:
        return Reading(source=source, head=None, content=None, detail=f"{ref} is not there")
    blob = run([git, "cat-file", "blob", f"{head}:{path}"], cwd=repository)
    if not blob.ok or blob.stdout.head_truncated:
        return Reading(source=source, head=head, content=None, detail=said(blob))
    return Reading(source=source, head=head, content=blob.stdout.head)


def _rev_parse(run: RunProbe, git: str, repository: Path, name: str) -> str | None:
    return look_up(run, (git, "rev-parse", "--verify", "-q", name), cwd=repository, absent=ABSENT)
