"""`payload/gitnexus_index.py` with a GitNexus that a test makes as good or as bad as it likes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from fairtrial.payload import __path__ as payload_path

SCRIPT: Final = Path(payload_path[0]) / "gitnexus_index.py"
PROGRAM: Final = """
import json, os, pathlib, subprocess, sys
index, said = pathlib.Path(os.environ["INDEX"]), json.loads(pathlib.Path(os.environ["SAID"]).read_text())
if sys.argv[1] == "analyze":
    print("Analyzing")
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    metadata = {"indexedAt": "now", "lastCommit": head, "pdg": {"a": 1}, "branch": "main", **said}
    if said.get("large"):
        metadata["more"] = "x" * (2 << 20)
    for name in ("gitnexus.json", "meta.json"):
        (index / name).write_text(json.dumps(metadata))
    (index / "lbug").write_text("graph")
    (index / "parse-cache").mkdir()
    (index / "parse-cache" / "x").write_text("x")
    (index / "run.cjs").write_text("x")
elif sys.argv[1] == "cypher":
    with open(index / "asked", "a") as file:
        file.write(sys.argv[2] + chr(10))
    print(said[1] if "-[e]-" in sys.argv[2] else said[0])
else:
    print(sys.argv[1:], pathlib.Path(os.environ["HOME"], ".gitnexus", "registry.json").read_text())
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def index(tmp_path: Path) -> Path:
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


@pytest.fixture
def run(tmp_path: Path, index: Path) -> Run:
    """Run it in a repository with one commit; `said` is what the program says besides, `markers` are for a proof."""
    tree, home = tmp_path / "tree", tmp_path / "home"
    for directory in (tree, home):
        directory.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "INDEX": str(index), "GIT_CONFIG_NOSYSTEM": "1"}
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main")
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x")):
        subprocess.run([*git, *words], cwd=tree, env=env, check=True)
    (tmp_path / "program.py").write_text(PROGRAM)

    def call(word: str, *markers: str, said: object = None) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-I", "-S", SCRIPT, word, index, sys.executable, tmp_path / "program.py"]
        (tmp_path / "said").write_text(json.dumps({} if said is None else said))
        return subprocess.run(
            [*command, *(("--", *markers) if markers else ())],
            cwd=tree,
            env={**env, "SAID": str(tmp_path / "said")},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


pytestmark = pytest.mark.needs("git")


def test_a_build_leaves_the_database_and_its_metadata_and_nothing_else(run: Run, index: Path) -> None:
    done = run("build")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert sorted(path.name for path in index.iterdir()) == ["gitnexus.json", "lbug", "meta.json"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"lastCommit": "f" * 40}, "it is an index of ffff"),
        ({"lastCommit": ""}, "gitnexus.json: no lastCommit"),
        ({"indexedAt": None}, "gitnexus.json: no indexedAt"),
        ({"pdg": {}}, "it has no dependence graph"),
        ({"pdg": True}, "it has no dependence graph"),
        ({"large": True}, "gitnexus.json: more than 2097152 bytes"),
    ],
)
def test_metadata_that_are_not_of_this_tree_are_refused(run: Run, said: dict[str, Any], why: str) -> None:
    done = run("build", said=said)
    assert done.returncode == 1
    assert why in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("nothing", ["[]", '{"markdown": "", "row_count": 0}'])
def test_a_proof_asks_once_for_nodes_and_once_for_relations_and_says_nothing_where_none_is(
    run: Run, index: Path, nothing: str
) -> None:
    assert run("build").returncode == 0
    done = run("prove", "hidden/it's", "b\\c", said=[nothing, nothing])
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    condition = r"CAST(e AS STRING) CONTAINS 'hidden/it\'s' OR CAST(e AS STRING) CONTAINS 'b\\c'"
    ends = f"WHERE {condition} RETURN CAST(e AS STRING) AS entity LIMIT 10000"
    assert (index / "asked").read_text().splitlines() == [f"MATCH (e) {ends}", f"MATCH ()-[e]->() {ends}"]


def table(*rows: str) -> str:
    """An answer as GitNexus writes it."""
    return json.dumps({"markdown": "\n".join(["| entity |", "| --- |", *rows]), "row_count": len(rows)})


@pytest.mark.parametrize("place", [0, 1])
def test_what_a_proof_finds_is_printed(run: Run, place: int) -> None:
    assert run("build").returncode == 0
    answers = ["[]", "[]"]
    answers[place] = table("| {text: import tests, run} |", "| {text: unittests} |", "| {path: a/tests/b.py} |")
    done = run("prove", "m", "tests", said=answers)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["| {text: import tests, run} |", "| {path: a/tests/b.py} |"]


def test_a_name_within_a_longer_word_is_not_found(run: Run) -> None:
    assert run("build").returncode == 0
    within = table("| {name: run_unittests, text: import testsuite} |", "| {text: x.bak} |")
    done = run("prove", "tests", "ests", "x.b", said=[within, within])
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_more_than_can_be_looked_at_proves_nothing(run: Run) -> None:
    assert run("build").returncode == 0
    done = run("prove", "tests", said=["[]", table(*["| unittests |"] * 10_000)])
    assert (done.returncode, done.stdout) == (1, "")
    assert "10000 entities or more hold a hidden name" in done.stderr
    assert run("prove", "tests", said=["[]", table(*["| unittests |"] * 9_999)]).returncode == 0


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('{"error": "no table"}', "no answer to a query"),
        ('{"error": "no table", "row_count": 0}', "no answer to a query"),
        ('{"row_count": false}', "no answer to a query"),
        ('{"markdown": "| entity |\\n| --- |", "row_count": 1}', "no answer to a query"),
        ('{"markdown": "| entity |\\n| --- |\\n| x |", "row_count": 0}', "no answer to a query"),
        ('{"markdown": "| other |\\n| --- |\\n| x |", "row_count": 1}', "no answer to a query"),
        ('[{"entity": "x"}]', "no answer to a query"),
        ('{"row_count": 1, "row_count": 0}', "a key is there twice"),
        ("NaN", "NaN is no JSON"),
        ("", "no JSON"),
    ],
)
def test_what_is_no_answer_proves_nothing(run: Run, answer: str, why: str) -> None:
    assert run("build").returncode == 0
    done = run("prove", "m", said=[answer, "[]"])
    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr


def test_the_server_is_started_on_a_registry_with_this_index_alone(run: Run, index: Path, tmp_path: Path) -> None:
    assert run("build").returncode == 0
    done = run("serve")
    assert done.stdout.startswith("['mcp'] "), done.stderr
    (entry,) = json.loads(done.stdout.removeprefix("['mcp'] "))
    assert entry.pop("lastCommit")
    place = {"path": str(tmp_path / "tree"), "storagePath": str(index)}
    assert entry == {"name": "benchmark-target", "indexedAt": "now", "branch": "main", **place}
    registry = tmp_path / "home" / ".gitnexus" / "registry.json"
    assert [path.stat().st_mode & 0o777 for path in (registry.parent, registry)] == [0o700, 0o600]


@pytest.mark.parametrize(
    "arguments", [(), ("build", "i"), ("prove", "i", "c"), ("serve", "i", "c", "--", "m"), ("x", "i", "c")]
)
def test_wrong_usage_is_said(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-I", "-S", SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, "usage" in done.stderr) == (2, True)
