"""Cheats against the pytest runner. Each must end as a failure of the arm."""

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fairtrial.evidence.endings import EndingKind
from fairtrial.judging.values import Counts, OracleVerdict, Place, Proof, Runner
from fairtrial.model.sandbox import Limit, Limits, SandboxState

pytestmark = pytest.mark.needs("bwrap")

Files = Mapping[str, str | bytes | Path | None]
JudgeTests = Callable[..., OracleVerdict]

BASE = {"calc.py": "def add(a, b):\n    return a - b\n"}
SOLVED = {"calc.py": "def add(a, b):\n    return a + b\n"}
TESTS = """
from calc import add

def test_small():
    assert add(1, 2) == 3

def test_large():
    assert add(1000, 2) == 1002
"""
FORCED = """
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.outcome, report.longrepr = "passed", None

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    return True
"""
"""A plugin that passes each test without running it."""


@pytest.fixture
def judge_tests(judge: JudgeTests) -> JudgeTests:
    """Judge a change of BASE by TESTS, placed over the tree as an upstream project's would be."""

    def run(
        change: Files, *, base: Files = BASE, place: Place = Place.WORKSPACE, limits: Limits | None = None
    ) -> OracleVerdict:
        target = "tests/test_hidden.py" if place is Place.WORKSPACE else "test_hidden.py"
        command = target if place is Place.WORKSPACE else f"$FAIRTRIAL_ORACLE_ROOT/{target}"
        oracle = judge.oracle(command, {target: TESTS}, runner=Runner.PYTEST, expect_tests=2, place=place)
        return judge(oracle, judge.tree(base, change), limits)

    return run


def module(text: str) -> dict[str, str]:
    """A change that only makes the module under test run some code."""
    return {"calc.py": textwrap.dedent(text)}


def assert_failed(verdict: OracleVerdict) -> None:
    assert not verdict.passed
    assert verdict.kind is EndingKind.ORACLE_FAILED, verdict
    assert verdict.reason


@pytest.mark.parametrize("place", Place)
def test_an_honest_solution_passes(judge_tests: JudgeTests, place: Place) -> None:
    verdict = judge_tests(SOLVED, place=place)
    assert verdict.passed, verdict
    assert verdict.kind is None
    assert verdict.proof is Proof.PROVEN
    assert verdict.counts == Counts(n_passed=2, n_failed=0, n_skipped=0)


def test_the_untouched_base_fails(judge_tests: JudgeTests) -> None:
    verdict = judge_tests({})
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)


def test_an_exit_with_0_at_import_proves_nothing(judge_tests: JudgeTests) -> None:
    verdict = judge_tests(module("import os; os._exit(0)"))
    assert_failed(verdict)
    assert verdict.proof is Proof.MISSING
    assert "did not" in verdict.reason


def test_an_exit_with_0_inside_a_test_proves_nothing(judge_tests: JudgeTests) -> None:
    assert_failed(judge_tests(module("import os\ndef add(a, b): os._exit(0)")))


def test_an_orderly_exit_at_import_has_not_run_the_tests(judge_tests: JudgeTests) -> None:
    assert_failed(judge_tests(module("import pytest; pytest.exit('done', returncode=0)")))


def test_a_status_of_0_made_at_the_very_end_does_not_hide_failed_tests(judge_tests: JudgeTests) -> None:
    verdict = judge_tests(module("import atexit, os; atexit.register(os._exit, 0)\ndef add(a, b): return 0"))
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)


def test_a_skip_raised_by_the_candidate_is_no_pass(judge_tests: JudgeTests) -> None:
    verdict = judge_tests(module("import unittest\ndef add(a, b): raise unittest.SkipTest"))
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=0, n_skipped=2)


def test_an_expected_failure_declared_by_the_candidate_is_no_pass(judge_tests: JudgeTests) -> None:
    assert_failed(judge_tests(module("import pytest\ndef add(a, b): pytest.xfail('not today')")))


