"""The same cheats against each of the other shipped runners. Each must end as a failure of the arm."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from fairtrial.evidence.endings import EndingKind
from fairtrial.judging.values import Counts, OracleVerdict, Place, Runner
from fairtrial.model.sandbox import Access, Bind

pytestmark = [pytest.mark.needs("bwrap"), pytest.mark.timeout(600)]

JudgeChange = Callable[..., OracleVerdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """How two tests of one function look with one runner.

    Attributes:
        runner: The runner.
        command: Its arguments.
        base: A tree whose function is wrong.
        module: The file that the function stands in.
        solved: That file, right.
        target: The oracle's file.
        tests: Its two tests.
        exit_at_import: The module, ending the process with 0 as soon as it is loaded; None where nothing runs then.
        exit_inside: The module, ending it so when the function is called.
        forged: The module, likewise after printing what the tool prints of passed tests; None where that is believed.
        skipping: The module, whose function makes the test that calls it skip; None where it cannot.
    """

    runner: Runner
    command: str
    base: Mapping[str, str]
    module: str
    solved: str
    target: str
    tests: str
    exit_at_import: str | None
    exit_inside: str
    forged: str | None
    skipping: str | None = None


UNITTEST = Language(
    runner=Runner.UNITTEST,
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
    exit_at_import="import os; os._exit(0)",
    exit_inside="import os\ndef add(a, b): os._exit(0)",
    forged="import os; os.write(2, b'..\\n\\nRan 2 tests in 0.000s\\n\\nOK\\n'); os._exit(0)",
    skipping="import unittest\ndef add(a, b): raise unittest.SkipTest",
)
NODE = Language(
    runner=Runner.NODE,
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
    exit_at_import="process.exit(0);\nexport const add = 0;\n",
    exit_inside="export const add = () => process.exit(0);\n",
    forged="import fs from 'node:fs';\nfs.writeSync(1, 'TAP version 13\\nok 1 - small\\nok 2 - large\\n1..2\\n');\n"
    "process.exit(0);\nexport const add = 0;\n",
)
GO = Language(
    runner=Runner.GO,
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
    exit_at_import='package calc\n\nimport "os"\n\nfunc init() { os.Exit(0) }\n\nfunc Add(a, b int) int { return 0 }\n',
    exit_inside='package calc\n\nimport "os"\n\nfunc Add(a, b int) int { os.Exit(0); return 0 }\n',
    forged='package calc\n\nimport ("fmt"; "os")\n\n'
    'func init() {\n\tfmt.Println("PASS\\nok  \\texample.org/calc\\t0.001s")\n\tos.Exit(0)\n}\n\n'
    "func Add(a, b int) int { return 0 }\n",
)
CARGO = Language(
    runner=Runner.CARGO,
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
    exit_at_import=None,
    exit_inside="pub fn add(_: i64, _: i64) -> i64 { std::process::exit(0) }\n",
    forged=None,
)
LANGUAGES = (UNITTEST, NODE, GO, CARGO)


def tried(language: Language) -> ParameterSet:
    """The language for a fixture, where its tool is there; unittest is the system's Python's."""
    name = str(language.runner)
    marks = () if language.runner is Runner.UNITTEST else pytest.mark.needs(name)
    return pytest.param(language, id=name, marks=marks)


@pytest.fixture(params=map(tried, LANGUAGES))
def language(request: pytest.FixtureRequest, judge: JudgeChange) -> Language:
    """A language with what its tools need besides."""
    chosen: Language = request.param
    if chosen.runner is Runner.GO:
        cache = request.getfixturevalue("go_cache")
        judge.binds += (Bind(source=cache, target="/go-cache", access=Access.READ_WRITE),)
        judge.env["GOCACHE"] = "/go-cache"
    return chosen


@pytest.fixture(scope="module")
def go_cache() -> Iterator[Path]:
    """What Go has compiled of its own library, since that takes longer than all tests together."""
    root = Path(tempfile.mkdtemp(prefix="ft-", dir="/var/tmp"))
    module, cache = root / "m", root / "c"
    module.mkdir()
    for name, text in {**GO.base, GO.module: GO.solved, GO.target: GO.tests}.items():
        (module / name).write_text(text)
    env = {"PATH": "/usr/local/go/bin:/usr/bin:/bin", "HOME": str(root), "GOCACHE": str(cache), "GOTOOLCHAIN": "local"}
    subprocess.run(["go", "test", "./..."], cwd=module, env=env, check=True, capture_output=True)
    root.chmod(0o755)
    for path in (cache, *cache.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o644)
    yield cache
    shutil.rmtree(root)


NODE_FILES = {
    "calc.mjs": NODE.solved,
    "tests/existing.test.mjs": 'import test from "node:test";\nimport "./helper.mjs";\ntest("it", () => {});\n',
    "tests/helper.mjs": "export const help = 1;\n",
    "tests/broken.test.mjs": "throw new Error('it is not run by name');\n",
}


@pytest.mark.needs("node")
@pytest.mark.parametrize(
    ("command", "n_passed"),
    [
        ("tests/hidden.test.mjs", 2),
        ("tests/h*.test.mjs", 2),
        ("tests/{hidden,existing}.test.?js", 2),
        ("--test --test-name-pattern=small tests/helper.mjs **/hidden.test.mjs", 1),
        ("tests", None),
        ("", None),
        ("tests/hidden.test.mjs tests/misspelled.mjs", None),
    ],
)
def test_node_runs_the_files_that_are_meant(judge: JudgeChange, command: str, n_passed: int | None) -> None:
    oracle = judge.oracle(
        command, {NODE.target: NODE.tests}, runner=Runner.NODE, expect_tests=n_passed or 2, place=Place.WORKSPACE
    )
    verdict = judge(oracle, judge.tree(NODE_FILES, {}))
    assert verdict.passed is (n_passed is not None), verdict
    if n_passed is not None:
        assert verdict.counts.n_passed == n_passed


@pytest.fixture
def judge_change(judge: JudgeChange, language: Language) -> JudgeChange:
    """Judge the language's base with its module made another one."""

    def run(text: str | None, **more: str | Path) -> OracleVerdict:
        oracle = judge.oracle(
            language.command,
            {language.target: language.tests},
            runner=language.runner,
            expect_tests=2,
            place=Place.WORKSPACE,
        )
        change = {**more} if text is None else {language.module: text, **more}
        return judge(oracle, judge.tree(language.base, change))

    return run


