"""`isolation: process`: the candidate runs in another sandbox than the oracle; what it does there proves nothing."""

import os
import secrets
import signal
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.errors import UsageError
from fairtrial.evidence.endings import EndingKind
from fairtrial.judging.values import Counts, Isolation, OracleVerdict, Place, Proof, Runner
from fairtrial.model.sandbox import Limit, Limits

pytestmark = pytest.mark.needs("bwrap")

Judge = Callable[..., OracleVerdict]

PROVE = 'echo "$FAIRTRIAL_NONCE" >&"$FAIRTRIAL_PROOF_FD"'
TESTS = """
import os, subprocess

def double(number, stdin=b""):
    command = [os.environ["FAIRTRIAL_CANDIDATE"], "python3", "tool.py", str(number)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=30)

def test_small():
    assert double(2).stdout == b"4\\n"

def test_large():
    assert double(1000).stdout == b"2000\\n"
"""
BASE = {"tool.py": "print(0)\n"}
SOLVED = "import sys\nprint(int(sys.argv[1]) * 2)\n"


@pytest.fixture
def judge_tool(judge: Judge) -> Judge:
    """Judge a tool by pytest, which drives it from another sandbox."""

    def run(tool: str, limits: Limits | None = None, **change: str) -> OracleVerdict:
        oracle = judge.oracle("test_hidden.py", {"test_hidden.py": TESTS}, runner=Runner.PYTEST, expect_tests=2)
        oracle = replace(oracle, isolation=Isolation.PROCESS)
        return judge(oracle, judge.tree(BASE, {"tool.py": textwrap.dedent(tool), **change}), limits)

    return run


@pytest.fixture
def judge_by_command(judge: Judge) -> Judge:
    """Judge a tool by a command of the oracle's own."""

    def run(tool: str, command: str, limits: Limits | None = None) -> OracleVerdict:
        oracle = replace(judge.oracle(command, {"secret.sh": "exit 0"}), isolation=Isolation.PROCESS)
        return judge(oracle, judge.tree(BASE, {"tool.py": textwrap.dedent(tool)}), limits)

    return run


def assert_failed(verdict: OracleVerdict) -> None:
    assert not verdict.passed
    assert verdict.kind is EndingKind.ORACLE_FAILED, verdict
    assert verdict.reason


def test_an_honest_solution_passes(judge_tool: Judge) -> None:
    verdict = judge_tool(SOLVED)
    assert verdict.passed, verdict
    assert verdict.proof is Proof.PROVEN
    assert verdict.counts == Counts(n_passed=2, n_failed=0, n_skipped=0)


@pytest.mark.parametrize(
    "tool", ["print(0)", "import os; os._exit(0)", "import os; os.kill(-1, 9)", "raise SystemExit(0)"]
)
def test_ending_early_in_whatever_way_is_a_wrong_answer(judge_tool: Judge, tool: str) -> None:
    verdict = judge_tool(tool)
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)


def test_nothing_of_the_oracle_is_where_the_candidate_runs(judge_tool: Judge) -> None:
    tool = """
        import os, sys
        hidden = [path for path in ("/oracle", "/fairtrial/plan.json") if os.path.exists(path)]
        hidden += [name for name in os.environ if name.startswith("FAIRTRIAL_")]
        pids = [name for name in os.listdir("/proc") if name.isdecimal()]
        hidden += [pid for pid in pids if "pytest" in open(f"/proc/{pid}/cmdline").read()]
        print(int(sys.argv[1]) * 2 if not hidden else hidden)
        """
    assert judge_tool(tool).passed


def test_nothing_of_the_tree_is_where_the_oracle_runs(judge_tool: Judge) -> None:
    forced = "def pytest_collection_modifyitems(items):\n    items.clear()\n"
    verdict = judge_tool("print(5)", **{"test_hidden.py": "def test_a(): pass", "pytest.py": "", "helper.py": forced})
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)


