"""The example that ships: a small repository with history, tasks and reviews on it, arms, skills, and scripted models.

Its history is made when it is written, from one directory a commit, with fixed names and dates.
"""

import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from fairtrial.errors import HostError, UsageError
from fairtrial.host.git import git

__all__ = ["REPOSITORY", "write_example"]

REPOSITORY: Final = "repository"
HISTORY: Final = "history"
MESSAGE: Final = "MESSAGE"
FIRST_COMMIT_S: Final = 1_767_225_600
DAY_S: Final = 86_400
_IDENTITY: Final = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "Ada"), ("EMAIL", "ada@example.invalid"))
}


def write_example(directory: Path) -> None:
    """Write it into a directory that is absent or empty.

    Raises:
        UsageError: The directory is in use.
        HostError: It cannot be written, or git failed.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory}: is not empty; name a new directory")
    try:
        with as_file(files("fairtrial") / "examples") as shipped:
            _copy(shipped, directory)
            _make_repository(shipped / HISTORY, directory / REPOSITORY)
    except OSError as problem:
        raise HostError(f"{directory}: cannot be written: {problem}") from problem


def _copy(shipped: Path, directory: Path) -> None:
    """Copy what is not history; bytecode that an interpreter left behind is no part of it."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in sorted(shipped.iterdir()):
        if path.is_dir() and path.name != HISTORY:
            shutil.copytree(path, directory / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.is_file():
            shutil.copyfile(path, directory / path.name)


def _make_repository(history: Path, repository: Path) -> None:
    repository.mkdir()
    git(["init", "--quiet", "--template=", "--initial-branch=main", "."], cwd=repository)
    for number, step in enumerate(sorted(history.iterdir())):
        ignored = shutil.ignore_patterns("__pycache__", MESSAGE)
        shutil.copytree(step, repository, ignore=ignored, dirs_exist_ok=True)
        message = (step / MESSAGE).read_bytes()
        date = f"{FIRST_COMMIT_S + number * DAY_S} +0000"
        env = {**_IDENTITY, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        git(["add", "--all"], cwd=repository)
        git(["commit", "--quiet", "--no-gpg-sign", "--file=-"], cwd=repository, env=env, stdin=message)