def assert_failed(verdict: OracleVerdict) -> None:
    assert not verdict.passed
    assert verdict.kind is EndingKind.ORACLE_FAILED, verdict
    assert verdict.reason


def test_an_honest_solution_passes(judge_change: JudgeChange, language: Language) -> None:
    verdict = judge_change(language.solved)
    assert verdict.passed, verdict
    assert verdict.counts == Counts(n_passed=2, n_failed=0, n_skipped=0)


def test_the_untouched_base_fails(judge_change: JudgeChange) -> None:
    verdict = judge_change(None)
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)


def test_an_exit_with_0_at_import_proves_nothing(judge_change: JudgeChange, language: Language) -> None:
    if language.exit_at_import is None:
        pytest.skip(f"{language.runner}: loading a module runs nothing of it")
    assert_failed(judge_change(language.exit_at_import))


def test_an_exit_with_0_inside_a_test_proves_nothing(judge_change: JudgeChange, language: Language) -> None:
    assert_failed(judge_change(language.exit_inside))


def test_printed_success_is_no_report(judge_change: JudgeChange, language: Language) -> None:
    if language.forged is None:
        pytest.skip(f"{language.runner}: nothing of the module runs before the tests")
    assert_failed(judge_change(language.forged))


def test_a_skip_raised_by_the_candidate_is_no_pass(judge_change: JudgeChange, language: Language) -> None:
    if language.skipping is None:
        pytest.skip(f"{language.runner}: a function cannot make the test that calls it skip")
    assert_failed(judge_change(language.skipping))


def test_a_shadowed_oracle_file_is_the_oracles_again(judge_change: JudgeChange, language: Language) -> None:
    verdict = judge_change(None, **{language.target: "# nothing that could fail\n"})
    assert_failed(verdict)


@pytest.mark.parametrize("language", [tried(CARGO)], indirect=True)
def test_a_cargo_setting_that_replaces_what_runs_the_tests_is_not_used(judge_change: JudgeChange) -> None:
    forged = "echo test small ... ok; echo test large ... ok; echo test result: ok."
    setting = f'[target."cfg(all())"]\nrunner = ["sh", "-c", "{forged}"]\n'
    verdict = judge_change(None, **{".cargo/config.toml": setting})
    assert_failed(verdict)
    assert verdict.restored == (".cargo/config.toml",)
    verdict = judge_change(None, **{".cargo": Path("conf"), "conf/config.toml": setting})
    assert_failed(verdict)
    assert verdict.restored == (".cargo",)


