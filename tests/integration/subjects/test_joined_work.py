"""Joining another writer's work: it counts only where the server holds the work of both on one head of the branch."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairtrial.loop.join import RIVAL_LINE
from fairtrial.loop.trial import run_loop_trial
from fairtrial.model.loop import Manner, Motion, Place, Step, Transport
from fairtrial.protocols import Subject

pytestmark = [pytest.mark.xdist_group("measurement"), pytest.mark.timeout(300)]

Row = dict[str, Any]
MakeTrial = Callable[..., Any]
Asked = tuple[Motion, Manner]

JOIN, MERGED = (Motion.JOIN, Manner.PLAIN), (Motion.SNAPSHOT, Manner.MERGED)
DROP = "git reset -q --hard && git rebase --skip && git push -q"
BRANCH = "work/rival_first-0"
NOTES = f"""# Task notes

- rival_first.edit of run 0 in loop-test
{RIVAL_LINE}
- rival_first.edit_again of run 0 in loop-test
"""


def play(
    make_trial: MakeTrial, name: str, asked: Asked | None = None, deeds: Sequence[tuple[str, ...]] = ()
) -> tuple[Row, list[str]]:
    """The verdict row and the names of the rows of its recovery; what is `asked` for is done by other deeds."""

    def spoiled(plain: type[Subject]) -> type[Subject]:
        class Spoiled(plain):  # type: ignore[misc, valid-type]
            def steps(self, motion: Motion, manner: Manner, place: Place) -> tuple[Step, ...]:
                if (motion, manner) == asked:
                    return tuple(Step(argv=deed, cwd=place.workspace) for deed in deeds)
                steps: tuple[Step, ...] = super().steps(motion, manner, place)
                return steps

        return Spoiled

    spec, subject = make_trial(
        name, Transport.FILE, "publication_under_fault_v1", faults=("rival_first",), spoiled=spoiled
    )
    rows = list(run_loop_trial(spec, subject).rows)
    row = next(row for row in rows if row.get("fault_case") == "rival_first")
    assert row["valid"], row["invalid_reason"]
    return row, [row["operation"] for row in rows if ".recover." in row["operation"]]


@pytest.mark.needs("git")
def test_the_branch_holds_both_lines_and_both_commits_once_they_were_joined(
    make_trial: MakeTrial, tmp_path: Path
) -> None:
    row, operations = play(make_trial, "git")
    assert (row["recovered"], row["recovery_reason"], row["recovery_publishes"]) == (True, None, 1)
    joins = ("join", "join.look", "join.edit", "join.add", "join.continue", "join.publish")
    assert operations == [f"rival_first.recover.{each}" for each in ("ask", *joins)]
    (store,) = tmp_path.glob("s/*/served/store.git")

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=store, check=True, capture_output=True, text=True).stdout

    assert git("show", f"{BRANCH}:task-notes.md") == NOTES
    assert git("rev-parse", BRANCH).strip() == row["joined_head"]
    assert row["rival_head"] in git("rev-list", BRANCH).split()


@pytest.mark.needs("git")
@pytest.mark.parametrize(
    ("asked", "deeds", "reason", "n_calls"),
    [
        (JOIN, [], "this subject has no commands that bring in another writer's work", 1),
        (JOIN, [("git", "fetch", "-q")], "the other writer's work was not brought in", 3),
        (MERGED, [("/bin/sh", "-c", DROP)], "store: the notes differ from what was written", 6),
    ],
    ids=["no join", "brought nothing", "dropped our line"],
)
def test_a_join_that_the_server_does_not_show_is_no_recovery(
    make_trial: MakeTrial, asked: Asked, deeds: list[tuple[str, ...]], reason: str, n_calls: int
) -> None:
    row, _ = play(make_trial, "git", asked, deeds)
    assert (row["recovered"], row["joined_head"], row["recovery_calls"]) == (False, None, n_calls)
    assert reason in row["recovery_reason"]
