import pytest

from fairtrial.judging.autoload import display, flag_change, is_source_path, is_test_path, must_be_restored
from fairtrial.judging.values import ChangedPath


def changed(path: str, before: str | None = None, after: str | None = "x") -> ChangedPath:
    return ChangedPath(
        path=path.encode(),
        before=None if before is None else before.encode(),
        after=None if after is None else after.encode(),
    )


@pytest.mark.parametrize(
    "path",
    [
        "conftest.py", "a/b/conftest.py", "pytest.ini", "tox.ini", "sitecustomize.py", "lib/usercustomize.py", "x.pth",
        "a/__pycache__/m.cpython-311.pyc", ".cargo/config.toml", "sub/.cargo/config", "node_modules/.bin/jest",
        "p/node_modules/.bin/tsc", "e.dist-info/entry_points.txt", "e.egg-info/entry_points.txt", "jest.config.js",
        "karma.conf.js", "e2e/playwright.config.ts", "cypress.config.js", "ava.config.mjs", ".rspec", "unittest.cfg",
        "vitest.config.ts", "rust-toolchain.toml", ".venv/bin/python", "a/venv/bin/pytest", "venv/pyvenv.cfg",
        "sitecustomize/__init__.py", "lib/usercustomize/x.py", "sitecustomize.abi3.so", "usercustomize", ".cargo",
        "sub/.cargo", ".venv", "a/venv", ".venv/bin", "node_modules", "p/node_modules/.bin", "e.dist-info",
        "e.egg-info", "go.work", "sub/go.work", ".npmrc", "sub/.npmrc",
    ],
)  # fmt: skip
def test_what_is_written_for_a_runner_alone_is_restored_and_flagged(path: str) -> None:
    assert must_be_restored(path.encode())
    assert not is_source_path(path.encode())
    assert flag_change([changed(path)]).auto_loaded == (path,)


@pytest.mark.parametrize(
    "path",
    [
        "Makefile", "sub/Makefile", "build.rs", "setup.py", "go.env", ".husky/pre-commit", "x/hooks/pre-commit",
        "vite.config.ts", "bunfig.toml", ".coveragerc", "Rakefile", ".justfile", "Taskfile.yaml", ".bazelrc",
        ".mvn/jvm.config", "sub/.mvn/extensions.xml", ".envrc",
    ],
)  # fmt: skip
def test_what_also_has_another_use_is_flagged_and_kept(path: str) -> None:
    assert flag_change([changed(path)]).auto_loaded == (path,)
    assert not must_be_restored(path.encode())


@pytest.mark.parametrize("path", ["random.py", "subprocess/__init__.py", "json.cpython-311-x86_64-linux-gnu.so"])
def test_a_new_module_that_tests_would_get_for_pythons_own_is_flagged_and_kept(path: str) -> None:
    assert flag_change([changed(path)]).auto_loaded == (path,)
    assert flag_change([changed(path, before="y")]).auto_loaded == ()
    assert flag_change([changed(f"calc/{path}")]).auto_loaded == ()
    assert not must_be_restored(path.encode())


def test_a_link_in_the_place_of_a_package_of_pythons_own_is_flagged_and_a_file_is_not() -> None:
    link = ChangedPath(path=b"json", before=None, after=b"elsewhere", is_link=True)
    assert flag_change([link, changed("queue"), changed("queue/job.py")]).auto_loaded == ("json",)


@pytest.mark.parametrize(
    "path",
    ["src/a.py", "README.md", "package-lock.json", "conftest.txt", "my_conftest.py", "bin/python", "myvenv/bin/x"],
)
def test_ordinary_files_are_not_flagged(path: str) -> None:
    assert flag_change([changed(path)]).auto_loaded == ()
    assert is_source_path(path.encode())


@pytest.mark.parametrize(
    ("path", "before", "after", "flagged"),
    [
        ("pyproject.toml", "[project]\nname = 'a'", "[project]\nname = 'b'", False),
        ("pyproject.toml", "", "[tool.pytest.ini_options]\naddopts = '-p x'", True),
        ("pyproject.toml", None, "[tool.other]", False),
        ("pyproject.toml", "[tool.pytest.ini_options]\na = '1'", None, True),
        ("pyproject.toml", "", "[[[", True),
        ("pyproject.toml", "", "tool = 1", True),
        ("setup.cfg", "[metadata]\nname = a", "[metadata]\nname = b", False),
        ("setup.cfg", "[metadata]", "[tool:pytest]\naddopts = x\n[metadata]", True),
        ("package.json", '{"version": "1"}', '{"version": "2"}', False),
        ("package.json", '{"scripts": {"test": "jest"}}', '{"scripts": {"test": "true"}}', True),
        ("package.json", None, "[]", True),
        ("package.json", None, "{", True),
        ("a.go", "package a\n", "package a\n//go:generate sh x\n", True),
        ("a.go", "package a\n", "package a\n\nfunc f() {}\n", False),
    ],
)
def test_files_with_many_uses_are_flagged_by_what_changed_in_them(
    path: str, before: str | None, after: str | None, *, flagged: bool
) -> None:
    assert bool(flag_change([changed(path, before, after)]).auto_loaded) is flagged


@pytest.mark.parametrize(
    "path",
    ["tests/a.py", "a/test/x.c", "test_a.py", "a_test.go", "a.test.ts", "a.spec.js", "x/__tests__/a.js", "conftest.py"],
)
def test_tests_are_a_column_of_their_own(path: str) -> None:
    assert is_test_path(path.encode())
    assert flag_change([changed(path)]).tests == (path,)
    assert not is_source_path(path.encode())


@pytest.mark.parametrize("path", ["src/testing/a.py", "contest.py", "latest.py", "attest_it.py", "a.go"])
def test_source_is_no_test(path: str) -> None:
    assert not is_test_path(path.encode())


def test_names_that_are_no_text_can_be_shown() -> None:
    assert display(b"a\xff") == "a\\xff"
