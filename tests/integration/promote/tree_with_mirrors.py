"""A tree of three equal files in three directories, for tests in this process and in others."""

from pathlib import Path

from fairtrial.promote.target import Change, sha256_of

OLD, NEW = b"old\n" * 10, b"new\n" * 12
PATHS = (".claude/skills/work/SKILL.md", "a/skills/work/SKILL.md", "b/skills/work/SKILL.md")
CHANGES = tuple(Change(path=path, old_sha256=sha256_of(OLD), content=NEW) for path in PATHS)


def make_tree(root: Path) -> Path:
    """The tree, with every file old."""
    for path in PATHS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(OLD)
        (root / path).chmod(0o640)
    return root


def contents(root: Path) -> list[bytes]:
    """What the three files hold."""
    return [(root / path).read_bytes() for path in PATHS]


def leftovers(root: Path) -> list[str]:
    """Everything of ours that lies in the tree."""
    return sorted(str(path.relative_to(root)) for path in root.rglob(".fairtrial-*"))
