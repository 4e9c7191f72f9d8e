"""A `sweep.json` that somebody edited is an integrity error of the plan, before anything of it is used."""

from pathlib import Path

import pytest

from fairtrial.errors import IntegrityError
from fairtrial.model.loop import Transport
from fairtrial.store.layout import Results
from fairtrial.sweep.loop_sweep import OPTIONS, plan_of
from fairtrial.sweep.plan import LoopOptions

ASKED = LoopOptions(
    scenarios=("task_loop",),
    subjects=("git",),
    transports=(Transport.FILE,),
    runs=1,
    seed=1,
    admitted_output_characters=1,
    n_seed_files=1,
    hosted_remote=None,
)
RECORD: dict[str, object] = {
    "created_utc": "2026-11-29T13:01:00Z",
    "options": OPTIONS.dump_python(ASKED, mode="json"),
    "variants": [],
    "inputs": {"git": "1"},
    "scratch": "/nonexistent",
    "plan": [],
}
RESULTS = Results(root=Path("r"))


def test_what_a_sweep_wrote_is_read_back() -> None:
    assert plan_of(RESULTS, RECORD) == (ASKED, (), ())


@pytest.mark.parametrize("wrong", [None, 1, ["x"], {"x": 1}], ids=str)
@pytest.mark.parametrize("member", RECORD)
def test_a_member_that_is_missing_or_of_another_form_is_named(member: str, wrong: object) -> None:
    without = {name: value for name, value in RECORD.items() if name != member}
    for record in (without, without | {member: wrong}):
        with pytest.raises(IntegrityError, match=r"r/sweep\.json: not a plan that this version understands"):
            plan_of(RESULTS, record)


def test_a_scenario_that_nobody_knows_is_named() -> None:
    options = OPTIONS.dump_python(ASKED, mode="json") | {"scenarios": ["nope"]}
    with pytest.raises(IntegrityError, match="nope"):
        plan_of(RESULTS, RECORD | {"options": options})
