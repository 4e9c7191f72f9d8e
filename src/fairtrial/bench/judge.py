"""Judging one change: the authored check and the oracle, each on a fresh tree that we build.

Nothing of the session is alive any more, and of its tree only the credited change is used. Where the change edits
tests, the oracle is asked a second time about the change without them.
"""

import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from fairtrial.bench.node import Node, Prepared, judge_environment, limits_of
from fairtrial.judging.autoload import ChangeFlags, flag_change, is_test_path
from fairtrial.judging.rejudge import Part, describe_judgement, encode_judgement
from fairtrial.judging.run import judge_oracle, run_check
from fairtrial.judging.values import (
    CapturedFile,
    ChangedPath,
    CheckVerdict,
    Isolation,
    JudgedTree,
    OracleSpec,
    OracleVerdict,
    Place,
    Runner,
    Surroundings,
)
from fairtrial.model.bench import Into, Task
from fairtrial.store.redact import Redactor
from fairtrial.workspace.change import MOST_BYTES, Change, Entry, Kind, apply_change, room_for
from fairtrial.workspace.layers import Layer, open_layer
from fairtrial.workspace.tree import Tree

__all__ = ["RECORD", "Judgement", "authored_check", "check_base", "judge", "judged_tree", "part_of"]

RECORD: Final = "judgement-{}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of one change.

    Attributes:
        authored: The authored check's verdict.
        oracle: The oracle's.
        source_only: The oracle's on the change without its tests; None when it edits none.
        flags: Paths that act by being there, and tests.
        records: What repeats each verdict, by the name of its file.
    """

    authored: CheckVerdict
    oracle: OracleVerdict
    source_only: OracleVerdict | None
    flags: ChangeFlags
    records: Mapping[str, bytes]


def judge(
    node: Node, task: Task, prepared: Prepared, change: Change, *, timeout_s: float, change_sha256: str
) -> Judgement:
    """Ask the authored check and the oracle.

    Raises:
        HostError: The host failed.
    """
    around = Surroundings(
        env=judge_environment(task), binds=node.binds(task), limits=limits_of(task.limits, wall_s=timeout_s)
    )
    oracle = _oracle_spec(node, task)
    with judged_tree(node, task, prepared, change) as tree:
        flags = flag_change(tree.change)
        authored = authored_check(node, task, tree, around)
    records: dict[str, bytes] = {}

    def ask(part: Part) -> OracleVerdict:
        with judged_tree(node, task, prepared, part_of(change, part)) as tree:
            verdict = judge_oracle(oracle, tree, around, slot=node.slot, enforcement=node.enforcement)
        described = describe_judgement(
            oracle, around, verdict, commit=prepared.template.commit, change_sha256=change_sha256, part=part
        )
        records[RECORD.format(part)] = encode_judgement(described)
        return verdict

    verdict = ask(Part.WHOLE)
    source_only = ask(Part.SOURCE_ONLY) if flags.tests else None
    return Judgement(authored=authored, oracle=verdict, source_only=source_only, flags=flags, records=records)


def check_base(node: Node, task: Task, prepared: Prepared, *, timeout_s: float) -> CheckVerdict:
    """Run the authored check on the untouched base.

    Raises:
        HostError: The host failed.
    """
    around = Surroundings(
        env=judge_environment(task), binds=node.binds(task), limits=limits_of(task.limits, wall_s=timeout_s)
    )
    with judged_tree(node, task, prepared, Change(entries=())) as tree:
        return authored_check(node, task, tree, around)


def authored_check(node: Node, task: Task, tree: JudgedTree, around: Surroundings) -> CheckVerdict:
    """Run a task's authored check on a tree; what is kept of its output holds no secret.

    Raises:
        HostError: The host failed.
    """
    redact = Redactor().redact_text
    return run_check(task.verify, tree, around, slot=node.slot, enforcement=node.enforcement, redact=redact)


def part_of(change: Change, part: Part) -> Change:
    """So much of a change as a judge is given."""
    if part is Part.WHOLE:
        return change
    return replace(change, entries=tuple(each for each in change.entries if not is_test_path(each.path)))


@contextmanager
def judged_tree(node: Node, task: Task, prepared: Prepared, change: Change) -> Generator[JudgedTree]:
    """A tree for one judge: the base, what set-up made, and the change.

    The task's limits are for what the judge writes. Made again, a change may take more than it took in its session,
    where a sparse file took nothing: were there no room for it, the arm would have made its own trial void.

    Raises:
        HostError: It cannot be made.
    """
    room, storage = node.room(task.limits)
    with open_layer(prepared.base, slot=node.slot, room=room_for(change, room), storage=storage) as layer:
        apply_change(change, layer, slot=node.slot)
        yield JudgedTree(merged=layer.merged, space=layer.space, change=_changed_paths(change, layer))


def _changed_paths(change: Change, layer: Layer) -> tuple[ChangedPath, ...]:
    before = Tree(layer.before)
    return tuple(_changed_path(entry, before) for entry in change.entries)


def _changed_path(entry: Entry, before: Tree) -> ChangedPath:
    mode = (before.mode(entry.path) if entry.existed else None) or 0
    return ChangedPath(
        path=entry.path,
        before=before.read_file(entry.path, MOST_BYTES) if stat.S_ISREG(mode) else None,
        after=None if entry.kind is Kind.GONE else entry.content,
        is_link=entry.kind is Kind.LINK,
        before_link=before.read_link(entry.path) if stat.S_ISLNK(mode) else None,
        was_executable=stat.S_ISREG(mode) and bool(mode & stat.S_IXUSR),
    )


def _oracle_spec(node: Node, task: Task) -> OracleSpec:
    oracle = task.oracle
    return OracleSpec(
        command=oracle.command,
        runner=None if oracle.runner is None else Runner(oracle.runner),
        expect_tests=oracle.expect_tests,
        isolation=Isolation(task.isolation),
        files=tuple(
            CapturedFile(
                target=file.blob.name,
                place=Place.WORKSPACE if file.into is Into.WORKSPACE else Place.ORACLE_ROOT,
                source=node.blobs.root / file.blob.sha256,
                sha256=file.blob.sha256,
                n_bytes=file.blob.n_bytes,
            )
            for file in oracle.files
        ),
    )
