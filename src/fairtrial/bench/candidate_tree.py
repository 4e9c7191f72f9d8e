"""Where a candidate's sessions begin when the agent finds its skills in the tree.

The candidate's files go over what the task's set-up left, so that set-up never sees them and both arms of a pair begin
with the same bytes otherwise. They are committed in the sandbox in place of the tree's only commit: history is as
short as before, and `git status` is as clean. Judges never see this tree: theirs is the task's own.
"""

import stat
from typing import Final

from fairtrial.bench.blobs import framed_digest
from fairtrial.bench.node import Node, Prepared, judge_environment, limits_of, workspace_bind
from fairtrial.errors import HostError
from fairtrial.host.sandbox import run_sandbox
from fairtrial.model.bench import Arm, Task
from fairtrial.model.sandbox import SandboxSpec
from fairtrial.workspace.layers import Layer
from fairtrial.workspace.overlay import MAX_OVERLAY_BYTES
from fairtrial.workspace.tree import Tree

__all__ = ["prepare_arm"]

COMMIT_S: Final = 60.0
_COMMIT: Final = """set -eu
git() {
    command git -c safe.directory=* -c core.hooksPath=/dev/null -c core.fsmonitor=false \\
        -c core.logAllRefUpdates=false -c gc.auto=0 "$@"
}
git add --force -- "$@"
if git diff --cached --quiet HEAD -- "$@"; then
    echo "it makes no difference here" >&2
    exit 1
fi
git commit --quiet --amend --no-edit --no-verify --no-gpg-sign --only -- "$@" >&2
rm -f .git/COMMIT_EDITMSG
test -z "$(git status --porcelain -- "$@")"
git rev-parse HEAD
"""
_IDENTITY: Final = {
    "GIT_COMMITTER_NAME": "base",
    "GIT_COMMITTER_EMAIL": "base@localhost",
    "GIT_COMMITTER_DATE": "946684800 +0000",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def prepare_arm(node: Node, task: Task, arm: Arm) -> Prepared:
    """Where an arm's sessions on a task begin.

    Raises:
        HostError: The set-up failed, or the candidate cannot be put over what it left.
        BlobLostError: The candidate's captured bytes are gone.
    """
    prepared = node.prepare(task)
    if not arm.overlay:
        return prepared
    contents = {blob.name: node.blobs.read(blob) for blob in arm.overlay}

    def fill(layer: Layer) -> str:
        before, now = Tree(prepared.template.tree), Tree(layer.merged)
        for path, content in contents.items():
            _require_as_committed(task, path.encode(), before, now)
            now.put_file(path.encode(), content, 0o644, node.slot)
        return _commit(node, task, layer, tuple(contents))

    frames = [frame for blob in arm.overlay for frame in (blob.name.encode(), blob.sha256.encode())]
    return node.put_over(prepared, task, framed_digest(frames), fill)  # arms may have different parts of one candidate


def _require_as_committed(task: Task, path: bytes, before: Tree, now: Tree) -> None:
    """Refuse to write over what the task's set-up has changed, or through what it has made a link of."""
    parents = [path.rsplit(b"/", n)[0] for n in range(path.count(b"/"), 0, -1)]
    shown = path.decode()
    if not all(now.is_directory(parent) for parent in parents):
        raise HostError(f"task {task.id}: set-up moved {shown}, which the candidate changes; see the task's setup")
    mode = now.mode(path)
    if mode is None or not stat.S_ISREG(mode):
        raise HostError(f"task {task.id}: {shown}, which the candidate changes, is no file after set-up")
    if now.read_file(path, MAX_OVERLAY_BYTES) != before.read_file(path, MAX_OVERLAY_BYTES):
        raise HostError(f"task {task.id}: set-up changed {shown}, which the candidate changes; see the task's setup")


def _commit(node: Node, task: Task, layer: Layer, paths: tuple[str, ...]) -> str:
    spec = SandboxSpec(
        argv=("/bin/sh", "-c", _COMMIT, "sh", *paths),
        env={**judge_environment(task), **_IDENTITY},
        binds=(workspace_bind(layer),),
        limits=limits_of(task.limits, wall_s=COMMIT_S),
    )
    result = run_sandbox(spec, slot=node.slot, enforcement=node.enforcement, space=layer.space)
    if not result.ok:
        said = result.stderr.tail.decode(errors="replace").strip().splitlines()
        raise HostError(f"task {task.id}: the candidate cannot be committed: {said[-1] if said else result.detail}")
    return result.stdout.tail.decode(errors="replace").strip()