def test_a_commands_input_output_and_status_pass_as_if_it_ran_here(judge_by_command: Judge) -> None:
    tool = """
        import sys
        sys.stdout.write(sys.stdin.read().upper())
        sys.stderr.write("complaint")
        sys.exit(3)
        """
    command = (
        'out=$(printf abc | "$FAIRTRIAL_CANDIDATE" python3 tool.py 2>/tmp/err); test $? = 3 || exit 1\n'
        f'test "$out" = ABC && test "$(cat /tmp/err)" = complaint && test ! -e /workspace && {PROVE}'
    )
    assert judge_by_command(tool, command).passed


def test_a_command_that_is_not_there_or_is_killed_says_so(judge_by_command: Judge) -> None:
    command = (
        '"$FAIRTRIAL_CANDIDATE" no-such-program; test $? = 127 || exit 1\n'
        f"\"$FAIRTRIAL_CANDIDATE\" sh -c 'kill -9 $$'; test $? = 137 && {PROVE}"
    )
    assert judge_by_command(SOLVED, command).passed


def test_a_candidate_that_ends_what_runs_it_does_not_answer_any_more(judge_by_command: Judge) -> None:
    command = f'"$FAIRTRIAL_CANDIDATE" python3 tool.py; "$FAIRTRIAL_CANDIDATE" true; test $? = 125 && {PROVE}'
    assert judge_by_command("import os; os.kill(os.getppid(), 9)", command).passed


def test_a_candidate_that_writes_without_end_reaches_the_oracle_with_a_part_of_it(judge_by_command: Judge) -> None:
    command = f'n=$("$FAIRTRIAL_CANDIDATE" python3 tool.py | wc -c); test "$n" = {16 << 20} && {PROVE}'
    assert judge_by_command("print('x' * (20 << 20))", command).passed


def test_a_candidate_that_never_ends_fails_in_time(judge_tool: Judge) -> None:
    verdict = judge_tool("while True: pass", limits=Limits(wall_s=4, grace_s=0.5))
    assert_failed(verdict)
    assert verdict.limit is Limit.WALL


def test_a_candidate_that_leaves_a_process_behind_keeps_nobody_waiting(judge_tool: Judge) -> None:
    verdict = judge_tool("import subprocess\nsubprocess.Popen(['setsid', 'sleep', '1000'])\n" + SOLVED)
    assert verdict.passed, verdict


@pytest.mark.root
def test_the_candidate_runs_under_another_uid_than_the_oracle(judge: Judge) -> None:
    mark = secrets.randbelow(10**9)
    hidden, tried = f"98.{mark}", f"97.{mark}"
    command = f'sleep {hidden} & "$FAIRTRIAL_CANDIDATE" sleep {tried}; kill %1; {PROVE}'
    oracle = replace(judge.oracle(command, {"a.sh": ""}), isolation=Isolation.PROCESS)
    with ThreadPoolExecutor(1) as judging:
        verdict = judging.submit(judge, oracle, judge.tree(BASE, {}))
        while not verdict.done() and not (uids_of(hidden) and uids_of(tried)):
            wait([verdict], timeout=0.05)
        seen = uids_of(hidden), uids_of(tried)
        for pid in pids_of(tried):
            os.kill(pid, signal.SIGTERM)
    assert verdict.result().passed, verdict.result()
    assert judge.slot.judge is not None
    assert seen == ({judge.slot.judge.uid}, {judge.slot.uid})
    assert 0 not in seen[0] | seen[1]


def pids_of(seconds: str) -> list[int]:
    """Processes that sleep for so long."""
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if is_sleep(path, seconds)]


def is_sleep(path: Path, seconds: str) -> bool:
    try:
        return path.read_bytes() == f"sleep\0{seconds}\0".encode()
    except OSError:
        return False


def uids_of(seconds: str) -> set[int]:
    return {Path(f"/proc/{pid}").stat().st_uid for pid in pids_of(seconds)}


def test_files_cannot_be_put_over_a_tree_that_is_elsewhere(judge: Judge) -> None:
    oracle = replace(judge.oracle("true", {"a": ""}, place=Place.WORKSPACE), isolation=Isolation.PROCESS)
    with pytest.raises(UsageError, match="oracle root"):
        judge(oracle, judge.tree(BASE, {}))
