"""From a task file to bound tasks: refs resolved, files captured, everything pinned by digest.

Owns what stands in `sweep.json` as a task's identity. Nothing here runs a command of the task.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import TypeAdapter

from fairtrial.bench.assets import (
    ASSETS,
    SnapshotSize,
    capture_copy,
    capture_dependency,
    content_digest,
    manifest_digest,
)
from fairtrial.bench.blobs import BlobStore, framed_digest, read_stable
from fairtrial.bench.controls import CHEAT, EXIT_AT_IMPORT
from fairtrial.bench.review import reference_script, require_labels, review_cheats
from fairtrial.bench.task_file import CheatEntry, Into, OracleEntry, TaskEntry, TaskFile
from fairtrial.bench.toolchains import toolchain_digest
from fairtrial.config.document import Document
from fairtrial.config.names import require_known
from fairtrial.config.read import read_yaml
from fairtrial.config.validate import validate
from fairtrial.errors import ConfigError, FairtrialError, UsageError
from fairtrial.host.git import GitError, git
from fairtrial.model.bench import REVIEW_RUNNER, Blob, Cheat, Oracle, OracleFile, Task
from fairtrial.workspace.template import BINDING_S, resolve_commit

__all__ = [
    "MAX_PATCH_BYTES",
    "Selection",
    "bind_task",
    "binding_changes",
    "read_task_file",
    "select_tasks",
    "task_binding",
]

MAX_ORACLE_FILE_BYTES: Final = 512 << 10
MAX_ORACLE_BYTES: Final = 2 << 20
MAX_PATCH_BYTES: Final = 64 << 20
TASK: Final[TypeAdapter[Task]] = TypeAdapter(Task)


class Selection(NamedTuple):
    """Which tasks of a file run.

    Attributes:
        selected: Their entries, in the order of the file.
        skipped: Ids of those that are left out because they are expensive.
    """

    selected: tuple[TaskEntry, ...]
    skipped: tuple[str, ...]


def read_task_file(path: Path) -> tuple[Document, TaskFile]:
    """Read and check a task file.

    Raises:
        ConfigError: It is wrong; the message names file, line and column.
    """
    document = read_yaml(path)
    parsed = validate(document, TaskFile)
    if not parsed.tasks:
        raise document.error(("tasks",), "there is no task; write one")
    seen: dict[str, int] = {}
    for index, task in enumerate(parsed.tasks):
        if task.id in seen:
            first = document.locate(("tasks", seen[task.id], "id")).line
            raise document.error(("tasks", index, "id"), f"id {task.id!r} stands in line {first} too; choose another")
        seen[task.id] = index
    return document, parsed


def select_tasks(
    parsed: TaskFile, *, only: Sequence[str], include_expensive: bool, include_holdout: bool = False
) -> Selection:
    """Choose what runs.

    Args:
        parsed: The task file.
        only: Ids of the tasks that are meant; none for all that are not held out.
        include_expensive: Expensive tasks run too.
        include_holdout: Tasks that are held out run without being named, as their controls must.

    Raises:
        UsageError: A name is unknown, or nothing is left.
    """
    known = [task.id for task in parsed.tasks]
    for name in only:
        require_known(name, known, what="task", where="--only")
    named = [task for task in parsed.tasks if task.id in only or (not only and (include_holdout or not task.holdout))]
    selected = tuple(task for task in named if include_expensive or not task.expensive)
    skipped = tuple(task.id for task in named if task.expensive and not include_expensive)
    if not selected:
        if not named:
            raise UsageError("no task is selected: all are held out for `fairtrial evolve`; name some with --only")
        raise UsageError(f"no task is selected; expensive ones need --include-expensive: {', '.join(skipped)}")
    return Selection(selected, skipped)


def bind_task(document: Document, index: int, entry: TaskEntry, blobs: BlobStore, *, commit: str | None = None) -> Task:
    """Resolve and capture everything that a task names.

    Args:
        document: The task file, for places in messages.
        index: The task's place in it.
        entry: The task.
        blobs: Takes the captured bytes.
        commit: The commit that an earlier binding resolved `ref` to; None for resolving it now.

    Raises:
        ConfigError: Something that it names is not there.
    """
    root = document.path.parent

    def located(key: tuple[str | int, ...], problem: FairtrialError) -> ConfigError:
        return document.error(("tasks", index, *key), str(problem))

    try:
        repository = _top_level(root / Path(entry.repo).expanduser())
    except UsageError as problem:
        raise located(("repo",), problem) from problem
    try:
        resolved = resolve_commit(repository, commit or entry.ref).lower()
    except UsageError as problem:
        raise located(("ref",) if commit is None else ("id",), problem) from problem
    try:
        oracle = _capture_oracle(root, entry.oracle, blobs)
    except UsageError as problem:
        raise located(("oracle", "files"), problem) from problem
    try:
        reference = _capture_reference(root, entry, blobs)
    except UsageError as problem:
        raise located(("reference",), problem) from problem
    try:
        cheats = tuple(_capture_cheat(root, cheat, blobs) for cheat in entry.cheats)
        if entry.oracle.runner == REVIEW_RUNNER:
            cheats = _with_review_cheats(cheats, oracle, blobs)
    except UsageError as problem:
        raise located(("cheats",), problem) from problem
    try:
        frozen, size = blobs.root.parent / ASSETS, SnapshotSize()
        copies = tuple(capture_copy(repository, path, frozen, size) for path in entry.sandbox_copy)
        dependencies = tuple(
            capture_dependency(repository, each.source, each.target, frozen, size)
            for each in entry.sandbox_dependencies
        )
    except UsageError as problem:
        raise located(("id",), problem) from problem
    for each in entry.toolchains:
        if not Path(each).is_dir():
            raise document.error(("tasks", index, "toolchains"), f"{each}: no such directory on this host")
    try:
        toolchain_digests = tuple(map(toolchain_digest, entry.toolchains))
    except UsageError as problem:
        raise located(("toolchains",), problem) from problem
    return Task(
        id=entry.id,
        task_class=entry.task_class,
        repository=str(repository),
        ref=entry.ref,
        commit=resolved,
        prompt=entry.prompt,
        setup=entry.setup,
        setup_network=entry.setup_network,
        verify=entry.verify,
        hidden=entry.hidden,
        toolchains=entry.toolchains,
        toolchain_digests=toolchain_digests,
        copies=copies,
        dependencies=dependencies,
        limits=entry.limits,
        isolation=entry.isolation,
        oracle=oracle,
        reference=reference,
        cheats=cheats,
        expensive=entry.expensive,
        prompt_digest=_text_digest(entry.prompt),
        setup_digest=_text_digest(entry.setup or ""),
        verify_digest=_text_digest(entry.verify),
    )


def task_binding(task: Task) -> dict[str, object]:
    """The frozen identity of a task, as `sweep.json` and promotions hold it."""
    return {
        "id": task.id,
        "class": task.task_class,
        "repo_identity": task.repository,
        "ref": task.ref,
        "resolved_sha": task.commit,
        "prompt_digest": task.prompt_digest,
        "setup_digest": task.setup_digest,
        "setup_network": task.setup_network,
        "verify_digest": task.verify_digest,
        "expensive": task.expensive,
        "hidden": list(task.hidden),
        "toolchains": list(task.toolchains),
        "toolchain_digests": list(task.toolchain_digests),
        "sandbox_copy": [asdict(each) for each in task.copies],
        "sandbox_dependencies": [asdict(each) for each in task.dependencies],
        "sandbox_dependency_content_digest": content_digest(task.dependencies),
        "sandbox_dependency_manifest_digest": manifest_digest(task.dependencies),
        "limits": {name: getattr(task.limits, name) for name in task.limits.__dataclass_fields__},
        "isolation": str(task.isolation),
        "oracle_digest": task.oracle.digest,
        "oracle_command_digest": task.oracle.command_digest,
        "oracle_manifest_digest": task.oracle.manifest_digest,
        "oracle_runner": task.oracle.runner,
        "oracle_expect_tests": task.oracle.expect_tests,
        "oracle_files": [
            {"target": each.blob.name, "into": str(each.into), "sha256": each.blob.sha256, "size": each.blob.n_bytes}
            for each in task.oracle.files
        ],
        "reference_digest": task.reference.sha256 if task.reference else None,
        "cheats": [
            {
                "name": each.name,
                "patch_sha256": each.patch.sha256 if each.patch else None,
                "script_sha256": each.script.sha256 if each.script else None,
            }
            for each in task.cheats
        ],
    }


def binding_changes(before: Mapping[str, object], now: Mapping[str, object]) -> tuple[str, ...]:
    """One sentence for each field of a binding that is not what it was."""
    return tuple(
        f"task {now.get('id')}: {name} was {before.get(name)!r:.80}, is {now.get(name)!r:.80}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    )


def _top_level(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError(f"{path}: no such directory; name a git repository")
    try:
        said = git(["rev-parse", "--path-format=absolute", "--show-toplevel"], cwd=path, timeout_s=BINDING_S)
    except GitError:
        said = b""  # a bare repository has no work tree
    if said.strip():
        return Path(said.decode(errors="surrogateescape").rstrip("\n"))
    try:
        bare = git(["rev-parse", "--path-format=absolute", "--git-dir"], cwd=path, timeout_s=BINDING_S)
    except GitError as problem:
        raise UsageError(f"{path}: not a git repository; name one") from problem
    return Path(bare.decode(errors="surrogateescape").rstrip("\n"))


def _capture_oracle(root: Path, entry: OracleEntry, blobs: BlobStore) -> Oracle:
    contents = [read_stable(root, each.source, max_bytes=MAX_ORACLE_FILE_BYTES) for each in entry.files]
    if entry.runner == REVIEW_RUNNER:
        require_labels(contents[0])
    if sum(map(len, contents)) > MAX_ORACLE_BYTES:
        raise UsageError(f"the oracle's files are larger than {MAX_ORACLE_BYTES} bytes together")
    files = tuple(
        OracleFile(blob=blobs.put(each.target, content), into=each.into)
        for each, content in zip(entry.files, contents, strict=True)
    )
    by_target = sorted(zip(files, contents, strict=True), key=lambda pair: pair[0].blob.name)
    command = entry.command.encode()
    whole = [command] if entry.runner is None else [command, f"{entry.runner} {entry.expect_tests}".encode()]
    if over := sorted(each.target for each in entry.files if each.into is Into.WORKSPACE):
        whole.append("\0".join(("workspace", *over)).encode())
    for file, content in by_target:
        whole += [file.blob.name.encode(), content]
    manifest: list[bytes] = []
    for file, _ in by_target:
        manifest += [file.blob.name.encode(), file.blob.sha256.encode(), str(file.blob.n_bytes).encode()]
    return Oracle(
        command=entry.command,
        runner=entry.runner,
        expect_tests=entry.expect_tests,
        files=files,
        digest=framed_digest(whole),
        command_digest=hashlib.sha256(command).hexdigest(),
        manifest_digest=framed_digest(manifest),
    )


def _capture(root: Path, relative: str | None, blobs: BlobStore) -> Blob | None:
    return None if relative is None else blobs.put(relative, read_stable(root, relative, max_bytes=MAX_PATCH_BYTES))


def _capture_reference(root: Path, entry: TaskEntry, blobs: BlobStore) -> Blob | None:
    """The known-good patch; of a review, the script that writes it, since nothing can be applied to the tree."""
    if entry.reference is None or entry.oracle.runner != REVIEW_RUNNER:
        return _capture(root, entry.reference, blobs)
    return blobs.put(entry.reference, reference_script(read_stable(root, entry.reference, max_bytes=MAX_PATCH_BYTES)))


def _capture_cheat(root: Path, entry: CheatEntry, blobs: BlobStore) -> Cheat:
    if f"{CHEAT}{entry.name}" == EXIT_AT_IMPORT:
        raise UsageError(f"cheat {entry.name!r} has the name of one that is tried with every task; give it another")
    return Cheat(name=entry.name, patch=_capture(root, entry.patch, blobs), script=_capture(root, entry.script, blobs))


def _with_review_cheats(cheats: tuple[Cheat, ...], oracle: Oracle, blobs: BlobStore) -> tuple[Cheat, ...]:
    ours = review_cheats(require_labels(blobs.read(oracle.files[0].blob)), blobs)
    if taken := {cheat.name for cheat in ours} & {cheat.name for cheat in cheats}:
        raise UsageError(f"the name {min(taken)!r} is that of a cheat which every review task has; choose another")
    return (*cheats, *ours)


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
