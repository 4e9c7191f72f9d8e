from dataclasses import replace
from typing import Any, Final

import pytest

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(300)]

Sweep = Any

MEND: Final = {"tool": "Bash", "input": {"command": "sed -i 's/a - b/a + b/' calc.py"}}
SPENT: Final = (
    "wire",
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "cost_usd",
)
VERDICT: Final = ("resolved", "oracle_passed", "error_kind")


def spent(row: dict[str, Any]) -> dict[str, Any]:
    """What a trial cost, without clocks and what the bytes of an id or a date come to."""
    wire = {name: row["wire"][name] for name in ("requests", "refused", "by_model", "by_agent")}
    return {name: row[name] for name in (*SPENT, *VERDICT)} | {"wire": wire}


def test_what_a_sweep_recorded_plays_the_same_sweep_again(sweep: Sweep) -> None:
    usage = {"uncached_input": 100, "cache_read": 7, "output": 10}
    turns = [{"calls": [MEND], "usage": usage}, {"text": "Done.", "usage": usage}]
    script = sweep.write_script([{"name": "any", "turns": turns}])

    recording = sweep.run("--runs", 1, "--script", script, "--record")
    assert recording.returncode == 0, recording.stderr
    (recorded,) = sweep.out.glob("trials/*/1/script-*.yaml")
    again = replace(sweep, out=sweep.root / "again")
    assert again.run("--runs", 1, "--script", recorded).returncode == 0

    (first,), (second,) = sweep.rows, again.rows
    assert first["resolved"] is True
    assert spent(second) == spent(first)
    assert list(again.out.glob("trials/*/1/script-*.yaml")) == [], "only when it is asked for"