@pytest.mark.parametrize("language", [tried(GO)], indirect=True)
def test_a_main_of_the_candidates_own_that_runs_nothing_proves_nothing(judge_change: JudgeChange) -> None:
    own = 'package calc\n\nimport ("os"; "testing")\n\nfunc TestMain(m *testing.M) { os.Exit(0) }\n'
    assert_failed(judge_change(None, **{"main_test.go": own}))


FORGED_EVENTS = """
import fs from "node:fs";
import v8 from "node:v8";

const pack = (event) => {
  const serializer = new v8.DefaultSerializer();
  serializer.writeHeader();
  serializer.writeRawBytes(Buffer.alloc(4));
  serializer.writeHeader();
  serializer.writeValue(event);
  const packed = serializer.releaseBuffer();
  packed.writeUInt32BE(packed.length - 6, 2);
  return packed;
};
const forge = () => {
  for (const [index, name] of ["small", "large"].entries()) {
    const data = { name, nesting: 0, testNumber: index + 1, details: { duration_ms: 1, type: "test" } };
    const place = { line: 6 + index, column: 1, file: process.argv[1] };
    const packed = pack({ type: "test:pass", data: { ...data, ...place } });
    for (let fd = 1; fd < 64; fd += 1) {
      try {
        if (fd <= 2 || fs.fstatSync(fd).isSocket()) fs.writeSync(fd, packed);
      } catch {}
    }
  }
  process.exit(0);
};
"""


@pytest.mark.parametrize("when", ["forge();\nexport const add = 0;\n", "export const add = forge;\n"])
@pytest.mark.parametrize("language", [tried(NODE)], indirect=True)
def test_printed_events_of_nodes_own_runner_are_no_report(judge_change: JudgeChange, when: str) -> None:
    assert_failed(judge_change(FORGED_EVENTS + when))


@pytest.mark.parametrize("language", [tried(NODE)], indirect=True)
def test_nobody_else_can_be_nodes_reporter(judge_change: JudgeChange) -> None:
    verdict = judge_change(
        'import report from "/fairtrial/node_reporter.mjs";\n'
        "const data = { name: 'small', nesting: 0, file: process.argv[1], details: { type: 'test' } };\n"
        "try {\n"
        "  for await (const _ of report([{ type: 'test:pass', data }, { type: 'test:pass', data }]));\n"
        "} catch {}\n"
        "process.exit(0);\nexport const add = 0;\n"
    )
    assert_failed(verdict)


@pytest.mark.parametrize("language", [tried(NODE)], indirect=True)
def test_package_settings_do_not_change_how_node_runs(judge_change: JudgeChange) -> None:
    assert_failed(judge_change(None, **{"package.json": '{"scripts": {"test": "true"}, "type": "module"}'}))


@pytest.mark.parametrize("language", [tried(GO)], indirect=True)
def test_tests_of_the_same_names_in_another_package_do_not_count(judge_change: JudgeChange) -> None:
    own = 'package calc\n\nimport ("os"; "testing")\n\nfunc TestMain(m *testing.M) { os.Exit(0) }\n'
    twins = 'package sub\n\nimport "testing"\n\nfunc TestSmall(t *testing.T) {}\nfunc TestLarge(t *testing.T) {}\n'
    verdict = judge_change(None, **{"main_test.go": own, "sub/twins_test.go": twins})
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=0, n_skipped=0)


@pytest.mark.parametrize("language", [tried(CARGO)], indirect=True)
def test_tests_of_the_same_names_in_another_file_do_not_count(judge_change: JudgeChange) -> None:
    twins = "#[test]\nfn small() {}\n#[test]\nfn large() {}\n"
    verdict = judge_change(CARGO.exit_inside, **{"tests/twins.rs": twins})
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)


@pytest.mark.parametrize("language", [tried(GO)], indirect=True)
def test_a_workspace_of_gos_that_puts_another_module_in_the_place_of_the_tested_one_is_not_used(
    judge: JudgeChange, language: Language
) -> None:
    twins = 'package calc\n\nimport "testing"\n\nfunc TestSmall(t *testing.T) {}\nfunc TestLarge(t *testing.T) {}\n'
    change = {
        "go.work": "go 1.20\n\nuse ./twin\n",
        "twin/go.mod": language.base["go.mod"],
        "twin/twin_test.go": twins,
    }
    oracle = judge.oracle(
        "example.org/calc",
        {language.target: language.tests},
        runner=language.runner,
        expect_tests=2,
        place=Place.WORKSPACE,
    )
    verdict = judge(oracle, judge.tree(language.base, change))
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)
    assert verdict.restored == ("go.work",)


