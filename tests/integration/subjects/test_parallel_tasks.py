"""Eight tasks at once on one repository."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fairtrial.loop.trial import run_loop_trial
from fairtrial.model.loop import Motion, Step, Transport
from fairtrial.protocols import Subject

pytestmark = [pytest.mark.xdist_group("measurement"), pytest.mark.timeout(600)]

MakeTrial = Callable[..., Any]
NAMES = ("git", "hg", "fossil", "oak", "jj")
SUBJECTS = [pytest.param(name, marks=pytest.mark.needs(*({name, "git"} if name == "jj" else {name}))) for name in NAMES]

ELSEWHERE = [  # each other transport once, by a tool that is quick over it: hg takes minutes for eight tasks
    ("git", Transport.FILE, "git"),
    ("git", Transport.NATIVE, "git"),
    ("fossil", Transport.SSH, "fossil"),
    ("jj", Transport.SSH, "jj", "git"),
]
CELLS = [
    *(pytest.param(*each.values, Transport.HTTP, marks=each.marks, id=f"{each.values[0]}-http") for each in SUBJECTS),
    *(
        pytest.param(name, transport, marks=pytest.mark.needs(*needs), id=f"{name}-{transport}")
        for name, transport, *needs in ELSEWHERE
    ),
]


def play(
    make_trial: MakeTrial,
    name: str,
    transport: Transport = Transport.HTTP,
    **options: Any,  # noqa: ANN401 - as the fixture takes them
) -> list[dict[str, Any]]:
    return list(run_loop_trial(*make_trial(name, transport, "parallel_tasks_v1", **options)).rows)


@pytest.mark.parametrize(("name", "transport"), CELLS)
def test_no_update_that_was_claimed_is_lost_and_every_refusal_is_named(
    make_trial: MakeTrial, name: str, transport: Transport
) -> None:
    rows = play(make_trial, name, transport)
    total = rows[-1]
    refused, lost = total["tasks_refused"], set(total["lost_update_tasks"])
    # fossil ends with 0 when others have locked the store for longer than it waits, as they do on a busy machine
    assert lost <= {task for task in refused if name == "fossil"}, total
    assert (total["returncode"], total["verdicts"].get("false_success", 0)) == (int(bool(lost)), len(lost)), total
    assert (total["lost_updates"], total["n_tasks"], total["server_integrity"]) == (len(lost), 8, True)
    assert len(refused) + total["tasks_published"] >= 8
    operations = {row["operation"] for row in rows}
    assert set(refused.values()) <= operations
    assert total["coverage_complete"] is not any(".publish" not in where for where in refused.values())
    assert total["parallel_work_wall_ms"] > 0
    assert total["elapsed_ms"] is None
    assert "parallel_work_wall_ms" in total["elapsed_ms_reason"]


@pytest.mark.needs("git")
def test_an_update_that_was_claimed_and_is_not_there_is_counted_and_fails_the_trial(make_trial: MakeTrial) -> None:
    def losing_one(plain: type[Subject]) -> type[Subject]:
        class LosesOne(plain):  # type: ignore[misc, valid-type]
            def steps(self, motion, manner, place):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
                if motion is Motion.ACQUIRE:  # a clone each: nothing is refused
                    return super().steps(motion, type(manner).FRESH, place)
                if motion is Motion.PUBLISH and place.workspace.name == "task3":
                    return (Step(argv=("/bin/true",), cwd=place.workspace),)
                return super().steps(motion, manner, place)

        return LosesOne

    total = play(make_trial, "git", spoiled=losing_one)[-1]
    assert (total["returncode"], total["lost_update_tasks"], total["tasks_refused"]) == (1, ["task3"], {})
    assert total["verdicts"] == {"false_success": 1, "true_success": 7}


@pytest.mark.needs("git")
def test_an_update_that_nobody_could_read_is_not_lost_and_fails_the_trial(make_trial: MakeTrial) -> None:
    def unreadable(plain: type[Subject]) -> type[Subject]:
        class Unreadable(plain):  # type: ignore[misc, valid-type]
            def steps(self, motion, manner, place):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
                manner = type(manner).FRESH if motion is Motion.ACQUIRE else manner  # a clone each: nothing is refused
                return super().steps(motion, manner, place)

            def read_truth(self, run, place, path, transport):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
                truth = super().read_truth(run, place, path, transport)
                if place.workspace.name != "task3":
                    return truth
                store, wire = truth.readings
                return replace(truth, readings=(store, replace(wire, head=None, content=None, failed=True)))

        return Unreadable

    total = play(make_trial, "git", Transport.FILE, spoiled=unreadable)[-1]
    assert (total["returncode"], total["lost_update_tasks"], total["tasks_refused"]) == (1, [], {}), total
    assert "task3: wire: could not be read" in total["stderr"]
    assert total["verdicts"] == {"true_success": 7}
