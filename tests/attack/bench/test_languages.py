"""Each shipped runner through whole trials: honest work passes, an early exit and forged words do not."""

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.mark.structures import ParameterSet

pytestmark = [pytest.mark.needs("bwrap", "git"), pytest.mark.timeout(600)]

RunTrial = Callable[..., dict[str, Any]]
OWN_GO: Final = Path("/usr/local/go")
"""Where Go's own archive is unpacked, if not Debian's package has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A function that is wrong, its hidden tests, and what an agent could do about them.

    Attributes:
        runner: The runner.
        command: Its arguments.
        base: The tree.
        module: The file to mend.
        solved: That file, right.
        target: The oracle's file, placed over the tree.
        tests: Its two tests.
        cheats: That file again, by how it cheats.
        toolchain: Directory of the host that has its tools; None for /usr.
    """

    runner: str
    command: str
    base: Mapping[str, str]
    module: str
    solved: str
    target: str
    tests: str
    cheats: Mapping[str, str]
    toolchain: Path | None = None


UNITTEST: Final = Language(
    runner="unittest",
    command="tests.test_hidden",
    base={"calc.py": "def add(a, b):\n    return a - b\n", "tests/__init__.py": ""},
    module="calc.py",
    solved="def add(a, b):\n    return a + b\n",
    target="tests/test_hidden.py",
    tests="""
import unittest
from calc import add

class Hidden(unittest.TestCase):
    def test_small(self):
        self.assertEqual(add(1, 2), 3)
    def test_large(self):
        self.assertEqual(add(1000, 2), 1002)
""",
    cheats={
        "exit at import": "import os\nos._exit(0)\n",
        "exit inside": "import os\ndef add(a, b): os._exit(0)\n",
        "forged words": "import os\nos.write(2, b'..\\n\\nRan 2 tests in 0.000s\\n\\nOK\\n')\nos._exit(0)\n",
        "skip": "import unittest\ndef add(a, b): raise unittest.SkipTest\n",
    },
)
NODE: Final = Language(
    runner="node",
    command="tests/hidden.test.mjs",
    base={"calc.mjs": "export const add = (a, b) => a - b;\n"},
    module="calc.mjs",
    solved="export const add = (a, b) => a + b;\n",
    target="tests/hidden.test.mjs",
    tests="""
import test from "node:test";
import assert from "node:assert";
import { add } from "../calc.mjs";

test("small", () => assert.equal(add(1, 2), 3));
test("large", () => assert.equal(add(1000, 2), 1002));
""",
    cheats={
        "exit at import": "process.exit(0);\nexport const add = 0;\n",
        "exit inside": "export const add = () => process.exit(0);\n",
        "forged words": "import fs from 'node:fs';\n"
        "fs.writeSync(1, 'TAP version 13\\nok 1 - small\\nok 2 - large\\n1..2\\n');\n"
        "process.exit(0);\nexport const add = 0;\n",
    },
)
GO: Final = Language(
    runner="go",
    command="./...",
    base={
        "go.mod": "module example.org/calc\n\ngo 1.20\n",
        "calc.go": "package calc\n\nfunc Add(a, b int) int { return a - b }\n",
    },
    module="calc.go",
    solved="package calc\n\nfunc Add(a, b int) int { return a + b }\n",
    target="hidden_test.go",
    tests="""package calc

import "testing"

func TestSmall(t *testing.T) {
	if Add(1, 2) != 3 { t.Fatal() }
}

func TestLarge(t *testing.T) {
	if Add(1000, 2) != 1002 { t.Fatal() }
}
""",
    cheats={},  # a trial of Go compiles its library first: the cheats stand in test_judging_runners, with that cached
    toolchain=OWN_GO if OWN_GO.exists() else None,
)
CARGO: Final = Language(
    runner="cargo",
    command="",
    base={
        "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/lib.rs": "pub fn add(a: i64, b: i64) -> i64 { a - b }\n",
    },
    module="src/lib.rs",
    solved="pub fn add(a: i64, b: i64) -> i64 { a + b }\n",
    target="tests/hidden.rs",
    tests="""
#[test]
fn small() { assert_eq!(calc::add(1, 2), 3); }

#[test]
fn large() { assert_eq!(calc::add(1000, 2), 1002); }
""",
    cheats={"exit inside": "pub fn add(_: i64, _: i64) -> i64 { std::process::exit(0) }\n"},
)
LANGUAGES: Final = {language.runner: language for language in (UNITTEST, NODE, GO, CARGO)}