@pytest.mark.parametrize("language", [tried(GO)], indirect=True)
def test_a_file_with_variables_of_gos_is_not_heard(judge_change: JudgeChange) -> None:
    verdict = judge_change(None, **{"go.env": "GOFLAGS=-run=^$\n", ".config/go/env": "GOFLAGS=-run=^$\n"})
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)


@pytest.mark.parametrize("language", [tried(NODE)], indirect=True)
def test_settings_of_npms_do_not_change_how_node_runs(judge_change: JudgeChange) -> None:
    leave = {"leave.cjs": "process.exit(0)", ".npmrc": "node-options=--require ./leave.cjs\nscript-shell=/bin/true\n"}
    verdict = judge_change(None, **leave)
    assert_failed(verdict)
    assert verdict.counts == Counts(n_passed=0, n_failed=2, n_skipped=0)
    assert verdict.restored == (".npmrc",)


@pytest.mark.parametrize("language", [tried(CARGO)], indirect=True)
def test_tests_of_the_same_names_in_the_same_file_of_another_package_do_not_count(judge_change: JudgeChange) -> None:
    """Cargo names a binary by its source below its own package; which package is run the candidate's manifest says."""
    manifest = CARGO.base["Cargo.toml"] + '\n[workspace]\nmembers = ["twin"]\ndefault-members = ["twin"]\n'
    verdict = judge_change(
        None,
        **{
            "Cargo.toml": manifest,
            "twin/Cargo.toml": CARGO.base["Cargo.toml"].replace("calc", "twin"),
            "twin/src/lib.rs": "",
            "twin/tests/hidden.rs": "#[test]\nfn small() {}\n#[test]\nfn large() {}\n",
        },
    )
    assert_failed(verdict)
    assert verdict.reason == "0 of 2 expected tests ran and passed", "cargo itself had nothing to complain of"
    assert verdict.counts == Counts(n_passed=0, n_failed=0, n_skipped=0)


PRINT = r"""
fn print() {
    use std::io::Write;
    use std::os::unix::io::FromRawFd;
    let mut out = unsafe { std::fs::File::from_raw_fd(1) };
    let _ = out.write_all(b"test small ... ok\ntest large ... ok\n\ntest result: ok. 2 passed; 0 failed\n");
    std::mem::forget(out);
}
extern "C" {
    fn _exit(status: i32) -> !;
    fn errx(status: i32, format: *const u8, ...) -> !;
    fn dlopen(name: *const u8, flags: i32) -> *mut u8;
    fn dlsym(library: *mut u8, name: *const u8) -> *mut u8;
}
"""
LEAVE = {
    "by exit": "std::process::exit(0)",
    "by _exit": "unsafe { _exit(0) }",
    "by the C library's own call of exit": 'unsafe { errx(0, b"bye\\0".as_ptr()) }',
    "by the C library's exit itself": """unsafe {
        let exit: extern "C" fn(i32) -> ! =
            std::mem::transmute(dlsym(dlopen(b"libc.so.6\\0".as_ptr(), 2), b"exit\\0".as_ptr()));
        exit(0)
    }""",
    "not, but fail": "0",
}


@pytest.mark.parametrize("how", LEAVE)
@pytest.mark.parametrize("language", [tried(CARGO)], indirect=True)
def test_printed_endings_and_an_exit_with_0_are_no_end_of_cargos_tests(judge_change: JudgeChange, how: str) -> None:
    verdict = judge_change(f"{PRINT}pub fn add(_: i64, _: i64) -> i64 {{ print(); {LEAVE[how]} }}\n")
    assert_failed(verdict)
    assert how != "not, but fail" or verdict.counts.n_failed > 0, "what libtest says behind it counts"


@pytest.mark.parametrize("language", [tried(CARGO)], indirect=True)
def test_an_oracle_for_cargo_none_of_whose_files_is_a_binarys_root_has_no_tests(
    judge: JudgeChange, language: Language
) -> None:
    files = {"tests/common/mod.rs": "#[test]\nfn small() {}\n"}
    oracle = judge.oracle("", files, runner=language.runner, expect_tests=1, place=Place.WORKSPACE)
    base = {**language.base, "src/lib.rs": language.solved, "tests/own.rs": "mod common;\n#[test]\nfn it() {}\n"}
    verdict = judge(oracle, judge.tree(base, {}))
    assert_failed(verdict)
    assert verdict.reason == "0 of 1 expected tests ran and passed", "cargo itself had nothing to complain of"


