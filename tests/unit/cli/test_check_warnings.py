from pathlib import Path

import pytest

from fairtrial.cli.check import warnings_of
from fairtrial.host.unplaced import home_above

ROW = {"task": "t", "judge_uid": None, "toolchain_digests": {"/opt/venv": "1"}}


def test_nothing_is_said_where_nothing_is_told() -> None:
    assert warnings_of([ROW, {"task": "u", "judge_uid": "own", "toolchain_digests": {}}], Path("/var/tmp/ft-1")) == []


def test_tasks_whose_oracle_has_no_uid_of_its_own_are_named_once() -> None:
    shared = {**ROW, "judge_uid": "shared"}
    (warning,) = warnings_of([{**shared, "task": "b"}, shared, shared], Path("/var/tmp/ft-1"))
    assert warning.startswith("ONE UID: ")
    assert ": b, t." in warning


def test_places_below_a_home_are_named() -> None:
    row = {**ROW, "toolchain_digests": {"/home/alice/venv": "1", "/opt/venv": "2"}}
    (warning,) = warnings_of([row, row], Path("/home/bob/tmp/ft-1"))
    assert ": /home/alice/venv, /home/bob/tmp/ft-1." in warning
    assert "/opt/venv" not in warning


@pytest.mark.parametrize(
    ("home", "path", "found"),
    [
        ("/srv/carol", "/srv/carol/x", "/srv/carol"),
        ("/srv/carol", "/srv/carolina/x", None),
        ("/srv/carol", "/home/alice/x/y", "/home/alice"),
        ("/srv/carol", "/home/tool", None),
        ("/", "/opt/venv", None),
    ],
)
def test_a_home_is_ones_own_or_one_of_all_users(
    monkeypatch: pytest.MonkeyPatch, home: str, path: str, found: str | None
) -> None:
    monkeypatch.setenv("HOME", home)
    assert home_above(Path(path)) == (None if found is None else Path(found))
