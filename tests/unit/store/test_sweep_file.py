import hashlib
import json
from pathlib import Path

import pytest
from tests.unit.store.conftest import Made

from fairtrial.errors import HostError, IntegrityError, UsageError
from fairtrial.store.layout import Results
from fairtrial.store.sweep_file import read_sweep, write_sweep

PLAN = [{"plan_index": 0, "key": "a", "more": [1]}, {"plan_index": 1, "key": "b"}]
GOOD: dict[str, object] = {"schema": "sweep/1", "sweep": "s", "lane": "loop", "plan": PLAN, "machine": {"cpus": 2}}


def test_a_sweep_is_read_as_it_was_written(made: Made) -> None:
    data = made.results.sweep_json.read_bytes()
    assert read_sweep(made.results) == made.sweep
    assert made.sweep.digest == hashlib.sha256(data).hexdigest()
    assert made.sweep.document == json.loads(data)
    assert made.sweep.plans("loop/task_loop/git/file/3", at=3)
    assert not any(made.sweep.plans("loop/task_loop/git/file/3", at=at) for at in (-1, 2, 4))
    assert [made.results.trial_dir(key).name for key in made.sweep.plan_keys] == list(made.sweep.trial_names)


def test_a_sweep_is_written_once(made: Made) -> None:
    with pytest.raises(UsageError, match=r"there is a sweep already.*fairtrial resume"):
        write_sweep(made.results, made.sweep.document)


def test_a_directory_that_went_away_is_the_hosts_fault(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="No such file"):
        write_sweep(Results(root=tmp_path / "absent"), GOOD)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": "sweep/2"}, "schema"),
        ({"sweep": ""}, "empty"),
        ({"lane": None}, "no lane"),
        ({"plan": {}}, "plan is of another type"),
        ({"plan": [1]}, r"plan\[0\] is no object"),
        ({"plan": [{"plan_index": 0}]}, "no key"),
        ({"plan": [{"plan_index": 1, "key": "a"}]}, "plan entry 0 has another plan_index"),
        ({"plan": [{"plan_index": False, "key": "a"}]}, "plan_index is of another type"),
        ({"plan": [{"plan_index": 0, "key": "a"}, {"plan_index": 1, "key": "a"}]}, "two plan entries have one key"),
    ],
)
def test_what_is_no_sweep_is_neither_written_nor_believed(tmp_path: Path, change: dict[str, object], why: str) -> None:
    results = Results(root=tmp_path)
    with pytest.raises(ValueError, match=why):
        write_sweep(results, GOOD | change)
    assert not results.sweep_json.exists()
    results.sweep_json.write_text(json.dumps(GOOD | change))
    with pytest.raises(IntegrityError, match=rf"sweep\.json: .*({why})"):
        read_sweep(results)
