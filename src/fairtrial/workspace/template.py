"""A template: one tree of a repository as a repository of its own, without any history.

It is built up, never cut down: exactly the objects of one tree are copied, under one parentless commit with fixed
identity and dates, so that nothing that came after, before or beside it was ever there. The source's configuration,
hooks, attributes outside the tree, refs and reflogs are not read for it.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.errors import IntegrityError, UsageError
from fairtrial.host.git import GitError, git
from fairtrial.host.slot import Slot

__all__ = ["BINDING_S", "RULE_FILES", "Template", "make_template", "resolve_commit"]

BINDING_S: Final = 60.0
"""How long a repository may take to answer a question that is asked of it while tasks are bound."""
RULE_FILES: Final = frozenset({b".gitignore", b".gitattributes"})
_IDENTITY: Final = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "base"), ("EMAIL", "base@localhost"), ("DATE", "946684800 +0000"))
}
_MESSAGE: Final = b"base\n"
_CONFIG: Final = """\
[core]
	checkStat = minimal
	trustctime = false
[gc]
	auto = 0
[maintenance]
	auto = false
"""
"""Owner and inode are others in each sandbox: compared, they would have every file hashed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A tree that trials start from.

    Attributes:
        tree: The directory, with `.git`; nothing may change it.
        rules: A directory that holds only the tree's `.gitignore` and `.gitattributes` files, in their places.
        commit: The commit that it shows.
        source_commit: The commit of the source repository that it was made from.
        source_tree: That commit's tree.
        tree_id: Its own tree; the same unless something is hidden.
        object_format: sha1 or sha256.
        tracked: Paths of all files in the tree.
        gitlinks: Paths of submodules: empty directories here.
    """

    tree: Path
    rules: Path
    commit: str
    source_commit: str
    source_tree: str
    tree_id: str
    object_format: str
    tracked: frozenset[bytes]
    gitlinks: frozenset[bytes]


def resolve_commit(repository: Path, ref: str) -> str:
    """Resolve a ref of a repository to a full commit id.

    Raises:
        UsageError: It is no repository, or has no such commit.
    """
    try:
        said = git(
            ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"],
            cwd=repository,
            timeout_s=BINDING_S,
        )
    except GitError as problem:
        raise UsageError(f"{repository}: no commit {ref!r} ({problem}); name one that exists there") from problem
    return said.decode().strip()


def make_template(repository: Path, commit: str, directory: Path, *, slot: Slot, hide: Sequence[str] = ()) -> Template:
    """Make a template.

    Args:
        repository: The source: a work tree or a bare repository.
        commit: Full id of a commit in it.
        directory: Where to put it; must not exist.
        slot: Whose it will be.
        hide: Paths, relative to the root, that it must not have.

    Raises:
        UsageError: The source lacks objects that it would have to fetch.
        HostError: git failed, or cannot read the source.
        IntegrityError: What was made is not exactly what was meant.
    """
    source, objects, object_format = _open_source(repository)
    tree, rules, git_dir = directory / "tree", directory / "rules", directory / "tree" / ".git"
    directory.mkdir(mode=0o711)
    tree.mkdir()
    git(["init", "--quiet", "--template=", f"--object-format={object_format}", "."], cwd=tree)
    source_tree = git(["rev-parse", f"{commit}^{{tree}}"], cwd=repository, git_dir=source).decode().strip()
    borrowing = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects)}
    git(["read-tree", source_tree], cwd=tree, git_dir=git_dir, env=borrowing)
    if hide:
        literal = [f":(top,literal){path}" for path in hide]
        git(
            ["rm", "-r", "-q", "-f", "--cached", "--ignore-unmatch", "--", *literal],
            cwd=tree,
            git_dir=git_dir,
            env=borrowing,
        )
    tree_id = git(["write-tree"], cwd=tree, git_dir=git_dir, env=borrowing).decode().strip()
    head = git(["commit-tree", tree_id], cwd=tree, git_dir=git_dir, env={**borrowing, **_IDENTITY}, stdin=_MESSAGE)
    made = head.decode().strip()
    pack = git_dir / "objects" / "pack" / "pack"
    git(["pack-objects", "--quiet", "--revs", str(pack)], cwd=tree, git_dir=git_dir, env=borrowing, stdin=head)
    git(["prune-packed", "--quiet"], cwd=tree, git_dir=git_dir)
    (git_dir / "HEAD").write_text(f"{made}\n")
    with (git_dir / "config").open("a") as config:
        config.write(_CONFIG)
    (git_dir / "index").unlink()
    _give_all(tree, slot)
    git(["read-tree", "-m", "-u", made], cwd=tree, slot=slot, git_dir=git_dir, work_tree=tree)
    tracked, gitlinks = _list_tree(tree, git_dir, made, slot)
    _copy_rules(tree, rules, tracked)
    template = Template(
        tree=tree,
        rules=rules,
        commit=made,
        source_commit=commit,
        source_tree=source_tree,
        tree_id=tree_id,
        object_format=object_format,
        tracked=tracked,
        gitlinks=gitlinks,
    )
    _prove(template, slot)
    return template


def _open_source(repository: Path) -> tuple[Path, Path, str]:
    """Find a source's git directory, its objects and their format; refuse one that would fetch what it lacks."""
    try:
        said = git(
            ["rev-parse", "--path-format=absolute", "--git-dir", "--git-path", "objects", "--show-object-format"],
            cwd=repository,
        )
    except GitError as problem:
        raise UsageError(f"{repository}: not a git repository that we can read ({problem})") from problem
    git_dir, objects, object_format = said.decode(errors="surrogateescape").splitlines()
    lazy = git(
        ["config", "--get-regexp", r"^(remote\..*\.(promisor|partialclonefilter)|extensions\.partialclone)$"],
        cwd=repository,
        git_dir=Path(git_dir),
        accept=frozenset({0, 1}),
    )
    if lazy or any((Path(objects) / "pack").glob("*.promisor")):
        raise UsageError(
            f"{repository}: a partial clone, which fetches objects when they are read; clone it without --filter"
        )
    return Path(git_dir), Path(objects), object_format


