"""Repositories to make templates of, and layers over them."""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from fairtrial.host.slot import Slot
from fairtrial.workspace.layers import Base, Layer, Room, Storage, open_layer
from fairtrial.workspace.template import Template, make_template, resolve_commit

Content = str | bytes | tuple[str, str]
MakeTemplate = Callable[..., Template]

ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@a",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@a",
}


def write(root: Path, files: Mapping[str, Content]) -> None:
    """Write files; ("x", text) is an executable, ("->", target) a link."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        match content:
            case ("->", target):
                path.symlink_to(target)
            case (_, text):
                path.write_text(text)
                path.chmod(0o755)
            case bytes():
                path.write_bytes(content)
            case str():
                path.write_text(content)


class Source:
    """A repository that a user could have."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "-q", "-b", "main", *options)
        self.git("config", "core.protectNTFS", "false")

    def git(self, *arguments: str, stdin: str = "", cwd: Path | None = None) -> str:
        command = ["git", *arguments]
        where = cwd or self.root
        done = subprocess.run(command, cwd=where, env=ENV, input=stdin, check=True, capture_output=True, text=True)
        return done.stdout

    def commit(self, files: Mapping[str, Content]) -> str:
        write(self.root, files)
        self.git("add", "-A", "-f")
        self.git("commit", "-q", "--allow-empty", "-m", "work")
        return self.git("rev-parse", "HEAD").strip()


@pytest.fixture
def source(public_path: Path) -> Source:
    return Source(public_path / "source")


@pytest.fixture
def long_source(public_path: Path) -> Source:
    """One whose object names are SHA-256."""
    return Source(public_path / "long", "--object-format=sha256")


@pytest.fixture
def make(source: Source, slot: Slot) -> MakeTemplate:
    """Commit files in the source and make a template of that commit."""
    numbers = iter(range(100))

    def make_it(
        files: Mapping[str, Content] | None = None, *, ref: str = "HEAD", hide: tuple[str, ...] = ()
    ) -> Template:
        if files is not None:
            source.commit(files)
        commit = resolve_commit(source.root, ref)
        return make_template(source.root, commit, slot.root / f"t{next(numbers)}", slot=slot, hide=hide)

    return make_it


@pytest.fixture
def layer_over(slot: Slot) -> Iterator[Callable[..., Layer]]:
    """Open layers that stay open to the test's end."""
    with ExitStack() as stack:

        def open_it(base: Template | Base, *, room: Room | None = None, storage: Storage = Storage.MEMORY) -> Layer:
            below = Base(trees=(base.tree,)) if isinstance(base, Template) else base
            return stack.enter_context(open_layer(below, slot=slot, room=room or Room(), storage=storage))

        yield open_it
