"""Which paths of a change act by being there. Pure.

Three questions, each with a closed list: what test runners, interpreters and build tools load or run without being
told (flagged), what of that an oracle must not run with (put back as the base has it), and what is a test.
"""

import json
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from fairtrial.judging.values import ChangedPath

__all__ = ["ChangeFlags", "display", "flag_change", "is_source_path", "is_test_path", "must_be_restored"]

_RUNNER_FILES: Final = (
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
    ".mocharc.*",
    "jest.config.*",
    "jest.setup.*",
    "vitest.config.*",
    "vitest.setup.*",
    "vitest.workspace.*",
    "ava.config.*",
    "cypress.config.*",
    "karma.conf.*",
    "playwright.config.*",
    ".rspec",
    "unittest.cfg",
)
"""Names that are given for a test runner only."""
_INTERPRETER_FILES: Final = (
    "sitecustomize",
    "sitecustomize.*",
    "usercustomize",
    "usercustomize.*",
    "*.pth",
    "*.pyc",
    "*.pyo",
    "rust-toolchain",
    "rust-toolchain.toml",
    "pyvenv.cfg",
    "go.work",
    ".npmrc",
)
"""Names that are given for an interpreter or a tool chain only."""
_LINKED_DIRECTORIES: Final = (
    ".cargo",
    ".venv",
    "venv",
    "node_modules",
    "*.dist-info",
    "*.egg-info",
)
"""Directories that hold some of `_RESTORED_PATHS`: only a link (or a file) in such a place is itself a changed path."""
_RESTORED_PATHS: Final = (
    "sitecustomize/*",
    "*/sitecustomize/*",
    "usercustomize/*",
    "*/usercustomize/*",
    "*.dist-info/entry_points.txt",
    "*.egg-info/entry_points.txt",
    "*.cargo/config",
    "*.cargo/config.toml",
    "*node_modules/.bin",
    "*node_modules/.bin/*",
    ".venv/bin",
    "venv/bin",
    "*/.venv/bin",
    "*/venv/bin",
    ".venv/bin/*",
    "venv/bin/*",
    "*/.venv/bin/*",
    "*/venv/bin/*",
)
_FLAGGED: Final = (
    "Makefile",
    "makefile",
    "GNUmakefile",
    "*.mk",
    "justfile",
    "Justfile",
    "Taskfile.yml",
    "noxfile.py",
    "setup.py",
    "build.rs",
    "vite.config.*",
    "bunfig.toml",
    ".coveragerc",
    "Rakefile",
    ".justfile",
    "Taskfile.yaml",
    ".bazelrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pnpmfile.cjs",
    ".babelrc",
    "babel.config.*",
    ".pre-commit-config.yaml",
    ".gitattributes",
    ".gitmodules",
    ".mcp.json",
    ".envrc",
    ".env",
    "go.env",
)
_FLAGGED_PATHS: Final = (
    ".husky/*",
    ".githooks/*",
    "*/.husky/*",
    "*/.githooks/*",
    "*hooks/pre-*",
    "*hooks/post-*",
    "*.claude/settings*.json",
    "*.claude/hooks/*",
    "*.codex/config.toml",
    "*.gemini/settings.json",
    ".mvn/*",
    "*/.mvn/*",
)
_TEST_DIRECTORIES: Final = frozenset({"test", "tests", "__tests__", "spec", "testdata"})
_TEST_NAMES: Final = (
    "test_*.py",
    "*_test.py",
    "tests.py",
    "*_test.go",
    "*_test.rs",
    "*.test.*",
    "*.spec.*",
    "*Test.java",
    "*Tests.java",
    "*_spec.rb",
    "*_test.rb",
)
_PACKAGE_KEYS: Final = ("scripts", "jest", "mocha", "ava", "type", "imports")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFlags:
    """What a report says beside a verdict.

    Attributes:
        auto_loaded: Paths that act by being there.
        tests: Tests, what they share, and what configures their runner.
    """

    auto_loaded: tuple[str, ...]
    tests: tuple[str, ...]


def flag_change(change: Iterable[ChangedPath]) -> ChangeFlags:
    """Sort a change's paths."""
    paths = tuple(change)
    return ChangeFlags(
        auto_loaded=tuple(display(each.path) for each in paths if _is_auto_loaded(each)),
        tests=tuple(display(each.path) for each in paths if is_test_path(each.path)),
    )


def display(path: bytes) -> str:
    """Write a path so that it can be printed and stored; what is no text is escaped."""
    return path.decode(errors="backslashreplace")


def is_test_path(path: bytes) -> bool:
    """Tell whether a path is a test's, or configures what runs tests."""
    *parents, name = display(path).split("/")
    return not _TEST_DIRECTORIES.isdisjoint(parents) or _matches(name, _TEST_NAMES) or _matches(name, _RUNNER_FILES)


def is_source_path(path: bytes) -> bool:
    """Tell whether the source-only change, on which an oracle is told as well, has this path."""
    return not is_test_path(path) and not must_be_restored(path)


def must_be_restored(path: bytes) -> bool:
    """Tell whether an oracle runs with the base's version of a path, whatever the change made of it."""
    text = display(path)
    name = text.rpartition("/")[2]
    names = (*_RUNNER_FILES, *_INTERPRETER_FILES, *_LINKED_DIRECTORIES)
    return _matches(name, names) or _matches(text, _RESTORED_PATHS)


def _matches(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _is_auto_loaded(changed: ChangedPath) -> bool:
    text = display(changed.path)
    name = text.rpartition("/")[2]
    if must_be_restored(changed.path) or _matches(name, _FLAGGED) or _matches(text, _FLAGGED_PATHS):
        return True
    before, after = changed.before or b"", changed.after or b""
    if _shadows_standard_library(changed):
        return True
    if name == "pyproject.toml":
        return _pytest_table(before) != _pytest_table(after)
    if name == "setup.cfg":
        return _ini_section(before, b"[tool:pytest]") != _ini_section(after, b"[tool:pytest]")
    if name == "package.json":
        return _package_keys(before) != _package_keys(after)
    if name.endswith(".go"):
        return _generate_lines(before) != _generate_lines(after)
    return False


def _shadows_standard_library(changed: ChangedPath) -> bool:
    """Tell whether it adds a module that tests, to which the tree's root is the first place, get for Python's own."""
    top, _, below = display(changed.path).partition("/")
    is_module = top.endswith((".py", ".so")) or changed.is_link if not below else below == "__init__.py"
    is_new = changed.before is None and changed.before_link is None
    return is_new and is_module and top.partition(".")[0] in sys.stdlib_module_names


def _pytest_table(content: bytes) -> object:
    """Its pytest settings; all of it where it is no TOML, so that any change of such a file is flagged."""
    try:
        tool = tomllib.loads(content.decode()).get("tool", {})
    except (ValueError, RecursionError):
        return content
    return tool.get("pytest") if isinstance(tool, dict) else content  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]


def _ini_section(content: bytes, header: bytes) -> list[bytes]:
    kept: list[bytes] = []
    inside = False
    for line in content.splitlines():
        if line.startswith(b"["):
            inside = line.strip() == header
        elif inside:
            kept.append(line)
    return kept


def _package_keys(content: bytes) -> object:
    try:
        package: object = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return content
    if not isinstance(package, dict):
        return content
    return [package.get(key) for key in _PACKAGE_KEYS]  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]


def _generate_lines(content: bytes) -> list[bytes]:
    return [line for line in content.splitlines() if line.startswith(b"//go:generate")]
