"""What an agent leaves in its tree to find, shadow, move or replace an oracle's files, or to void its trial."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.errors import HostError, UsageError
from fairtrial.evidence.endings import EndingKind
from fairtrial.judging.run import judge_oracle, run_check
from fairtrial.judging.values import OracleSpec, OracleVerdict, Place, Runner
from fairtrial.model.sandbox import Bind, Limit, Limits

pytestmark = pytest.mark.needs("bwrap")

Judge = Callable[..., OracleVerdict]
Files = Mapping[str, str | Path | None]

PROVE = 'echo "$FAIRTRIAL_NONCE" >&"$FAIRTRIAL_PROOF_FD"'
BASE = {"tests/test_old.sh": "exit 0\n", "tool.sh": "exit 1\n"}


@pytest.fixture
def judge_by_script(judge: Judge) -> Judge:
    """Judge by a script of the oracle's that is placed in the tree and runs the tool of the tree."""

    def run(
        change: Files, hidden: str = ". /workspace/tool.sh; exit 7", target: str = "tests/hidden.sh"
    ) -> OracleVerdict:
        oracle = judge.oracle(f"sh {target} && {PROVE}", {target: hidden}, place=Place.WORKSPACE)
        return judge(oracle, judge.tree(BASE, change))

    return run


def assert_failed(verdict: OracleVerdict) -> None:
    assert not verdict.passed
    assert verdict.kind is EndingKind.ORACLE_FAILED, verdict
    assert verdict.reason


def test_a_file_of_the_oracles_name_is_replaced(judge_by_script: Judge) -> None:
    assert_failed(judge_by_script({"tests/hidden.sh": "exit 0\n"}))


@pytest.mark.parametrize(
    "link", ["../tool.sh", "/workspace/tool.sh", "/etc/passwd", "../../../../etc/passwd", "nowhere"]
)
def test_a_link_at_the_oracles_path_is_replaced_and_not_written_through(judge_by_script: Judge, link: str) -> None:
    assert_failed(judge_by_script({"tests/hidden.sh": Path(link), "tool.sh": "return 0\n"}))


@pytest.mark.parametrize("link", ["/tmp", ".", "..", "tool.sh", "/oracle"])
def test_a_link_in_place_of_the_directory_is_replaced(judge: Judge, link: str) -> None:
    oracle = judge.oracle(
        f"test ! -L deep && sh deep/hidden.sh && {PROVE}", {"deep/hidden.sh": "exit 0"}, place=Place.WORKSPACE
    )
    tree = judge.tree(BASE, {"deep": Path(link)})
    assert judge(oracle, tree).passed
    assert not (tree.merged / "hidden.sh").exists()


