"""The git that jj runs: which one, and what is said where none will do."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.model.loop import Manner, Motion, Place, Transport, Variant
from fairtrial.protocols import Subject
from fairtrial.subjects.jujutsu import Jujutsu


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Put a program that says something on a PATH that holds nothing else."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(name: str, says: str) -> Path:
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{says}'\n")
        (tmp_path / name).chmod(0o755)
        return tmp_path / name

    return put


def jj(**settings: str) -> Jujutsu:
    return Jujutsu(Variant(name="jj", subject="jj", label="jj", settings=settings))


def named_git(subject: Jujutsu) -> str:
    return str(tomllib.loads(subject.home_files(Path("/t/home"))["jj.toml"])["git"]["executable-path"])


def test_a_git_that_jj_cannot_fetch_with_makes_it_missing_and_says_what_to_do(
    put: Callable[[str, str], Path], tmp_path: Path
) -> None:
    put("jj", "jj 0.45.1")
    put("git", "git version 2.39.5")
    assert jj().probe().missing == (
        f"jj runs git: {tmp_path}/git is git version 2.39.5, which is too old; "
        "install git 2.41 or newer: make jj (or put one on PATH as jj-git)"
    )


def test_a_git_for_jj_alone_comes_before_the_machines_and_is_recorded(put: Callable[[str, str], Path]) -> None:
    put("jj", "jj 0.45.1")
    put("git", "git version 2.39.5")
    own = put("jj-git", "git version 2.47.3")
    found = jj().probe()
    assert (found.missing, found.version, found.details["git_version"]) == (None, "jj 0.45.1", "git version 2.47.3")
    assert found.details.keys() == {"binary_sha256", "git_sha256", "git_version"}
    assert named_git(jj()) == str(own)


def test_a_git_that_the_variant_names_comes_first(put: Callable[[str, str], Path]) -> None:
    put("jj", "jj 0.45.1")
    put("jj-git", "git version 2.47.3")
    named = put("newest", "git version 2.50.0")
    subject = jj(**{"git.executable-path": f"'{named}'"})
    assert subject.probe().details["git_version"] == "git version 2.50.0"
    assert named_git(subject) == str(named)


def test_work_on_a_branch_that_is_published_already_carries_its_bookmark_along(
    make_place: Callable[[Subject, Transport], Place],
) -> None:
    subject = jj()
    place = make_place(subject, Transport.HTTP)
    motions = (Motion.ACQUIRE, Motion.SNAPSHOT)
    steps = [step.argv[1:] for motion in motions for step in subject.steps(motion, Manner.JOIN, place)]
    assert steps == [
        ("git", "clone", "-b", place.branch, place.remote, str(place.workspace)),
        ("bookmark", "track", place.branch, "--remote", "origin"),
        ("commit", "-m", place.message),
        ("bookmark", "move", place.branch, "--to", "@-"),
    ]
