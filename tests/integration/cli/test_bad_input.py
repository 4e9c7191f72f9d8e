"""Bad input gets one line that says where, what and the remedy, and the right exit code; nothing is lost."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.xdist_group("measurement"), pytest.mark.timeout(400)]


def fairtrial(
    *arguments: object, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fairtrial", *map(str, arguments)]
    environment = {**os.environ, **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=cwd, timeout=300)


def assert_explained(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr + done.stdout
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("fairtrial: error: ")
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["loop", "--scenarios", "tsk_loop"],
            ["unknown scenario 'tsk_loop'", "did you mean 'task_loop'", "--scenarios"],
        ),
        (["loop", "--subjects", "gti"], ["unknown subject 'gti'", "did you mean 'git'", "--subjects"]),
        (["loop", "--transport", "htpp"], ["unknown transport 'htpp'", "did you mean 'http'"]),
        (["loop", "--subjects", ""], ["--subjects names nothing"]),
        (["loop", "--subjects", "git,git"], ["git more than once"]),
        (["loop", "--runs", "0"], ["--runs"]),
        (["loop", "--runs", "three"], ["--runs"]),
        (["loop", "--lock-wait", "-1"], ["--lock-wait"]),
        (["loop", "--lock-wait", "nan"], ["--lock-wait", "no number of seconds"]),
        (["resume", ".", "--lock-wait", "nan"], ["--lock-wait", "no number of seconds"]),
        (["loop", "--out", ""], ["--out", "empty"]),
        (["loop", "--admitted-output-characters", "-1"], ["--admitted-output-characters"]),
        (["loop", "--remote-is-disposable", "https://me:secret@host/x"], ["credential", "--credential-env"]),
        (["loop", "--credential-env", "TOKEN"], ["--credential-env", "--transport does not name hosted"]),
        (["loop", "--transport", "hosted", "--credential-env", "TOKEN=x"], ["--credential-env", "no name of a var"]),
        (["loop", "--transport", "hosted", "--credential-env", ""], ["--credential-env", "no name of a variable"]),
        (["loop", "--faults", "status_500"], ["--faults", "add publication_under_fault_v1"]),
        (["loop", "--frobnicate"], ["--frobnicate"]),
        (["lop"], ["lop"]),
        (["report", "/nonexistent/rows.jsonl"], ["/nonexistent/rows.jsonl"]),
        (["audit", "/nonexistent"], ["/nonexistent", "results directory"]),
        (["resume", "/nonexistent"], ["/nonexistent", "results directory"]),
        (["trial", "/nonexistent/spec.json"], ["/nonexistent/spec.json"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_argument_is_a_usage_error_that_names_it(
    arguments: list[str], words: list[str], tmp_path: Path
) -> None:
    done = fairtrial(*arguments, cwd=tmp_path)
    assert_explained(done, 2, *words)
    assert "secret" not in done.stderr + done.stdout or "secret@" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[subject.tuned]\nsubject = "git"\nsetings = {}\n', [":3:1", "setings", "did you mean 'settings'"]),
        ('[subject.tuned]\nsubject = "gti"\n', [":2:1", "gti", "did you mean 'git'"]),
        ("[subject.tuned]\nlabel = 1\n", ["subject.tuned"]),
        ("[subject.tuned\n", [":1:"]),
        ('[subject.git]\nsubject = "git"\n', [":1:", "cannot name a variant"]),
        ('[subject."a,b"]\nsubject = "git"\n', [":1:", "cannot name a variant"]),
        ('[subject."tu\\nned"]\nsubject = "git"\n', [":1:", "control character"]),
        ('[subject.tuned]\nsubject = "oak"\nsettings = { push_option = "-x" }\n', [":3:", "tuned", "push_options"]),
        ("\x00", []),
        ('[subject.tuned]\nsubject = "git"\nsubject = "git"\n', [":3:"]),
    ],
)
def test_a_wrong_subjects_file_names_file_line_and_column(text: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "subjects.toml"
    path.write_text(text)
    done = fairtrial("loop", "--subjects-file", path, "--subjects", "tuned", cwd=tmp_path)
    assert_explained(done, 2, *words)
    assert str(path) in done.stderr


def test_an_error_with_json_is_one_object_on_standard_output(tmp_path: Path) -> None:
    done = fairtrial("loop", "--json", "--scenarios", "nope", cwd=tmp_path)
    assert json.loads(done.stdout)["schema"] == "error/1"
    assert json.loads(done.stdout)["exit_code"] == 2


@pytest.mark.needs("git")
def test_a_missing_git_stops_the_sweep_with_the_install_command(tmp_path: Path) -> None:
    done = fairtrial("loop", "--out", tmp_path / "r", env={"PATH": "/nonexistent"}, cwd=tmp_path)
    assert_explained(done, 3, "git", "apt-get install git")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("version", ["git version 1.8.3", "not git at all"])
def test_an_ancient_git_and_a_program_that_is_no_git_are_refused(version: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "git"
    fake.write_text(f"#!/bin/sh\necho '{version}'\n")
    fake.chmod(0o755)
    done = fairtrial(
        "loop", "--out", tmp_path / "r", env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}, cwd=tmp_path
    )
    assert_explained(done, 3, version, "apt-get install git")


@pytest.mark.needs("git")
def test_a_missing_subject_beside_a_usable_one_is_a_visible_row(tmp_path: Path) -> None:
    path = tmp_path / "subjects.toml"
    path.write_text('[subject.elsewhere]\nsubject = "git"\nbinary = "/nonexistent/git"\n')
    arguments = ["loop", "--subjects-file", path, "--subjects", "git,elsewhere", "--runs", "1", "--out", tmp_path / "r"]
    done = fairtrial(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "r" / "results.jsonl").read_text().splitlines()]
    (skip,) = [row for row in rows if row["subject"] == "elsewhere"]
    assert skip["returncode"] == 77
    assert "let the variant's `binary` name git" in skip["skip_reason"]


@pytest.mark.needs("git")
@pytest.mark.unprivileged
def test_an_unwritable_results_directory_is_refused(tmp_path: Path) -> None:
    tmp_path.joinpath("locked").mkdir(mode=0o500)
    done = fairtrial("loop", "--out", tmp_path / "locked" / "r", cwd=tmp_path)
    assert_explained(done, 2, "locked", "--out")


@pytest.mark.needs("git")
def test_a_directory_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "r"
    out.mkdir()
    (out / "mine").write_text("mine")
    done = fairtrial("loop", "--out", out, cwd=tmp_path)
    assert_explained(done, 2, str(out), "not empty")
    assert [path.name for path in out.iterdir()] == ["mine"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.root
@pytest.mark.needs("git")
def test_a_disk_too_small_for_the_reserve_is_refused_before_anything_runs(small_disk: Path, tmp_path: Path) -> None:
    done = fairtrial("loop", "--runs", "1", "--out", small_disk / "r", cwd=tmp_path)
    assert_explained(done, 3, str(small_disk / "r"), "bytes free", "--out")


@pytest.mark.root
@pytest.mark.needs("git")
def test_a_disk_that_fills_up_stops_new_trials_and_resume_finishes_after_room_is_made(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], check=True)
    try:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(6 << 20))
        done = fairtrial("loop", "--runs", "2", "--out", disk / "r", cwd=tmp_path)
        assert_explained(done, 3, "too little space", "resume")
        ballast.unlink()
        again = fairtrial("resume", disk / "r", cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        assert fairtrial("audit", disk / "r").returncode == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.root
@pytest.mark.needs("git")
def test_a_disk_that_is_full_when_a_trial_ends_loses_nothing_of_it(tmp_path: Path) -> None:
    disk, program, calm = tmp_path / "disk", tmp_path / "bin" / "git", tmp_path / "calm"
    disk.mkdir()
    program.parent.mkdir()
    fill = f"dd if=/dev/zero of={disk}/ballast bs=512 2>/dev/null"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = worktree ] && [ ! -e {calm} ] && {fill}\nexec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(disk)], check=True)
    try:
        done = fairtrial("loop", "--runs", "1", "--out", disk / "r", env=env, cwd=tmp_path)
        assert_explained(done, 3, "too little space", "resume")
        calm.touch()
        (disk / "ballast").unlink()
        again = fairtrial("resume", disk / "r", env=env, cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        assert fairtrial("audit", disk / "r").returncode == 0
        rows = [json.loads(line) for line in (disk / "r" / "results.jsonl").read_text().splitlines()]
        assert [(row["attempt"], row["error_kind"]) for row in rows if row["final"]] == [(1, None), (1, None)]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.root
@pytest.mark.needs("git")
def test_no_tool_is_blamed_for_a_full_scratch_directory_and_resume_finishes_in_another(
    small_disk: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r"
    done = fairtrial("loop", "--runs", "1", "--out", out, "--scratch", small_disk, cwd=tmp_path)
    assert_explained(done, 3, str(small_disk), "too little space", "--scratch")
    assert not (out / "results.jsonl").exists() or not (out / "results.jsonl").read_text()
    assert list(small_disk.iterdir()) == []
    asked = fairtrial("doctor", "--scratch", small_disk, "--json", cwd=tmp_path)
    (found,) = [check for check in json.loads(asked.stdout)["checks"] if check["name"] == "scratch"]
    assert (asked.returncode, found["status"]) == (3, "cannot")
    again = fairtrial("resume", out, "--scratch", tmp_path, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert fairtrial("audit", out).returncode == 0


@pytest.mark.needs("git")
def test_a_live_sweep_is_named_and_left_alone_by_resume(tmp_path: Path) -> None:
    out = tmp_path / "r"
    command = [sys.executable, "-m", "fairtrial", "-q", "loop", "--runs", "30", "--out", str(out)]
    live = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (out / "results.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        done = fairtrial("resume", out, cwd=tmp_path)
        assert_explained(done, 2, str(live.pid), str(out))
    finally:
        live.terminate()
        assert live.wait(60) == 128 + 15
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert all(row["error_kind"] in {None, "cancelled"} for row in rows if row["final"])
    assert fairtrial("audit", out).returncode == 5


@pytest.mark.needs("git")
def test_a_changed_input_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    git = shutil.which("git")
    wrapper = tmp_path / "bin" / "git"

    def wrap(version: str) -> None:
        wrapper.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo "git version {version}" && exit\nexec {git} "$@"\n'
        )
        wrapper.chmod(0o755)

    wrap("2.40.0")
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    assert fairtrial("loop", "--runs", "1", "--out", tmp_path / "r", env=env, cwd=tmp_path).returncode == 0
    wrap("2.41.0")
    done = fairtrial("resume", tmp_path / "r", env=env, cwd=tmp_path)
    assert_explained(done, 2, "subject.git.version", "2.40.0", "2.41.0")


@pytest.mark.needs("git")
def test_a_program_that_only_moved_is_no_changed_input_and_is_found_where_it_lies_now(tmp_path: Path) -> None:
    def put(place: str) -> dict[str, str]:
        program = tmp_path / place / "git"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shutil.which("git")} "$@"\n')
        program.chmod(0o755)
        return {"PATH": f"{program.parent}:{os.environ['PATH']}"}

    began, left = tmp_path / "r", tmp_path / "left"
    assert fairtrial("loop", "--runs", "1", "--out", began, env=put("one"), cwd=tmp_path).returncode == 0
    (left / "trials").mkdir(parents=True)  # the same sweep, of which nothing has been done
    shutil.copy(began / "sweep.json", left)
    shutil.rmtree(tmp_path / "one")
    done = fairtrial("resume", left, env=put("two"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "content", ["", "{}\n", '{"scenario": 1}\n', "not json\n", '{"a": NaN}\n', "[" * 100_000 + "\n"]
)
def test_a_bare_file_that_holds_no_rows_is_explained(content: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    done = fairtrial("report", path)
    assert done.returncode in {2, 4}
    assert_explained(done, done.returncode, str(path))
