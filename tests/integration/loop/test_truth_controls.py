"""Negative controls: the truth check must have failed on each of them, or it proves nothing."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.loop.rows import RowBuilder
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.loop.stage import Stage, open_stage
from fairtrial.loop.tasks import check_truth, summarize
from fairtrial.loop.trial import run_loop_trial
from fairtrial.loop.work import perform, prepare
from fairtrial.model.loop import Motion, Place, Step, Transport
from fairtrial.subjects.git import Git

pytestmark = pytest.mark.needs("git")

Tamper = Callable[[Stage, Place], None]


def in_store(place: Place, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(place.store), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def nothing(_stage: Stage, _place: Place) -> None:
    """Leave the store as published."""


def move_branch_elsewhere(_stage: Stage, place: Place) -> None:
    in_store(place, "update-ref", f"refs/heads/{place.branch}", "refs/heads/main")


def keep_payload_on_another_branch_only(_stage: Stage, place: Place) -> None:
    in_store(place, "update-ref", "refs/heads/other", f"refs/heads/{place.branch}")
    in_store(place, "update-ref", "-d", f"refs/heads/{place.branch}")


def corrupt_the_store(_stage: Stage, place: Place) -> None:
    blob = in_store(place, "rev-parse", f"refs/heads/{place.branch}:task-notes.md")
    path = place.store / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-3])


class PublishesNothing(Git):
    """An unpushed commit: the publish motion does nothing and says it did."""

    def steps(self, motion, manner, place):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        if motion is Motion.PUBLISH:
            return (Step(argv=("/bin/true",), cwd=place.workspace),)
        return super().steps(motion, manner, place)


class CommitsWrongBytes(Git):
    """The right file on the right branch, with bytes that the task did not write."""

    def steps(self, motion, manner, place):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        if motion is Motion.SNAPSHOT:
            wrong = Step(argv=("/bin/sh", "-c", "printf x >> task-notes.md"), cwd=place.workspace, name=".wrong")
            return (wrong, *super().steps(motion, manner, place))
        return super().steps(motion, manner, place)


@pytest.mark.parametrize("transport", [Transport.FILE, Transport.HTTP])
@pytest.mark.parametrize(
    ("subject_class", "tamper", "holds", "sentence"),
    [
        (Git, nothing, True, ""),
        (PublishesNothing, nothing, False, "no branch"),
        (Git, move_branch_elsewhere, False, "is at"),
        (Git, keep_payload_on_another_branch_only, False, "no branch"),
        (CommitsWrongBytes, nothing, False, "differ"),
        (Git, corrupt_the_store, False, "integrity check"),
    ],
    ids=["as-published", "unpushed-commit", "branch-elsewhere", "other-branch-only", "wrong-bytes", "corrupt-store"],
)
def test_the_truth_check_holds_only_for_what_was_really_published(
    make_spec: Callable[..., object],
    git_variant: object,
    transport: Transport,
    subject_class: type[Git],
    tamper: Tamper,
    holds: bool,
    sentence: str,
) -> None:
    spec = make_spec("task_loop", transport)
    scenario = SCENARIOS["task_loop"]
    rows: list[dict[str, object]] = []
    builder = RowBuilder.of(spec, scenario)
    with open_stage(spec, scenario, subject_class(git_variant)) as stage:
        prepare(stage, builder, rows)
        expectations = perform(stage, builder, rows)
        tamper(stage, stage.places["followup"])
        checks = check_truth(stage, expectations)
        total = summarize(stage, rows, checks, {})
    assert checks["followup"].holds is holds
    assert any(sentence in failure for failure in checks["followup"].failures) is bool(sentence)
    assert total["oracle_payload_on_remote_branch"] is holds
    assert total["returncode"] == (0 if holds else 1)


def test_a_failed_acquisition_still_leaves_a_total_row_that_fails(
    make_spec: Callable[..., object], git_variant: object
) -> None:
    class CannotAcquire(Git):
        def steps(self, motion, manner, place):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            if motion is Motion.ACQUIRE:
                return (Step(argv=("/bin/false",), cwd=place.root),)
            return super().steps(motion, manner, place)

    record = run_loop_trial(make_spec("task_loop"), CannotAcquire(git_variant))
    total = record.rows[-1]
    assert total["operation"] == "task_loop.total"
    assert total["returncode"] == 1
    assert total["oracle_payload_on_remote_branch"] is None
    assert total["coverage_complete"] is False
    assert "followup.publish" in total["unmeasured_operations"]


def test_a_host_failure_half_way_is_a_void_total_row(make_spec: Callable[..., object], git_variant: object) -> None:
    class CannotSeed(Git):
        def seed_store(self, place: Place, tree: Path) -> tuple[Step, ...]:
            return (Step(argv=("/bin/false",), cwd=tree), *super().seed_store(place, tree))

    record = run_loop_trial(make_spec("task_loop"), CannotSeed(git_variant))
    assert record.rows[-1]["error_kind"] == "infra-error"
    assert record.rows[-1]["operation"] == "task_loop.total"
