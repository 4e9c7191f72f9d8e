"""Options that no sweep can be made with: refused by their name with exit code 2, in a dry run too."""

from pathlib import Path

import pytest

from fairtrial.cli.main import run

WORDS = {
    "bench": ("bench", "--tasks", "none.yaml", "--model", "m"),
    "evolve": ("evolve", "--tasks", "none.yaml", "--model", "m"),
    "check": ("check", "none.yaml"),
    "loop": ("loop",),
}


@pytest.mark.parametrize(
    ("command", "more", "words"),
    [
        ("bench", ("--timeout", "1e10"), ("--timeout", "604800")),
        ("bench", ("--timeout", "nan"), ("--timeout", "no number of seconds")),
        ("bench", ("--timeout", "0"), ("--timeout",)),
        ("evolve", ("--timeout", "1e10"), ("--timeout", "604800")),
        ("evolve", ("--wall-time", "1e10"), ("--wall-time", "604800")),
        ("check", ("--timeout", "1e10"), ("--timeout", "604800")),
        ("loop", ("--lock-wait", "1e10"), ("--lock-wait", "604800")),
        ("bench", ("--min-improvement-pct", "nan"), ("--min-improvement-pct", "no number")),
        ("bench", ("--base-url", "http://u:s3cret@x"), ("--base-url", "https://host")),
        ("evolve", ("--base-url", "http://u:s3cret@x"), ("--base-url", "https://host")),
        ("bench", ("--base-url", "ftp://x"), ("--base-url", "ftp://x")),
        ("bench", ("--key-env", "FAIRTRIAL=NOT_SET"), ("--key-env", "FAIRTRIAL=NOT_SET")),
        ("evolve", ("--key-env", "FAIRTRIAL_NOT_SET"), ("--key-env", "FAIRTRIAL_NOT_SET")),
        ("bench", ("--key-file", "/nonexistent/key"), ("--key-file", "/nonexistent/key")),
        ("evolve", ("--key-file", "."), ("--key-file", "no file that can be read")),
        ("bench", ("--key-file", "k", "--key-env", "PATH"), ("--key-env and --key-file", "give one")),
    ],
)
def test_what_no_sweep_can_be_made_with_is_refused_before_the_tasks_are_read(
    command: str, more: tuple[str, ...], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*WORDS[command], *more]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words)
    assert "s3cret" not in said


@pytest.mark.parametrize(
    ("place", "words"), [("file", "not a directory"), ("file/below", "Not a directory"), ("full", "is not empty")]
)
@pytest.mark.parametrize("command", ["bench", "evolve", "loop"])
def test_a_dry_run_refuses_the_results_directory_that_the_sweep_would_refuse(
    command: str, place: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    assert run([*WORDS[command], "--out", str(tmp_path / place), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert (str(tmp_path / place) in said, words in said) == (True, True)
    assert run(["loop", "--out", str(tmp_path / "new" / "one"), "--dry-run", "--runs", "1"]) == 0
    assert not (tmp_path / "new").exists()