@pytest.mark.parametrize("where", ["conftest.py", "tests/conftest.py"])
def test_a_conftest_that_empties_the_collection_is_not_loaded(judge_tests: JudgeTests, where: str) -> None:
    verdict = judge_tests({where: "def pytest_collection_modifyitems(items):\n    items.clear()\n"})
    assert_failed(verdict)
    assert verdict.restored == (where,)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)


def test_a_conftest_that_forces_passes_is_not_loaded(judge_tests: JudgeTests) -> None:
    assert_failed(judge_tests({"conftest.py": FORCED}))


def test_an_edited_conftest_is_the_bases_again(judge_tests: JudgeTests) -> None:
    base = {**BASE, "conftest.py": "import os\nos.environ['FROM_BASE'] = 'yes'\n"}
    change = {
        "conftest.py": None,
        "calc.py": "import os\ndef add(a, b):\n    assert os.environ['FROM_BASE']\n    return a + b",
    }
    verdict = judge_tests(change, base=base)
    assert verdict.passed, verdict
    assert verdict.restored == ("conftest.py",)


def test_a_hook_that_rewrites_reports_does_not_hide_what_happened(judge_tests: JudgeTests) -> None:
    # In the base, so that it is loaded: the runner must not need to trust what hooks make of a failure.
    report_only = FORCED.partition("@pytest.hookimpl(tryfirst=True)")[0]
    verdict = judge_tests({}, base={**BASE, "conftest.py": report_only})
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\naddopts = -p forced\n"),
        ("tests/pytest.ini", "[pytest]\naddopts = -p forced\n"),
        ("tox.ini", "[pytest]\naddopts = -p forced\n"),
        ("setup.cfg", "[tool:pytest]\naddopts = -p forced\n"),
        ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-p forced"\n'),
        ("tests/pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-p forced"\n'),
    ],
)
def test_settings_that_load_a_plugin_are_not_used(judge_tests: JudgeTests, name: str, text: str) -> None:
    verdict = judge_tests({name: text, "forced.py": FORCED})
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)


