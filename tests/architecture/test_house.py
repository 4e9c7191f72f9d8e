"""Rules of the house that no linter knows."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

FOREIGN = re.compile(
    r"pypi\.(org|io)|pythonhosted\.org|npmjs\.(com|org)|debian\.org|crates\.io"
    r"|(^|[\s\"'`=(])/(home|root|tmp|work)/(?!agent\b)\w"
)
"""Registry hosts, and paths that exist on somebody's machine only; a sandbox's home is on none."""


def test_each_module_lists_what_it_offers_in_order_and_no_other_takes_more(trees: dict[str, ast.Module]) -> None:
    wrong: list[str] = []
    all_taken = names_taken_by_module(trees.values())
    for name, tree in trees.items():
        listed = listed_names(tree)
        taken = all_taken[name] - submodules(name, trees)
        if listed != sorted(listed, key=by_kind):
            wrong.append(f"{name}: __all__ is not in the order {sorted(listed, key=by_kind)}")
        if unlisted := (functions_and_classes(tree) | taken) - set(listed):
            wrong.append(f"{name}: __all__ lacks {sorted(unlisted)}")
        if absent := set(listed) - bound_names(tree):
            wrong.append(f"{name}: __all__ lists {sorted(absent)}, which it does not have")
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def trees(clone: Path, module_names: list[str]) -> dict[str, ast.Module]:
    """The syntax tree of each module that others can import from."""
    paths = {name: clone / "src" / name.replace(".", "/") for name in module_names if not name.endswith(".__main__")}
    return {
        name: ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
        for name, path in paths.items()
    }


def functions_and_classes(tree: ast.Module) -> set[str]:
    """Those that the module defines at its top level without a leading underscore."""
    defined = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))
    return {node.name for node in defined if not node.name.startswith("_")}


def bound_names(tree: ast.Module) -> set[str]:
    """Everything that has a name at the module's top level."""
    names = functions_and_classes(tree)
    for node in tree.body:
        match node:
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                names.update(alias.asname or alias.name for alias in aliases)
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
            case _:
                pass
    return names


def names_taken_by_module(trees: Iterable[ast.Module]) -> defaultdict[str, set[str]]:
    """What is imported from each module, anywhere."""
    taken: defaultdict[str, set[str]] = defaultdict(set)
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                taken[node.module or ""].update(alias.name for alias in node.names)
    return taken


def submodules(package: str, trees: dict[str, ast.Module]) -> set[str]:
    return {name.removeprefix(f"{package}.") for name in trees if name.startswith(f"{package}.")}


def listed_names(tree: ast.Module) -> list[str]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=elements)):
                return [str(ast.literal_eval(element)) for element in elements]
            case _:
                pass
    return []


def by_kind(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions: the order of ruff's RUF022."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


def test_nothing_that_ships_names_a_registry_or_somebodys_machine(clone: Path) -> None:
    files = [clone / "Makefile", clone / "README.md", clone / "pyproject.toml"]
    for directory in (".ci", "benchmarks", "docs", "requirements", "src"):
        files += [path for path in (clone / directory).rglob("*") if path.is_file() and path.suffix != ".pyc"]
    found = [
        f"{path.relative_to(clone)}:{number}: {line}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if FOREIGN.search(line)
    ]
    assert not found, "\n".join(found)


def test_the_readme_fits_in_a_hundred_lines(clone: Path) -> None:
    assert len((clone / "README.md").read_text().splitlines()) <= 100


def test_the_command_says_what_it_can_do(tmp_path: Path) -> None:
    argv = [str(Path(sys.executable).with_name("fairtrial")), "--help"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^  loop +\w", done.stdout, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_the_help_page_imports_click_and_hardly_anything_else(tmp_path: Path) -> None:
    program = "import sys; from fairtrial.cli.main import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    argv = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert {name for name in loaded if name.partition(".")[0] == "fairtrial"} == {
        *("fairtrial", "fairtrial.cli", "fairtrial.cli.main", "fairtrial.cli.streams", "fairtrial.errors")
    }
    assert not loaded & {"asyncio", "difflib", "json", "logging", "pathlib", "pydantic", "rich", "shutil", "subprocess"}


def test_no_pattern_repeats_a_group_possessively_which_debian_s_python_does_wrong(clone: Path) -> None:
    """CPython's issue 106052, mended in 3.11.5; Debian 12 has 3.11.2. One set of characters it repeats right."""
    group = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+|\(\?>")
    paths = (clone / "src").rglob("*.py")
    assert [str(path) for path in paths if group.search(path.read_text())] == []
