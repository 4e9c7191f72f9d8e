from pathlib import Path

import pytest

from fairtrial.judging.pytest_settings import choose_settings
from fairtrial.judging.values import ChangedPath

WITH = {
    "pytest.toml": "[pytest]\n",
    ".pytest.ini": "[pytest]\n",
    "pytest.ini": "",
    "pyproject.toml": "[tool.pytest.ini_options]\n",
    "tox.ini": "[pytest]\n",
    "setup.cfg": "[tool:pytest]\n",
}


def changed(path: str, before: str | None) -> dict[bytes, ChangedPath]:
    text = None if before is None else before.encode()
    return {path.encode(): ChangedPath(path=path.encode(), before=text, after=b"changed")}


@pytest.mark.parametrize("name", WITH)
def test_the_bases_settings_are_used_where_they_lie(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(WITH[name])
    assert choose_settings(tmp_path, {}, frozenset()) == (name.encode(), None)


def test_a_file_without_a_section_for_pytest_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "setup.cfg").write_text(WITH["setup.cfg"])
    assert choose_settings(tmp_path, {}, frozenset()).path == b"setup.cfg"


def test_without_any_there_are_empty_ones_so_that_pytest_looks_for_none(tmp_path: Path) -> None:
    chosen = choose_settings(tmp_path, {}, frozenset())
    assert chosen.path.startswith(b".fairtrial-")
    assert (chosen.path.rpartition(b".")[2], chosen.content) == (b"ini", b"[pytest]\n")


@pytest.mark.parametrize("name", ["pyproject.toml", "setup.cfg"])
def test_changed_settings_give_way_to_the_bases(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(WITH[name] + "addopts = evil\n")
    chosen = choose_settings(tmp_path, changed(name, WITH[name]), frozenset())
    assert chosen.content == WITH[name].encode()
    assert chosen.path.rpartition(b".")[2] == name.rpartition(".")[2].encode()


@pytest.mark.parametrize("before", [None, "[project]\n"])
def test_added_settings_do_not_count(tmp_path: Path, before: str | None) -> None:
    (tmp_path / "pyproject.toml").write_text(WITH["pyproject.toml"])
    assert choose_settings(tmp_path, changed("pyproject.toml", before), frozenset()).content == b"[pytest]\n"


def test_the_oracles_own_settings_win(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(WITH["pyproject.toml"])
    chosen = choose_settings(tmp_path, changed("pyproject.toml", None), frozenset({b"pyproject.toml"}))
    assert chosen == (b"pyproject.toml", None)
