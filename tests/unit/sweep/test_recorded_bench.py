"""The same of a sweep of the agent lane; see `test_recorded_plan`."""

from pathlib import Path
from typing import cast

import pytest

from fairtrial.errors import IntegrityError
from fairtrial.store.layout import Results
from fairtrial.store.strict_json import JsonObject
from fairtrial.store.sweep_file import SweepFile
from fairtrial.sweep.bench_inputs import OPTIONS, recorded_options
from fairtrial.sweep.bench_plan import BenchOptions

ASKED = BenchOptions(tasks="/t", arms=("a",), model="m", agent="bash-agent")
RECORD: dict[str, object] = {
    "created_utc": "2026-11-29T13:01:00Z",
    "options": OPTIONS.dump_python(ASKED, mode="json"),
    "inputs": {"task_file.sha256": "1"},
    "environments": {"a": [{"phase": "work"}]},
    "scratch": "/nonexistent",
    "tasks": [{"id": "t", "resolved_sha": "c", "prompt": "p"}],
    "plan": [],
}
RESULTS = Results(root=Path("r"))


def _sweep(document: dict[str, object]) -> SweepFile:
    return SweepFile(
        sweep="s", lane="bench", plan_keys=(), trial_names=(), digest="0" * 64, document=cast("JsonObject", document)
    )


def test_what_a_sweep_wrote_is_read_back() -> None:
    assert recorded_options(RESULTS, _sweep(RECORD)) == ASKED


@pytest.mark.parametrize("wrong", [None, 1, ["x"], {"x": 1}], ids=str)
@pytest.mark.parametrize("member", RECORD)
def test_a_member_that_is_missing_or_of_another_form_is_named(member: str, wrong: object) -> None:
    without = {name: value for name, value in RECORD.items() if name != member}
    changed = [without | {member: wrong}] if (member, wrong) != ("plan", ["x"]) else []  # it is compared as a whole
    for record in (without, *changed):
        with pytest.raises(IntegrityError, match=r"r/sweep\.json: not a plan that this version understands"):
            recorded_options(RESULTS, _sweep(record))
