"""Where nobody can read what is printed, the exit code says so, and no work depends on who reads the progress."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-m", "fairtrial"]
PRINTING = [["--help"], ["plugins"], ["plugins", "--json"], ["doctor"], ["loop", "--dry-run"]]
WRONG = ["report", "/nonexistent", "--json"]


@pytest.fixture
def nobody_reads() -> Iterator[int]:
    """A pipe whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.fixture
def full() -> Iterator[int]:
    """A file on a full disk."""
    fd = os.open("/dev/full", os.O_WRONLY)
    yield fd
    os.close(fd)


def run(arguments: list[str], *, stdout: int, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], check=False, stdout=stdout, stderr=stderr, text=True, timeout=120)


def run_without(closed: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    argv = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM, *arguments]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_output_that_finds_no_room_is_an_error_of_the_host(arguments: list[str], full: int) -> None:
    done = run(arguments, stdout=full)
    (line,) = done.stderr.splitlines()
    assert line.startswith("fairtrial: error: standard output: cannot be written (No space left on device); ")
    assert done.returncode == 3


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_reader_who_leaves_ends_it_in_silence_with_141(arguments: list[str], nobody_reads: int) -> None:
    done = run(arguments, stdout=nobody_reads)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", [*PRINTING, WRONG], ids=" ".join)
def test_a_closed_output_is_refused_before_anything_is_done(arguments: list[str]) -> None:
    done = run_without(">&-", arguments)
    assert done.returncode == 3
    assert done.stderr == "fairtrial: error: standard output is closed; open it, or send it to /dev/null\n"


@pytest.mark.parametrize("where", ["full", "nobody_reads"])
def test_an_error_keeps_its_exit_code_where_it_cannot_be_told(where: str, request: pytest.FixtureRequest) -> None:
    fd = request.getfixturevalue(where)
    untold = run(WRONG, stdout=fd, stderr=fd)
    assert untold.returncode == 2
    half_told = run(WRONG, stdout=subprocess.PIPE, stderr=fd)
    assert json.loads(half_told.stdout)["exit_code"] == half_told.returncode == 2


def test_an_error_keeps_its_exit_code_without_a_standard_error() -> None:
    done = run_without("2>&-", WRONG)
    assert json.loads(done.stdout)["exit_code"] == done.returncode == 2


@pytest.mark.needs("git")
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("measurement")
@pytest.mark.parametrize("streams", ["<&- 2>&-", "2>/dev/full"])
def test_a_sweep_measures_to_its_end_although_nobody_can_read_its_progress(streams: str, tmp_path: Path) -> None:
    done = run_without(streams, ["-v", "loop", "--runs", "1", "--out", str(tmp_path / "r"), "--json"])
    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (0, 0)