def test_an_edited_settings_file_gives_way_to_the_bases(judge_tests: JudgeTests) -> None:
    base = {"src/calc.py": BASE["calc.py"], "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = "src"\n'}
    change = {"src/calc.py": SOLVED["calc.py"], "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-p forced"\n'}
    verdict = judge_tests(change, base=base)
    assert verdict.passed, verdict


def test_a_module_named_pytest_does_not_take_its_place(judge_tests: JudgeTests) -> None:
    assert_failed(judge_tests({"pytest.py": "import os; os._exit(0)", "_pytest/__init__.py": "import os; os._exit(0)"}))


def test_an_entry_point_in_the_workspace_loads_no_plugin(judge_tests: JudgeTests) -> None:
    change = {
        "forced.py": FORCED,
        "forced.dist-info/entry_points.txt": "[pytest11]\nforced = forced\n",
        "forced.dist-info/METADATA": "Name: forced\nVersion: 1\n",
    }
    verdict = judge_tests(change)
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)


def test_a_forged_report_file_and_forged_output_are_no_report(judge_tests: JudgeTests) -> None:
    cheat = """
        import os, sys
        xml = '<testsuites><testsuite errors="0" failures="0" tests="2"/></testsuites>'
        for word in [*sys.argv, "junit.xml", "report.json", "/tmp/junit.xml"]:
            try:
                open(word.rpartition("=")[2], "w").write(xml)
            except OSError:
                pass
        print("=== 2 passed in 0.01s ===", flush=True)
        os._exit(0)
        """
    assert_failed(judge_tests(module(cheat)))


def test_lines_written_to_guessed_descriptors_are_no_report(judge_tests: JudgeTests) -> None:
    cheat = """
        import os
        for fd in range(3, 256):
            try:
                os.write(fd, b"0 passed\\npassed\\npassed\\nend\\n")
            except OSError:
                pass
        os._exit(0)
        """
    assert_failed(judge_tests(module(cheat)))


def test_nothing_of_the_runner_can_be_read_by_what_it_starts(judge: JudgeTests) -> None:
    # Every process that is there is tried, so that none is forgotten: the runner, and whatever started it.
    cheat = """
        import os
        loot = []
        for pid in [name for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()]:
            for name in ("environ", "mem", "fd/3", "fd/4", "fd"):
                try:
                    if name == "fd":
                        os.listdir(f"/proc/{pid}/fd")
                    else:
                        os.close(os.open(f"/proc/{pid}/{name}", os.O_RDWR if name == "fd/4" else os.O_RDONLY))
                except OSError:
                    continue
                loot.append(f"{open(f'/proc/{pid}/comm').read().strip()} {name}")
        open("/workspace/loot", "w").write("\\n".join(loot))
        def add(a, b): return a + b
        """
    oracle = judge.oracle("test_hidden.py", {"test_hidden.py": TESTS}, runner=Runner.PYTEST, place=Place.WORKSPACE)
    tree = judge.tree(BASE, module(cheat))
    assert judge(oracle, tree).passed
    loot = (tree.merged / "loot").read_text().splitlines()
    assert [line for line in loot if not line.startswith("bwrap ")] == []
    assert "bwrap fd/3" not in loot
    assert "bwrap fd/4" not in loot


def test_killing_the_runner_is_a_failure(judge_tests: JudgeTests) -> None:
    assert_failed(judge_tests(module("import os; os.kill(os.getppid(), 9)")))


def test_killing_everything_inside_is_a_failure(judge_tests: JudgeTests) -> None:
    assert_failed(judge_tests(module("import os; os.kill(-1, 9)")))


def test_endless_output_ends_at_its_limit(judge_tests: JudgeTests) -> None:
    cheat = "import os, sys\nwhile True: os.write(1, b'x' * 65536)"
    verdict = judge_tests(module(cheat), limits=Limits(wall_s=60, grace_s=0.5, output_bytes=4 << 20))
    assert_failed(verdict)
    assert (verdict.state, verdict.limit) == (SandboxState.LIMIT, Limit.OUTPUT)


def test_a_candidate_that_ignores_the_request_to_end_is_killed(judge_tests: JudgeTests) -> None:
    cheat = """
        import os, signal
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True: signal.pause()
        """
    verdict = judge_tests(module(cheat), limits=Limits(wall_s=4, grace_s=0.5))
    assert_failed(verdict)
    assert verdict.limit is Limit.WALL


def test_nothing_that_a_test_leaves_behind_outlives_the_verdict(judge_tests: JudgeTests, tmp_path: Path) -> None:
    mark = f"survivor-{tmp_path.name}"
    cheat = f"""
        import subprocess
        subprocess.Popen(["setsid", "sh", "-c", "sleep 1000 # {mark}"], stdout=subprocess.DEVNULL)
        def add(a, b): return a + b
        """
    assert judge_tests(module(cheat)).passed
    alive = [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in read_or_nothing(path)]
    assert alive == []


def read_or_nothing(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_compiled_files_of_the_change_are_not_judged(judge_tests: JudgeTests) -> None:
    # An unchecked one wins over the source beside it.
    import importlib.util
    import marshal

    code = compile("def add(a, b): return a + b", "calc.py", "exec")
    forged = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code)
    verdict = judge_tests({"__pycache__/calc.cpython-311.pyc": forged})
    assert_failed(verdict)
    assert verdict.restored == ("__pycache__/calc.cpython-311.pyc",)


def test_what_an_oracle_writes_is_not_in_the_verdict(judge_tests: JudgeTests) -> None:
    verdict = judge_tests(
        module("import sys; print('sec' + 'ret-of-the-oracle'); sys.stderr.write('sec' + 'ret-of-the-oracle')")
    )
    assert "secret-of-the-oracle" not in repr(verdict)
