import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairtrial.errors import HostError, UsageError
from fairtrial.host.files import TEMPORARY
from fairtrial.store.layout import (
    Results,
    create_results,
    explain_failure,
    explain_refusal,
    hold,
    open_results,
    trial_name,
)

NOW = datetime(2026, 11, 29, 13, 1, tzinfo=UTC)


def test_the_default_directory_is_named_after_lane_and_second_and_never_shared(tmp_path: Path) -> None:
    base = tmp_path / "deep" / "results"
    made = [create_results(None, lane="loop", now=NOW, base=base) for _ in range(3)]
    names = ["loop-20261129T130100Z", "loop-20261129T130100Z-2", "loop-20261129T130100Z-3"]
    assert [results.root for results in made] == [base / name for name in names]
    assert all(results.trials.is_dir() for results in made)


def test_out_names_the_directory_itself_absent_or_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "a" / "b"):
        assert create_results(out, lane="loop", now=NOW, base=tmp_path / "unused").root == out
    assert not (tmp_path / "unused").exists()


def test_out_that_is_not_empty_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"is not empty; name a new .*fairtrial resume"):
        create_results(tmp_path, lane="loop", now=NOW, base=tmp_path)


@pytest.mark.parametrize("half_written", [False, True])
def test_what_was_killed_before_it_had_begun_is_told_from_a_sweep(tmp_path: Path, *, half_written: bool) -> None:
    root = create_results(tmp_path / "r", lane="loop", now=NOW, base=tmp_path).root
    if half_written:
        (root / f"{TEMPORARY}0123456789abcdef").touch()
    for meet in (lambda: create_results(root, lane="loop", now=NOW, base=tmp_path), lambda: open_results(root)):
        with pytest.raises(UsageError, match="killed before that, and nothing is lost; remove the directory"):
            meet()
    (root / "trials" / "0123456789abcdef").mkdir()
    with pytest.raises(UsageError, match=r"no sweep\.json"):
        open_results(root)


@pytest.mark.parametrize("below", [".", "below"])
def test_out_that_is_no_directory_is_refused_with_the_remedy(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"(?i)not a directory.*--out"):
        create_results(tmp_path / "file" / below, lane="loop", now=NOW, base=tmp_path)


def test_out_on_a_file_system_that_cannot_be_written_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises((UsageError, HostError), match=r"--out"):
        create_results(Path("/proc/results"), lane="loop", now=NOW, base=tmp_path)


@pytest.mark.unprivileged
def test_out_that_may_not_be_written_is_refused_with_the_remedy(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(UsageError, match=r"cannot be written \(Permission denied\).*--out"):
            create_results(tmp_path / "new", lane="loop", now=NOW, base=tmp_path)
        with pytest.raises(UsageError, match=r"cannot be written \(Permission denied\).*--out"):
            create_results(tmp_path, lane="loop", now=NOW, base=tmp_path)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(13, UsageError), (17, UsageError), (30, UsageError), (28, HostError), (122, HostError), (5, HostError)],
)
def test_every_refusal_of_the_system_names_place_reason_and_remedy(number: int, kind: type[Exception]) -> None:
    error = explain_refusal(Path("/x"), OSError(number, os.strerror(number)))
    assert isinstance(error, kind)
    assert str(error).startswith("/x: ")
    assert os.strerror(number) in str(error)
    assert "--out" in str(error)


@pytest.mark.parametrize("number", [1, 5, 13, 28, 30, 122])
def test_every_failure_of_a_directory_in_use_is_the_hosts_and_names_place_reason_and_remedy(number: int) -> None:
    error = explain_failure(Path("/x"), OSError(number, os.strerror(number)))
    assert isinstance(error, HostError)
    assert str(error).startswith("/x: ")
    assert os.strerror(number) in str(error)
    assert "then `fairtrial resume /x`" in str(error)


def test_only_a_directory_with_a_sweep_file_is_opened(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a results directory; name one"):
        open_results(tmp_path / "absent")
    with pytest.raises(UsageError, match=r"it has no sweep\.json"):
        open_results(tmp_path)
    (tmp_path / "sweep.json").touch()
    assert open_results(tmp_path) == Results(root=tmp_path)


def test_a_trial_lies_under_the_digest_of_its_key() -> None:
    results = Results(root=Path("/r"))
    assert trial_name("abc") == "ba7816bf8f01cfea"  # FIPS 180-2, appendix B.1
    assert results.attempt_dir("abc", 12) == Path("/r/trials/ba7816bf8f01cfea/12")
    names = [
        results.report_md,
        results.report_html,
        results.report_json,
        results.promotion_json,
        results.set_aside,
    ]
    assert [path.name for path in names] == ["report.md", "report.html", "report.json", "promotion.json", "set-aside"]


def test_a_directory_held_by_a_live_sweep_is_refused_by_the_name_of_its_process(tmp_path: Path) -> None:
    results = create_results(tmp_path / "results", lane="loop", now=NOW, base=tmp_path)
    holder = rf"a live sweep writes there: .*results: .*pid {os.getpid()}"
    with hold(results), pytest.raises(UsageError, match=holder):
        hold(results)
    hold(results).release()


def test_the_hold_ends_with_its_process(tmp_path: Path) -> None:
    results = create_results(tmp_path / "results", lane="loop", now=NOW, base=tmp_path)
    code = (
        "import sys, os; from pathlib import Path; from fairtrial.store.layout import Results, hold\n"
        f"held = hold(Results(root=Path({str(results.root)!r}))); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match=f"pid {child.pid}"):
            hold(results)
        child.kill()
        child.wait()
        hold(results).release()
