"""A test per limit: a sweep of two trials, of which the first reaches it and the second does its work."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

pytestmark = [
    pytest.mark.needs("bwrap", "git"),
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("attack-sweep"),
]

MEND: Final = "sed -i 's/a - b/a + b/' calc.py"
PYTHON: Final = "exec python3 -I -S -c '{}'"
HOLD: Final = "signal.pause()"

LIMITS: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "processes": (
        PYTHON.format("import os, signal\nwhile True:\n  try: os.fork() or signal.pause()\n  except OSError: pass"),
        {"processes": 64},
    ),
    "memory": (PYTHON.format("held = []\nwhile True: held.append(bytes(bytearray(1 << 20)))"), {"memory_mib": 192}),
    "cpu": (PYTHON.format("while True: pass"), {"cpu_s": 2}),
    "files": (
        PYTHON.format(
            f"import os, signal\nheld = []\ntry:\n  while True: held.append(os.dup(0))\nexcept OSError: {HOLD}"
        ),
        {"files": 128},
    ),
    "disk": ("head -c 200M /dev/zero >big; exec sleep 300", {"disk_mib": 16}),
    "inodes": (
        PYTHON.format(
            f'import signal\ntry:\n  for n in range(200000): open(str(n), "x").close()\nexcept OSError: {HOLD}\n{HOLD}'
        ),
        {"inodes": 2000},
    ),
    "output": (f": {'x' * 100_000}", {"output_mib": 1}),
}
"""What reaches a limit and goes on until it is ended, and the limit. What a command prints the agent cuts before it is
much; that it is told to run a long one it prints each time."""


def run_two(
    sweep: Callable[..., Any], script: str, task: Mapping[str, object], *more: object, again: tuple[str, ...] = ()
) -> Any:  # noqa: ANN401 - see conftest
    return sweep({"a-reaches-it": (script, task), "b-works": (MEND, {})}, *more, again=again)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_ends_its_trial_by_its_name_and_the_sweep_goes_on(sweep: Callable[..., Any], limit: str) -> None:
    script, limits = LIMITS[limit]
    again = ("a-reaches-it",) if limit == "output" else ()
    swept = run_two(sweep, script, {"limits": limits}, again=again)
    row, other = swept.rows["a-reaches-it"], swept.rows["b-works"]
    assert (row["resolved"], row["error_kind"]) == (False, "limit-exceeded"), row["error_detail"]
    assert f"limit of {limit}" in row["error_detail"]
    assert (other["resolved"], other["error_kind"]) == (True, None), other["error_detail"]
    assert swept.done.returncode == 0
    assert (row["limits_enforced"][limit] or "") != ""
    assert {row["limits_enforced"][each] for each in ("disk", "inodes")} < {"sized tmpfs", "watchdog"}


def test_time_ends_its_trial_whatever_ignores_the_request_and_the_sweep_goes_on(sweep: Callable[..., Any]) -> None:
    # The agent tells its children nothing, and neither they nor it heed TERM or can: the rest is stopped.
    script = (
        "trap '' TERM INT HUP; setsid bash -c 'trap \"\" TERM; while :; do sleep 1; done' & kill -STOP $PPID; sleep 600"
    )
    swept = run_two(sweep, script, {}, "--timeout", 20)
    row, other = swept.rows["a-reaches-it"], swept.rows["b-works"]
    assert (row["resolved"], row["error_kind"]) == (False, "agent-timeout"), row["error_detail"]
    assert row["oracle_passed"] is False, "what stood there at the hard stop is judged"
    assert swept.said("a-reaches-it").count("\n") >= 1, "what was printed until then is kept"
    assert other["error_kind"] in {None, "agent-timeout"}, "the machine may be slow, but it had its turn"
    assert swept.done.returncode == 0


@pytest.mark.parametrize("judge", ["verify", "oracle"])
def test_a_judge_that_never_ends_is_the_arms_failure_and_the_sweep_goes_on(
    sweep: Callable[..., Any], judge: str
) -> None:
    # B56: what the change does to them, a check or an oracle must not hold the sweep up.
    endless = "printf 'import time\\ntime.sleep(900)\\n' >"
    script = endless + ("tests/test_calc.py" if judge == "verify" else "calc.py")
    swept = run_two(sweep, script, {}, "--timeout", 40)
    row = swept.rows["a-reaches-it"]
    assert row["resolved"] is False
    assert row["error_kind"] == ("verify-failed" if judge == "verify" else "oracle-failed"), row["error_detail"]
    assert set(swept.rows) == {"a-reaches-it", "b-works"}
    assert swept.done.returncode == 0


def test_two_hundred_thousand_files_are_more_than_is_credited_and_the_sweep_goes_on(sweep: Callable[..., Any]) -> None:
    # The sandbox lets them be made; what is credited would be written again for each judge.
    script = (
        'import os\nfor d in range(200):\n  os.mkdir(f"d{d}")\n'
        '  for n in range(1000): os.close(os.open(f"d{d}/{n}", os.O_CREAT))'
    )
    swept = run_two(sweep, PYTHON.format(script), {})
    row, other = swept.rows["a-reaches-it"], swept.rows["b-works"]
    assert (row["resolved"], row["error_kind"]) == (False, "limit-exceeded"), row["error_detail"]
    assert "the change is larger than can be kept (inodes)" in row["error_detail"]
    assert (other["resolved"], other["error_kind"]) == (True, None), other["error_detail"]


def test_a_change_that_just_fits_is_judged_and_leaves_its_judges_their_room(sweep: Callable[..., Any]) -> None:
    # Made again for a judge it takes more than in its session: there a sparse file took nothing.
    files = "for d in $(seq 6); do mkdir d$d; seq 100 | (cd d$d && xargs touch); done"
    verify = "mkdir room && cd room && seq 200 | xargs touch && head -c 8M /dev/zero >x"
    swept = sweep(
        {
            "bytes": (f"truncate -s 40M sparse && {MEND}", {"limits": {"disk_mib": 16}, "verify": verify}),
            "inodes": (f"{files} && {MEND}", {"limits": {"inodes": 700}, "verify": verify}),
        }
    )
    for name, row in swept.rows.items():
        assert (row["resolved"], row["error_kind"]) == (True, None), f"{name}: {row['error_detail']}"
    assert swept.done.returncode == 0
