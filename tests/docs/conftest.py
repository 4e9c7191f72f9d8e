"""The reference read as tables, and one small real sweep that its pages are compared with."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from fairtrial.host.files import remove_tree

Row = dict[str, str]

_CELL: Final = re.compile(r"(?<!\\)\|")


@pytest.fixture(scope="session")
def reference(clone: Path) -> Path:
    """The directory of the reference."""
    return clone / "docs" / "reference"


@pytest.fixture(scope="session")
def read_table(reference: Path) -> Callable[..., list[Row]]:
    """Reads the rows of the tables below a heading of a page, by column; `deep` takes the headings below it as well."""

    def read(page: str, heading: str, *, deep: bool = False) -> list[Row]:
        rows: list[Row] = []
        columns: list[str] | None = None
        for line in _section((reference / page).read_text().splitlines(), heading, deep=deep):
            if not line.startswith("|"):
                columns = None
                continue
            cells = [cell.strip() for cell in _CELL.split(line)[1:-1]]
            if columns is None:
                columns = cells
            elif set(cells) != {"---"}:
                rows.append(dict(zip(columns, cells, strict=True)))
        assert rows, f"{page}: no table below {heading!r}"
        return rows

    return read


def _section(lines: list[str], heading: str, *, deep: bool) -> Iterator[str]:
    level = 0
    for line in lines:
        if title := re.match(r"(#+) (.*)", line):
            if level and (len(title[1]) <= level or not deep):
                return
            if title[2] == heading:
                level = len(title[1])
        elif level:
            yield line
    assert level, f"no heading {heading!r}"


@pytest.fixture(scope="session")
def names() -> Callable[[str], list[str]]:
    """The words of a text that stand in backquotes."""
    return lambda text: re.findall(r"`([^`]+)`", text)


@pytest.fixture(scope="session")
def sweep() -> Iterator[Path]:
    """The results of a sweep with every kind of row: the hosted remote is not there, so its trials are void."""
    directory = Path(tempfile.mkdtemp(prefix="", dir=os.environ["TMPDIR"]))
    try:
        results = directory / "r"
        asked = ["--scenarios", "all", "--transport", "file,http,hosted", "--runs", "1", "--out", str(results)]
        faults = ["--faults", "control,reply_lost_reused,request_lost_fresh,server_refuses,rival_first"]
        remote = ["--remote-is-disposable", (directory / "none").as_uri(), "--lock-wait", "500"]
        argv = [sys.executable, "-m", "fairtrial", "-q", "loop", *asked, *faults, *remote, "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 5, done.stderr
        (directory / "printed.json").write_text(done.stdout)
        yield results
    finally:
        remove_tree(directory)


@pytest.fixture(scope="session")
def bench() -> Iterator[Path]:
    """The results of a sweep of the agent lane: two tasks of the example, two arms, a scripted model."""
    directory = Path(tempfile.mkdtemp(prefix="", dir=os.environ["TMPDIR"]))
    tasks = directory / "t"
    try:
        for asked in (
            ("init", str(tasks)),
            (
                *("bench", "--tasks", str(tasks / "tasks.yaml"), "--only", "amounts,linear", "--runs", "1"),
                *("--arms", "baseline,workflow", "--agent", "bash-agent", "--model", "claude-sonnet-4-5"),
                *("--skill", f"plan={tasks / 'skills/tally-plan'}", "--skill", f"work={tasks / 'skills/tally-work'}"),
                *("--script", str(tasks / "script.yaml"), "--out", str(directory / "r")),
            ),
        ):
            argv = [sys.executable, "-m", "fairtrial", "-q", *asked]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        yield directory / "r"
    finally:
        remove_tree(directory)


@pytest.fixture(scope="session")
def bench_rows(bench: Path) -> list[dict[str, Any]]:
    """The rows of that sweep."""
    return [json.loads(line) for line in (bench / "results.jsonl").read_bytes().splitlines()]


@pytest.fixture(scope="session")
def sweep_rows(sweep: Path) -> list[dict[str, Any]]:
    """The rows of that sweep."""
    return [json.loads(line) for line in (sweep / "results.jsonl").read_bytes().splitlines()]


@pytest.fixture(scope="session")
def sweep_printed(sweep: Path) -> dict[str, Any]:
    """The object that the command of that sweep printed."""
    printed: dict[str, Any] = json.loads((sweep.parent / "printed.json").read_text())
    return printed