def _give_all(root: Path, slot: Slot) -> None:
    slot.give(root)
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            slot.give(Path(directory) / name)


def _list_tree(tree: Path, git_dir: Path, commit: str, slot: Slot) -> tuple[frozenset[bytes], frozenset[bytes]]:
    listed = git(["ls-tree", "-r", "-z", "--full-tree", commit], cwd=tree, slot=slot, git_dir=git_dir)
    files: set[bytes] = set()
    links: set[bytes] = set()
    for entry in listed.split(b"\0")[:-1]:
        meta, _, path = entry.partition(b"\t")
        (links if meta.startswith(b"160000 ") else files).add(path)
    return frozenset(files), frozenset(links)


def _copy_rules(tree: Path, rules: Path, tracked: frozenset[bytes]) -> None:
    """Copy the files that say what git ignores and converts; a link among them would be followed by nobody."""
    rules.mkdir(mode=0o755)
    root = os.fsencode(tree)
    for path in sorted(tracked):
        source = os.path.join(root, path)  # noqa: PTH118 - names of files are bytes
        if os.path.basename(path) in RULE_FILES and not os.path.islink(source):  # noqa: PTH114, PTH119 - likewise
            target = os.path.join(os.fsencode(rules), path)  # noqa: PTH118 - likewise
            os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120 - likewise
            shutil.copyfile(source, target)


def _prove(template: Template, slot: Slot) -> None:
    """Check what was made against what was meant.

    Raises:
        IntegrityError: It holds another object, a ref, a reflog, an alternate, or a tree that is not clean.
    """
    git_dir = template.tree / ".git"

    def ask(*arguments: str) -> bytes:
        return git(arguments, cwd=template.tree, slot=slot, git_dir=git_dir, work_tree=template.tree)

    # Files that a conversion rule would change on the way in are shown as modified in any fresh checkout of such a
    # repository; files that are missing, or beside the tree, are not.
    shown = {entry[:2] for entry in ask("status", "--porcelain", "--ignored", "--no-renames", "-z").split(b"\0")[:-1]}
    held = set(ask("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split())
    meant = {line.split(b" ", 1)[0] for line in ask("rev-list", "--objects", template.commit).splitlines()}
    problems = {
        "objects beside those of its tree": bool(held != meant),
        "refs": bool(ask("for-each-ref")),
        "a parent": bool(ask("rev-list", "--count", template.commit).strip() != b"1"),
        "reflogs": (git_dir / "logs").exists(),
        "alternates": (git_dir / "objects" / "info" / "alternates").exists(),
        "hooks": (git_dir / "hooks").exists(),
        "a work tree that differs from its commit": bool(shown - {b" M"}),
    }
    if found := [name for name, is_so in problems.items() if is_so]:
        raise IntegrityError(f"template of {template.source_commit}: it has {', '.join(found)}; do not use it")