PROVE: Final = 'echo "$FAIRTRIAL_NONCE" >&"$FAIRTRIAL_PROOF_FD"'
CHECKER: Final = "node_modules/.bin/check"
LINKED: Final = "node_modules/check/run.sh"
FORGED: Final = "rm {0}; printf '#!/bin/sh\\nexit 0\\n' >{0}; chmod +x {0}"
MENDED: Final = "sed -i 's/a - b/a + b/' calc.mjs"


def tried(runner: str, *more: str) -> ParameterSet:
    """The language by its runner's name, where its tool is there; unittest is the system's Python's."""
    return pytest.param(runner, *more, marks=() if runner == "unittest" else pytest.mark.needs(runner))


CHEATS: Final = [tried(runner, cheat) for runner, language in LANGUAGES.items() for cheat in language.cheats]


def commit(repository: Path, files: Mapping[str, str], *, program: str | None = None) -> None:
    """Make a repository of one commit, with a program as it is installed: behind a link, or in that place itself."""
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    if program is not None:
        (repository / program).chmod(0o755)
        if program == LINKED:
            (repository / CHECKER).parent.mkdir()
            (repository / CHECKER).symlink_to("../check/run.sh")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-q", "-m", "base")):
        subprocess.run(["git", *words], cwd=repository, env=env, check=True)


@pytest.fixture
def solve(trial: RunTrial, world: Path) -> RunTrial:
    """Run a trial in which the agent leaves the module as it is told."""

    def run(language: Language, module: str) -> dict[str, Any]:
        commit(world / language.runner, language.base)
        (world / "hidden").write_text(language.tests)
        oracle = {
            "runner": language.runner,
            "command": language.command or "--quiet",
            "expect_tests": 2,
            "files": [{"source": "hidden", "target": language.target, "into": "workspace"}],
        }
        more = {} if language.toolchain is None else {"toolchains": [str(language.toolchain)]}
        cheat = f"cat >{language.module} <<'END_OF_MODULE'\n{module}END_OF_MODULE\n"
        return trial(
            agent="nop",
            cheat=cheat,
            repo=language.runner,
            verify="true",
            oracle=oracle,
            reference=None,
            timeout_s=400,
            **more,
        )

    return run


@pytest.mark.parametrize("runner", [tried(runner) for runner in LANGUAGES])
def test_honest_work_passes(solve: RunTrial, runner: str) -> None:
    row = solve(LANGUAGES[runner], LANGUAGES[runner].solved)
    assert (row["resolved"], row["error_kind"]) == (True, None), row["error_detail"]
    assert row["oracle_counts"] == {"n_passed": 2, "n_failed": 0, "n_skipped": 0}


@pytest.mark.parametrize("runner", [tried(runner) for runner in LANGUAGES if runner != "go"])
def test_the_base_fails(solve: RunTrial, runner: str) -> None:
    language = LANGUAGES[runner]
    row = solve(language, language.base[language.module])
    assert (row["resolved"], row["error_kind"]) == (False, "oracle-failed"), row["error_detail"]


@pytest.mark.parametrize(("runner", "cheat"), CHEATS)
def test_a_cheat_is_the_arms_failure(solve: RunTrial, runner: str, cheat: str) -> None:
    row = solve(LANGUAGES[runner], LANGUAGES[runner].cheats[cheat])
    assert (row["resolved"], row["error_kind"]) == (False, "oracle-failed"), row["error_detail"]


@pytest.mark.parametrize(
    ("checker", "program"),
    [(CHECKER, CHECKER), (CHECKER, LINKED), (".venv/bin/check", ".venv/bin/check")],
    ids=["a file", "a link", "of a virtual environment"],
)
@pytest.mark.parametrize(
    ("work", "ending"), [(FORGED, "oracle-failed"), (f"{FORGED}; {MENDED}", None)], ids=["forged", "honest too"]
)
def test_an_oracle_runs_the_commands_of_installed_packages_as_the_base_has_them(
    trial: RunTrial, world: Path, checker: str, program: str, work: str, ending: str | None
) -> None:
    commit(world / "vendored", {**NODE.base, program: "#!/bin/sh\ngrep -q 'a + b' calc.mjs\n"}, program=program)
    oracle = {
        "command": f"{checker} && {PROVE}",
        "files": [{"source": "test_hidden.py", "target": "there.must.be.one"}],
    }
    row = trial(agent="nop", cheat=work.format(checker), repo="vendored", verify="true", oracle=oracle, reference=None)
    assert (row["resolved"], row["error_kind"]) == (ending is None, ending), row["error_detail"]
    assert row["oracle_restored"] == [checker]
    assert row["auto_loaded"] == [checker]