def test_a_link_out_of_the_tree_leads_no_byte_out_of_it(judge: Judge, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    oracle = judge.oracle(f"sh deep/hidden.sh && {PROVE}", {"deep/hidden.sh": "exit 0"}, place=Place.WORKSPACE)
    assert judge(oracle, judge.tree(BASE, {"deep": outside})).passed
    assert list(outside.iterdir()) == []


def test_a_directory_at_the_oracles_path_is_replaced(judge_by_script: Judge) -> None:
    assert_failed(judge_by_script({"tests/hidden.sh/inner/file": "x"}))


def test_an_oracles_file_cannot_be_written_removed_or_renamed(judge_by_script: Judge) -> None:
    tries = "(echo 'exit 0' >$it; rm -f $it; mv $it /tmp; chmod 777 $it) 2>/dev/null"
    verdict = judge_by_script({"tool.sh": f"it=/workspace/tests/hidden.sh\n{tries}\ngrep -q 'exit 7' $it || exit 0\n"})
    assert verdict.returncode == 7


def test_a_directory_that_is_moved_away_with_the_oracles_file_is_noticed(judge_by_script: Judge) -> None:
    tool = "mv tests aside && mkdir tests && echo 'exit 0' >tests/hidden.sh && exit 0\n"
    verdict = judge_by_script({"tool.sh": tool}, hidden=". /workspace/tool.sh; true")
    assert_failed(verdict)
    assert "changed" in verdict.reason


def test_the_oracle_root_cannot_be_written(judge: Judge) -> None:
    oracle = judge.oracle(
        f"! (echo x >/oracle/a.sh || rm /oracle/a.sh || touch /oracle/b) 2>/dev/null && {PROVE}", {"a.sh": "exit 1"}
    )
    assert judge(oracle, judge.tree(BASE, {})).passed


def test_no_file_of_the_oracle_is_there_while_the_authored_check_runs(judge: Judge) -> None:
    judge.oracle("true", {"hidden.sh": "secret-of-the-oracle"})
    tree = judge.tree(BASE, {})
    verdict = run_check(
        "test ! -e /oracle && ! grep -rq secret-of-the-oracle /workspace /tmp /run /home /etc /dev/shm 2>/dev/null",
        tree,
        judge.surroundings(),
        slot=judge.slot,
        enforcement=judge.enforcement,
        redact=str,
    )
    assert verdict.passed, verdict


def test_nothing_of_the_oracle_is_left_after_it_judged(judge: Judge) -> None:
    oracle = judge.oracle(f"{PROVE}", {"a.sh": "secret-of-the-oracle", "sub/b.sh": "secret-of-the-oracle"})
    before = set(judge.slot.root.iterdir())
    tree = judge.tree(BASE, {})
    assert judge(oracle, tree).passed
    assert set(judge.slot.root.iterdir()) == before | {tree.merged}


def test_a_lost_captured_file_is_no_evidence_against_the_arm(judge: Judge) -> None:
    oracle = judge.oracle("true", {"a.sh": "exit 0"})
    oracle.files[0].source.unlink()
    verdict = judge(oracle, judge.tree(BASE, {}))
    assert verdict.kind is EndingKind.ORACLE_UNAVAILABLE
    assert verdict.state is None


@pytest.mark.parametrize("text", ["exit 1", "exit", "exit 0 "])
def test_a_changed_captured_file_is_no_evidence_either(judge: Judge, text: str) -> None:
    oracle = judge.oracle("true", {"a.sh": "exit 0"})
    oracle.files[0].source.write_text(text)
    assert judge(oracle, judge.tree(BASE, {})).kind is EndingKind.ORACLE_UNAVAILABLE


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_a_captured_file_that_became_something_else_is_not_read(judge: Judge, kind: str) -> None:
    import os

    oracle = judge.oracle("true", {"a.sh": "exit 0"})
    source = oracle.files[0].source
    moved = source.rename(source.with_name("moved"))
    if kind == "link":
        source.symlink_to(moved)
    elif kind == "directory":
        source.mkdir()
    else:
        os.mkfifo(source)
    assert judge(oracle, judge.tree(BASE, {})).kind is EndingKind.ORACLE_UNAVAILABLE


@pytest.mark.parametrize("left", ["file", "link", "dangling link"])
def test_what_stands_where_a_dependency_is_mounted_neither_voids_nor_leads_out(judge: Judge, left: str) -> None:
    dependency = judge.slot.root / "dependency"
    dependency.mkdir(mode=0o755)
    (dependency / "there").touch()
    blocking: str | Path = "x" if left == "file" else Path("/etc") if left == "link" else Path("nowhere")
    tree = judge.tree(BASE, {"node_modules": blocking})
    oracle = judge.oracle(f"test -e node_modules/there && test ! -L node_modules && {PROVE}", {"a.sh": ""})
    around = replace(judge.surroundings(), binds=(Bind(source=dependency, target="/workspace/node_modules"),))
    verdict = judge_oracle(oracle, tree, around, slot=judge.slot, enforcement=judge.enforcement)
    assert verdict.passed, verdict


def test_forged_commands_of_installed_packages_are_not_judged(judge: Judge) -> None:
    oracle = judge.oracle(f"test ! -e node_modules/.bin/jest && test -e node_modules/kept && {PROVE}", {"a.sh": ""})
    verdict = judge(oracle, judge.tree(BASE, {"node_modules/.bin/jest": "#!/bin/sh\n", "node_modules/kept": ""}))
    assert verdict.passed, verdict
    assert verdict.restored == ("node_modules/.bin/jest",)


@pytest.mark.parametrize("target", ["../a", "/a", "a/../b", "a//b", ".", "", ".git/hooks/x", "a\\b", "a" * 241])
def test_a_target_that_could_lead_elsewhere_is_refused(judge: Judge, target: str) -> None:
    oracle = judge.oracle("true", {"a.sh": ""})
    bad = OracleSpec(command="true", files=(replace(oracle.files[0], target=target),))
    with pytest.raises(UsageError, match="target"):
        judge(bad, judge.tree(BASE, {}))


def test_a_target_below_another_one_is_refused(judge: Judge) -> None:
    oracle = judge.oracle("true", {"a": "", "a/b": "x"})
    with pytest.raises(UsageError, match="stands at or below"):
        judge(oracle, judge.tree(BASE, {}))


def test_a_fork_bomb_in_the_judge_ends_at_its_limit(judge: Judge) -> None:
    oracle = judge.oracle(f"sh tool.sh; wait; {PROVE}", {"a.sh": ""})
    bomb = "/usr/bin/python3 -c 'import os\nwhile True:\n try: os.fork()\n except OSError: pass'\n"
    verdict = judge(oracle, judge.tree(BASE, {"tool.sh": bomb}), Limits(wall_s=20, grace_s=0.5, processes=64))
    assert_failed(verdict)
    assert verdict.limit is Limit.PROCESSES


def test_an_authored_check_keeps_the_last_of_its_output_redacted(judge: Judge) -> None:
    verdict = run_check(
        "seq 1 5000; echo sk-secret; exit 4",
        judge.tree(BASE, {}),
        judge.surroundings(),
        slot=judge.slot,
        enforcement=judge.enforcement,
        redact=lambda text: text.replace("sk-secret", "[redacted]"),
    )
    assert verdict.kind is EndingKind.VERIFY_FAILED
    assert verdict.returncode == 4
    assert len(verdict.output) == 4000
    assert verdict.output.endswith("4999\n5000\n[redacted]\n")


def test_a_profile_that_the_agent_wrote_is_not_read(judge: Judge) -> None:
    tree = judge.tree(BASE, {".profile": "exit 0\n", ".bashrc": "exit 0\n", ".env": "exit 0\n"})
    around = judge.surroundings()
    around = replace(around, env={**around.env, "HOME": "/workspace"})
    verdict = run_check("exit 5", tree, around, slot=judge.slot, enforcement=judge.enforcement, redact=str)
    assert verdict.returncode == 5


def test_a_tree_that_is_not_there_is_our_own_fault(judge: Judge) -> None:
    oracle = judge.oracle("true", {"a.sh": ""}, place=Place.WORKSPACE)
    tree = judge.tree({**BASE, "conftest.py": "y"}, {"conftest.py": "x"})
    gone = replace(tree, merged=tree.merged / "gone")
    with pytest.raises(HostError, match="judged tree"):
        judge(oracle, gone)
    with pytest.raises(HostError, match="scratch"):
        judge(oracle, replace(gone, change=()))
    around = replace(judge.surroundings(), binds=(Bind(source=tree.merged, target="/workspace/d"),))
    with pytest.raises(HostError, match="judged tree"):
        run_check("true", gone, around, slot=judge.slot, enforcement=judge.enforcement, redact=str)


def test_an_oracle_whose_program_is_missing_is_no_evidence_against_the_arm(judge: Judge) -> None:
    oracle = judge.oracle("", {"a.rs": ""}, runner=Runner.CARGO)
    judge.env = {"PATH": "/opt/empty"}  # the machine may have cargo
    verdict = judge(oracle, judge.tree(BASE, {}))
    assert verdict.kind is EndingKind.INFRA_ERROR
    assert "not on PATH" in verdict.reason