NEVER_DONE = "process.exitCode = 0;\nawait new Promise(() => {});\nexport const add = 0;\n"
REGISTER = """
import vm from "node:vm";
import fs from "node:fs";
import { test } from "node:test";
globalThis.t = test;
const twins = "t('small', () => {}); t('large', () => {})";
"""
UNHEARD = """
for (const name of ["uncaughtException", "unhandledRejection"]) {
  process.removeAllListeners(name);
  process.on(name, () => { process.exitCode = 0; });
}
throw new Error("x");
"""
TWINS = {
    "by a name that is given": "vm.runInThisContext(twins, { filename: process.argv[1] });\n" + NEVER_DONE,
    "by a name in a comment": "(0, eval)(`${twins}\\n//# sourceURL=${process.argv[1]}`);\n" + NEVER_DONE,
    "by a link put there later": """
fs.writeFileSync("twin.mjs", twins);
await import("./twin.mjs");
fs.unlinkSync("twin.mjs");
fs.symlinkSync("tests/hidden.test.mjs", "twin.mjs");
"""
    + NEVER_DONE,
    "and nobody hears of what is thrown": "vm.runInThisContext(twins, { filename: process.argv[1] });\n" + UNHEARD,
}


@pytest.mark.parametrize("how", TWINS)
@pytest.mark.parametrize("language", [tried(NODE)], indirect=True)
def test_tests_in_the_name_of_a_file_that_never_came_to_its_end_are_not_nodes(
    judge_change: JudgeChange, how: str
) -> None:
    exports = "" if "add" in TWINS[how] else "export const add = 0;\n"
    assert_failed(judge_change(REGISTER + TWINS[how] + exports))


COMMONJS = """
const test = require("node:test");
const assert = require("node:assert");
const { add } = require("../calc.cjs");
test("small", () => assert.equal(add(1, 2), 3));
test("large", () => assert.equal(add(1000, 2), 1002));
"""


@pytest.mark.needs("node")
@pytest.mark.parametrize("honest", [True, False])
def test_the_same_for_a_file_of_the_older_kind(judge: JudgeChange, *, honest: bool) -> None:
    twins = REGISTER.replace("import vm from", "const vm = require(").replace("import fs from", "const fs = require(")
    twins = twins.replace('"node:vm";', '"node:vm");').replace('"node:fs";', '"node:fs");')
    twins = twins.replace('import { test } from "node:test";', 'const { test } = require("node:test");')
    cheat = f"{twins}vm.runInThisContext(twins, {{ filename: process.argv[1] }});\n{UNHEARD}"
    target = "tests/hidden.test.cjs"
    oracle = judge.oracle(target, {target: COMMONJS}, runner=Runner.NODE, expect_tests=2, place=Place.WORKSPACE)
    base = {"calc.cjs": "exports.add = (a, b) => a - b;\n"}
    change = {"calc.cjs": "exports.add = (a, b) => a + b;\n" if honest else cheat}
    assert judge(oracle, judge.tree(base, change)).passed is honest


@pytest.mark.needs("node")
@pytest.mark.parametrize(
    "words", ["--require ./setup.cjs", "-r ./setup.cjs", "--env-file=.env", "--test-reporter=spec"]
)
def test_what_node_would_load_before_our_part_is_refused(judge: JudgeChange, words: str) -> None:
    files = {NODE.target: NODE.tests}
    oracle = judge.oracle(f"{words} {NODE.target}", files, runner=Runner.NODE, expect_tests=2, place=Place.WORKSPACE)
    tree = judge.tree({"calc.mjs": NODE.solved, "setup.cjs": "", ".env": "A=1\n"}, {})
    assert_failed(judge(oracle, tree))


@pytest.mark.needs("node")
def test_node_finds_its_files_where_packages_are_linked_to_each_other(judge: JudgeChange) -> None:
    names = ("a", "b", "c")
    links: dict[str, str | Path] = {
        f"packages/{name}/node_modules/{other}": Path("..") / ".." / other
        for name in names
        for other in names
        if other != name
    }
    files = {NODE.target: NODE.tests}
    oracle = judge.oracle("", files, runner=Runner.NODE, expect_tests=2, place=Place.WORKSPACE)
    packages = {f"packages/{name}/index.mjs": "" for name in names}
    assert judge(oracle, judge.tree({"calc.mjs": NODE.solved, **packages}, links)).passed
