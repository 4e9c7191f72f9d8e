"""Cheats against an oracle's own command, which writes the run's nonce itself."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.evidence.endings import EndingKind
from fairtrial.judging.values import OracleVerdict, Proof
from fairtrial.model.sandbox import Limit, Limits, SandboxState

pytestmark = pytest.mark.needs("bwrap")

JudgeCommand = Callable[..., OracleVerdict]

PROVE = 'echo "$FAIRTRIAL_NONCE" >&"$FAIRTRIAL_PROOF_FD"'
RUN = f'/usr/bin/python3 "$FAIRTRIAL_ORACLE_ROOT/check.py" && {PROVE}'
CHECK = """
import subprocess
done = subprocess.run(["/usr/bin/python3", "/workspace/tool.py", "2"], capture_output=True, text=True, pass_fds=(4,))
assert done.stdout == "4\\n", done
"""
BASE = {"tool.py": "print(0)\n"}
SOLVED = "import sys\nprint(int(sys.argv[1]) * 2)\n"


@pytest.fixture
def judge_tool(judge: JudgeCommand) -> JudgeCommand:
    """Judge a tool by a command; the oracle drives it as a process, which even gets the proof's descriptor."""

    def run(tool: str, command: str = RUN, limits: Limits | None = None) -> OracleVerdict:
        oracle = judge.oracle(command, {"check.py": CHECK})
        return judge(oracle, judge.tree(BASE, {"tool.py": textwrap.dedent(tool)}), limits)

    return run


def assert_failed(verdict: OracleVerdict) -> None:
    assert not verdict.passed
    assert verdict.kind is EndingKind.ORACLE_FAILED, verdict
    assert verdict.reason


def test_an_honest_solution_passes(judge_tool: JudgeCommand) -> None:
    verdict = judge_tool(SOLVED)
    assert verdict.passed, verdict
    assert verdict.proof is Proof.PROVEN


def test_a_wrong_solution_fails(judge_tool: JudgeCommand) -> None:
    verdict = judge_tool("print(5)")
    assert_failed(verdict)
    assert verdict.returncode == 1


LEAVE = "import os\nos._exit(0)\n"
PLUGIN = {
    "e.dist-info": Path("e"),
    "e/METADATA": "Name: e\nVersion: 1\n",
    "e/entry_points.txt": "[pytest11]\ne = e_plugin\n",
}
OWN = "from tool import double\ndef test_double(): assert double(2) == 4\n"


@pytest.mark.parametrize(
    ("change", "restored"),
    [
        ({"sitecustomize/__init__.py": LEAVE}, "sitecustomize/__init__.py"),
        ({"usercustomize": Path("u"), "u/__init__.py": LEAVE}, "usercustomize"),
        ({**PLUGIN, "e_plugin.py": LEAVE}, "e.dist-info"),
    ],
    ids=["a package", "a package behind a link", "a plugin"],
)
def test_what_python_and_pytest_load_by_themselves_is_not_there_in_whatever_form(
    judge: JudgeCommand, change: dict[str, str | Path], restored: str
) -> None:
    command = f"export PYTHONPATH=.; python3 -m pytest -q $FAIRTRIAL_ORACLE_ROOT/test_own.py && {PROVE}"
    oracle = judge.oracle(command, {"test_own.py": OWN})
    base = {"tool.py": "def double(n): return n\n"}
    verdict = judge(oracle, judge.tree(base, change))
    assert_failed(verdict)
    assert verdict.restored == (restored,)
    solved = judge(oracle, judge.tree(base, {**change, "tool.py": "def double(n): return 2 * n\n"}))
    assert solved.passed, solved


@pytest.mark.needs("npm")
@pytest.mark.parametrize("settings", ["script-shell=/bin/true\n", "node-options=--require /workspace/leave.cjs\n"])
def test_settings_of_npms_that_keep_a_script_from_running_are_not_used(judge: JudgeCommand, settings: str) -> None:
    oracle = judge.oracle(f"npm test && {PROVE}", {"there.must.be.one": ""})
    base = {"package.json": '{"scripts": {"test": "node check.js"}}', "check.js": "process.exit(1);\n"}
    verdict = judge(oracle, judge.tree(base, {".npmrc": settings, "leave.cjs": "process.exit(0);\n"}))
    assert_failed(verdict)
    assert verdict.restored == (".npmrc",)


def test_a_status_of_0_without_proof_fails_and_says_so(judge_tool: JudgeCommand) -> None:
    verdict = judge_tool(SOLVED, command="true")
    assert_failed(verdict)
    assert verdict.proof is Proof.MISSING
    assert "did not prove that it finished" in verdict.reason


