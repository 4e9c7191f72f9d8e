"""Binding: what a task is made of, pinned."""

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.bench import tasks
from fairtrial.bench.assets import manifest_digest, snapshot_digest
from fairtrial.bench.blobs import BlobLostError, BlobStore
from fairtrial.bench.tasks import bind_task, binding_changes, read_task_file, task_binding
from fairtrial.errors import ConfigError, UsageError
from fairtrial.model.bench import Task
from fairtrial.workspace import template

pytestmark = pytest.mark.needs("git")
WriteTasks = Callable[[str], Path]


def bind(path: Path, blobs: BlobStore, *, commit: str | None = None) -> Task:
    document, parsed = read_task_file(path)
    return bind_task(document, 0, parsed.tasks[0], blobs, commit=commit)


def frames(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()


def test_digests_are_those_of_the_specification(write_tasks: WriteTasks, task_text: str, blobs: BlobStore) -> None:
    task = bind(write_tasks(task_text), blobs)
    content = b"print('hidden')\n"
    digest = hashlib.sha256(content).hexdigest()
    assert task.oracle.command_digest == hashlib.sha256(b"true").hexdigest()
    assert task.oracle.digest == frames(b"true", b"oracle.py", content)
    assert task.oracle.manifest_digest == frames(b"oracle.py", digest.encode(), str(len(content)).encode())
    assert task.setup_digest == hashlib.sha256(b"").hexdigest()
    assert blobs.read(task.oracle.files[0].blob) == content


def test_a_moved_branch_changes_nothing_once_a_commit_is_bound(
    write_tasks: WriteTasks, task_text: str, blobs: BlobStore, world: Path
) -> None:
    path = write_tasks(task_text)
    before = bind(path, blobs)
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    words = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "next"]
    subprocess.run(words, cwd=world / "repo", env=env, check=True)
    assert bind(path, blobs).commit != before.commit
    assert task_binding(bind(path, blobs, commit=before.commit)) == task_binding(before)


def test_a_changed_oracle_is_named(write_tasks: WriteTasks, task_text: str, blobs: BlobStore, world: Path) -> None:
    path = write_tasks(task_text)
    before = task_binding(bind(path, blobs))
    (world / "oracle.py").write_text("print('hiddem')\n")
    changes = binding_changes(before, task_binding(bind(path, blobs)))
    assert any("oracle_digest" in change for change in changes)
    assert binding_changes(before, before) == ()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("repo: repo", "repo: nowhere", "no such directory"),
        ("    class:", "    ref: nope\n    class:", "no commit 'nope'"),
        ("source: oracle.py", "source: absent.py", "cannot be read"),
        ("reference: reference.patch", "reference: absent.patch", "cannot be read"),
        ("    class:", "    toolchains: [/nonexistent/py]\n    class:", "no such directory on this host"),
        ("    class:", "    sandbox_copy: [absent]\n    class:", "cannot be captured"),
    ],
)
def test_what_is_not_there_is_named_at_its_place(
    write_tasks: WriteTasks, task_text: str, blobs: BlobStore, old: str, new: str, words: str
) -> None:
    path = write_tasks(task_text.replace(old, new))
    with pytest.raises(ConfigError, match=words) as caught:
        bind(path, blobs)
    assert caught.value.line is not None


