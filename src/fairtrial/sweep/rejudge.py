"""Repeating the verdicts of a sealed sweep from its artifacts: the same tree, the same oracle, asked again."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.judge import authored_check, judged_tree, part_of
from fairtrial.bench.node import BLOBS, Node
from fairtrial.bench.review import REVIEW_FILE, judge_review, require_labels, review_changes
from fairtrial.bench.trial import CHANGE
from fairtrial.errors import IntegrityError, UsageError
from fairtrial.evidence.rows import Row
from fairtrial.host.files import remove_tree
from fairtrial.host.limits import probe_limits
from fairtrial.host.slot import open_slot
from fairtrial.judging.rejudge import Judgement, Part, oracle_of, parse_judgement, verdict_changes
from fairtrial.judging.run import judge_oracle
from fairtrial.judging.values import Surroundings
from fairtrial.model.bench import Task
from fairtrial.model.sandbox import Limit
from fairtrial.store.layout import Results
from fairtrial.store.rows import read_rows
from fairtrial.store.sweep_file import read_sweep
from fairtrial.sweep.bench_inputs import (
    bind_tasks,
    recorded_bindings,
    recorded_commits,
    recorded_options,
    task_changes,
)
from fairtrial.sweep.scratch import SCRATCH_MODE
from fairtrial.workspace.archive import unpack_change

__all__ = ["Rejudged", "rejudge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudged:
    """One verdict, asked again.

    Attributes:
        key: The trial.
        attempt: The attempt.
        record: The file that describes the verdict.
        changes: What is said differently now; empty when it is repeated.
    """

    key: str
    attempt: int
    record: str
    changes: tuple[str, ...]


def rejudge(results: Results, base: Path) -> Iterator[Rejudged]:
    """Ask every oracle and authored check again, in the order of the rows.

    Raises:
        UsageError: The tasks are not what they were; the message names the difference.
        IntegrityError: An artifact is not what was written.
        HostError: The host failed.
    """
    sweep = read_sweep(results)
    if sweep.lane != "bench":
        raise UsageError(f"{results.root}: a sweep of lane {sweep.lane}; only the agent lane has verdicts to repeat")
    options = recorded_options(results, sweep)
    root = base / f"ft-{sweep.digest[:8]}j"
    root.mkdir()
    try:
        root.chmod(SCRATCH_MODE)
        blobs = BlobStore(root / BLOBS)
        bound, _ = bind_tasks(options, blobs, commits=recorded_commits(sweep))
        if changed := task_changes(tuple(recorded_bindings(sweep).values()), bound):
            raise UsageError(
                f"{options.tasks}: the tasks are not what they were ({'; '.join(changed)}), so that no verdict can be "
                "repeated; put them back"
            )
        tasks = {task.id: task for task in bound}
        slot = open_slot(root)
        enforcement = probe_limits(slot, allow_unenforced=frozenset(map(Limit, options.allow_unenforced)))
        node = Node(slot=slot, enforcement=enforcement, blobs=blobs, n_workers=1)
        try:
            for row in read_rows(results.results_jsonl, sweep_id=sweep.sweep):
                key, attempt = str(row["key"]), int(str(row["attempt"]))
                directory = results.attempt_dir(key, attempt)
                for record in sorted(directory.glob("judgement-*.json")):
                    judgement = parse_judgement(record.read_bytes())
                    changes = _ask_again(node, tasks[str(row["task"])], directory, judgement, row)
                    yield Rejudged(key=key, attempt=attempt, record=record.name, changes=changes)
                if isinstance(scored := row.get("review"), dict):
                    changes = _score_again(blobs, tasks[str(row["task"])], directory, cast("Row", scored))
                    yield Rejudged(key=key, attempt=attempt, record=REVIEW_FILE, changes=changes)
        finally:
            node.close()
    finally:
        remove_tree(root)


def _score_again(blobs: BlobStore, task: Task, directory: Path, scored: Row) -> tuple[str, ...]:
    path = directory / REVIEW_FILE
    review = path.read_bytes() if path.exists() else None
    return review_changes(scored, judge_review(review, require_labels(blobs.read(task.oracle.files[0].blob))))


def _ask_again(node: Node, task: Task, directory: Path, judgement: Judgement, row: Row) -> tuple[str, ...]:
    packed = (directory / CHANGE).read_bytes()
    if hashlib.sha256(packed).hexdigest() != judgement.change_sha256:
        raise IntegrityError(
            f"{directory / CHANGE}: is not the change that was judged; believe nothing derived from it"
        )
    change, commit = unpack_change(packed)
    prepared = node.prepare(task)
    if prepared.template.commit != commit or commit != judgement.commit:
        raise IntegrityError(f"{directory}: the tree made of {task.commit} is not the one that was judged")
    set_up = row.get("setup_layer_digest", prepared.setup_digest)  # an attempt that was broken off does not say
    if prepared.setup_digest != set_up:
        return (f"what set-up leaves was {set_up}, is {prepared.setup_digest}: the tree cannot be made again",)
    around = Surroundings(env=judgement.env, binds=node.binds(task), limits=judgement.limits)
    oracle = oracle_of(judgement, lambda digest: node.blobs.root / digest)
    with judged_tree(node, task, prepared, part_of(change, judgement.part)) as tree:
        again = judge_oracle(oracle, tree, around, slot=node.slot, enforcement=node.enforcement)
    changes = verdict_changes(judgement, again)
    before = row.get("authored_tests_passed")
    if judgement.part is not Part.WHOLE or before is None:
        return changes
    with judged_tree(node, task, prepared, change) as tree:
        check = authored_check(node, task, tree, around)
    differs = () if check.passed == before else (f"authored_tests_passed was {before}, is {check.passed}",)
    return (*changes, *differs)
