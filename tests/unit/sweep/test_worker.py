"""A spec that is none ends a worker, and `fairtrial trial`, with one line and exit code 2."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairtrial.errors import ConfigError, UsageError
from fairtrial.model.loop import Transport, Variant
from fairtrial.model.trial import LoopTask, TrialSpec
from fairtrial.sweep.worker import SPEC, parse_spec

GOOD = TrialSpec(
    sweep="loop-1",
    key="loop/task_loop/git/file/0",
    attempt=1,
    plan_index=0,
    sweep_pass=0,
    results="/nonexistent/results",
    scratch="/nonexistent/scratch",
    metadata={},
    loop=LoopTask(
        scenario="task_loop",
        variant=Variant(name="git", subject="git", label="git", binary="/usr/bin/git"),
        subject_kind="git",
        transport=Transport.FILE,
        run=0,
        block="task_loop/file/0",
        position_in_block=0,
        block_order=("git",),
        null_control=False,
        skip_reason=None,
        admitted_output_characters=20_000,
        n_seed_files=5,
        hosted_remote=None,
        credential_env=(),
    ),
)
PATH = Path("spec.json")


def changed(member: str, value: object) -> bytes:
    document = json.loads(SPEC.dump_json(GOOD))
    place = document
    *above, last = member.split(".")
    for name in above:
        place = place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(document).encode()


def test_a_spec_reads_back_as_it_was_sent() -> None:
    assert parse_spec(SPEC.dump_json(GOOD) + b"\n", path=PATH) == GOOD


MALFORMED = [
    (b"{", "Invalid JSON"),
    (b"\n", "Invalid JSON"),
    (b"[]", "should be an object"),
    (b"\xff\xfe", "Invalid JSON"),
    (changed("key", None), "key: Field required"),
    (changed("loop.run", "x"), "loop.run: "),
    (changed("attempt", 0), "attempt: 0 is not between 1 and 999999"),
    (changed("attempt", 1_000_000), "attempt: 1000000"),
    (changed("loop.scenario", "tsk_loop"), "unknown scenario 'tsk_loop'; did you mean 'task_loop'?"),
]


@pytest.mark.parametrize(("data", "what"), MALFORMED)
def test_a_malformed_spec_is_refused_by_what_is_wrong(data: bytes, what: str) -> None:
    with pytest.raises(UsageError, match=r"^spec\.json: ") as refusal:
        parse_spec(data, path=PATH)
    assert what in str(refusal.value)
    assert isinstance(refusal.value, ConfigError) or "scenario" in what


@pytest.mark.parametrize(("data", "what"), MALFORMED[::4])
def test_the_commands_end_with_one_line_and_exit_code_2(data: bytes, what: str, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-m", "fairtrial", "trial", str(spec)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"fairtrial: error: {spec}: ")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "fairtrial", "worker"], stdin=pipe, stdout=pipe, stderr=pipe
    ) as worker:
        assert worker.stdin is not None
        assert worker.stderr is not None
        worker.stdin.write(data.rstrip(b"\n") + b"\n")
        worker.stdin.flush()  # and held open: the end of input ends a worker at once, whatever it is at
        lines = worker.stderr.read().decode().splitlines()
        assert worker.wait() == 2
    for line in (*done.stderr.splitlines(), *lines):
        assert what in line
    assert len(lines) == 1
    assert lines[0].startswith("fairtrial: error: standard input:1: ")