def test_a_repository_that_does_not_answer_is_given_up_after_a_minute(
    write_tasks: WriteTasks, task_text: str, blobs: BlobStore, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = world / "repo" / ".git" / "HEAD"
    head.unlink()
    os.mkfifo(head)
    assert tasks.BINDING_S == template.BINDING_S == 60
    monkeypatch.setattr(tasks, "BINDING_S", 0.1)
    with pytest.raises(ConfigError, match="not a git repository"):
        bind(write_tasks(task_text), blobs)
    monkeypatch.setattr(template, "BINDING_S", 0.1)
    with pytest.raises(UsageError, match="no commit 'HEAD'"):
        template.resolve_commit(world / "repo", "HEAD")


def test_a_linked_oracle_file_is_refused(
    write_tasks: WriteTasks, task_text: str, blobs: BlobStore, world: Path
) -> None:
    (world / "oracle.py").rename(world / "real.py")
    (world / "oracle.py").symlink_to("real.py")
    with pytest.raises(ConfigError, match="no link"):
        bind(write_tasks(task_text), blobs)


def test_an_oracle_file_over_512_kib_is_refused(
    write_tasks: WriteTasks, task_text: str, blobs: BlobStore, world: Path
) -> None:
    (world / "oracle.py").write_bytes(b"x" * (512 * 1024))
    bind(write_tasks(task_text), blobs)
    (world / "oracle.py").write_bytes(b"x" * (512 * 1024 + 1))
    with pytest.raises(ConfigError, match="larger than"):
        bind(write_tasks(task_text), blobs)


def test_captured_bytes_that_change_are_lost(write_tasks: WriteTasks, task_text: str, blobs: BlobStore) -> None:
    blob = bind(write_tasks(task_text), blobs).oracle.files[0].blob
    path = blobs.root / blob.sha256
    path.chmod(0o600)
    path.write_bytes(b"other")
    with pytest.raises(BlobLostError, match="have changed"):
        blobs.read(blob)
    path.unlink()
    with pytest.raises(BlobLostError, match="cannot be read"):
        blobs.read(blob)


def test_where_an_oracles_file_goes_is_part_of_its_digest(
    write_tasks: WriteTasks, task_text: str, blobs: BlobStore
) -> None:
    over = task_text.replace("target: oracle.py}", "target: oracle.py, into: workspace}")
    beside, above = (bind(write_tasks(text), blobs) for text in (task_text, over))
    assert above.oracle.digest != beside.oracle.digest
    assert above.oracle.manifest_digest == beside.oracle.manifest_digest


def test_a_cheat_cannot_have_the_name_of_ours(write_tasks: WriteTasks, task_text: str, blobs: BlobStore) -> None:
    path = write_tasks(f"{task_text}    cheats: [{{name: exit-0-at-import, script: a.sh}}]\n")
    (path.parent / "a.sh").write_text("true\n")
    with pytest.raises(ConfigError, match="cheat 'exit-0-at-import' has the name of one that is tried with every task"):
        bind(path, blobs)


def test_content_names_and_commit_of_what_is_mounted_and_copied_have_digests_of_their_own(
    write_tasks: WriteTasks, task_text: str, blobs: BlobStore, world: Path
) -> None:
    for name in ("a", "b", "node_modules"):
        (world / "repo" / name).mkdir()
        (world / "repo" / name / "f").write_text(name)
    names = ("sandbox_dependency_content_digest", "sandbox_dependency_manifest_digest")

    def digests(copies: str, target: str) -> tuple[object, ...]:
        keys = f"sandbox_copy: [{copies}]\n    sandbox_dependencies: [{{source: node_modules, target: {target}}}]"
        task = bind(write_tasks(task_text.replace("    class:", f"    {keys}\n    class:")), blobs)
        assert [each.target for each in task.copies] == copies.split(", ")
        return (*(task_binding(task)[name] for name in names), manifest_digest(task.copies), snapshot_digest(task))

    content, manifest, copied, snapshot = digests("a, b", "node_modules")
    assert digests("a, b", "node_modules") == (content, manifest, copied, snapshot)
    moved = digests("a, b", "lib")
    assert (moved[0], moved[1] == manifest) == (content, False)
    reordered = digests("b, a", "node_modules")
    assert (reordered[:2], reordered[3] == snapshot) == ((content, manifest), False)
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    words = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "next"]
    subprocess.run(words, cwd=world / "repo", env=env, check=True)
    later = digests("a, b", "node_modules")
    assert (later[:3], later[3] == snapshot) == ((content, manifest, copied), False)
    (world / "repo" / "node_modules" / "f").write_text("other")
    changed = digests("a, b", "node_modules")
    assert (changed[0] == content, changed[1] == manifest) == (False, False)