def test_a_candidate_that_is_sourced_and_exits_with_0_proves_nothing(judge_tool: JudgeCommand) -> None:
    assert_failed(judge_tool("exit 0", command=f". /workspace/tool.py && {PROVE}"))


def test_a_status_that_is_not_0_fails_in_spite_of_the_proof(judge_tool: JudgeCommand) -> None:
    verdict = judge_tool(SOLVED, command=f"{PROVE}; exit 3")
    assert_failed(verdict)
    assert verdict.proof is Proof.PROVEN
    assert verdict.returncode == 3


@pytest.mark.parametrize(
    "said", ["", "0" * 64, "$FAIRTRIAL_NONCE", "$FAIRTRIAL_NONCE $FAIRTRIAL_NONCE", "x$FAIRTRIAL_NONCE"]
)
def test_only_the_nonce_alone_is_proof(judge_tool: JudgeCommand, said: str) -> None:
    verdict = judge_tool(SOLVED, command=f'echo "{said}" >&4')
    assert verdict.passed == (said == "$FAIRTRIAL_NONCE")
    assert verdict.proof is (Proof.PROVEN if said == "$FAIRTRIAL_NONCE" else Proof.WRONG)


def test_a_forged_proof_on_the_right_descriptor_spoils_the_proof(judge_tool: JudgeCommand) -> None:
    verdict = judge_tool(f"import os\nos.write(4, b'{'0' * 64}')\n" + SOLVED)
    assert_failed(verdict)
    assert verdict.proof is Proof.WRONG


def test_the_candidate_finds_no_nonce_in_its_environment(judge_tool: JudgeCommand) -> None:
    tool = """
        import os
        known = {name: value for name, value in os.environ.items() if name.startswith("FAIRTRIAL_")}
        print(4 if known == {"FAIRTRIAL_ORACLE_ROOT": "/oracle", "FAIRTRIAL_PROOF_FD": "4"} else known)
        """
    assert judge_tool(tool).passed


def test_the_candidate_cannot_look_into_the_shell_that_has_the_nonce(judge_tool: JudgeCommand) -> None:
    tool = """
        import ctypes, os
        found = []
        for pid in [name for name in os.listdir("/proc") if name.isdecimal() and int(name) > 1]:
            if open(f"/proc/{pid}/comm").read() != "sh\\n":
                continue
            for name in ("environ", "mem", "fd", "fd/3", "fd/4", "maps"):
                try:
                    os.listdir(f"/proc/{pid}/fd") if name == "fd" else open(f"/proc/{pid}/{name}", "rb").close()
                except PermissionError:
                    continue
                except OSError as problem:
                    found.append(str(problem))
                found.append(name)
            if ctypes.CDLL(None).ptrace(16, int(pid), 0, 0) == 0:
                found.append("ptrace")
            found.append(f"sh {pid}")
        print(4 if len(found) == 1 else found)
        """
    assert judge_tool(tool).passed


def test_the_candidate_cannot_read_the_shell_itself_either(judge_tool: JudgeCommand) -> None:
    # Were it readable, the kernel would let others read the process.
    tool = """
        import os
        try:
            os.chmod("/fairtrial/sh", 0o755)
        except OSError:
            print(4 if not os.access("/fairtrial/sh", os.R_OK) else 0)
        """
    assert judge_tool(tool).passed


def test_an_oracle_that_writes_without_end_ends_at_its_limit(judge_tool: JudgeCommand) -> None:
    verdict = judge_tool(SOLVED, command="yes", limits=Limits(wall_s=60, grace_s=0.5, output_bytes=4 << 20))
    assert_failed(verdict)
    assert (verdict.state, verdict.limit) == (SandboxState.LIMIT, Limit.OUTPUT)


def test_proof_without_end_ends_at_the_time_limit(judge_tool: JudgeCommand) -> None:
    verdict = judge_tool(SOLVED, command="yes >&4", limits=Limits(wall_s=2, grace_s=0.5))
    assert_failed(verdict)
    assert verdict.limit is Limit.WALL


def test_an_oracle_that_ignores_the_request_to_end_is_killed(judge_tool: JudgeCommand) -> None:
    verdict = judge_tool(SOLVED, command="trap '' TERM; while :; do :; done", limits=Limits(wall_s=8, grace_s=0.5))
    assert_failed(verdict)
    assert verdict.state is SandboxState.FORCED_KILL


def test_an_oracle_has_no_network(judge_tool: JudgeCommand) -> None:
    interfaces = "$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ')"
    assert judge_tool(SOLVED, command=f'test "{interfaces}" = lo && {PROVE}').passed
