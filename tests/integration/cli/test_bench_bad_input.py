"""Bad input of the agent lane: one line that says where, what and the remedy, the right exit code, nothing made."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(600), pytest.mark.xdist_group("bench-bad-input")]

Sweep = Any
Done = subprocess.CompletedProcess[str]
USAGE: Final = {"uncached_input": 10, "output": 1}
# Whoever runs the tests, this is somebody to whom permissions apply.
NOBODY: Final = ("bwrap", "--dev-bind", "/", "/", "--unshare-user", "--uid", "1000", "--gid", "1000", "--")


def run(argv: list[str]) -> Done:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=500)


def assert_explained(done: Done, code: int, *words: str) -> None:
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr + done.stdout
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("fairtrial: error: ")
    for word in words:
        assert word in line


@pytest.fixture
def scripted(sweep: Sweep) -> list[str]:
    """The options of a sweep whose model is played by a good script."""
    turn = {"text": "Done.", "usage": USAGE}
    return ["--script", str(sweep.write_script([{"name": "any", "turns": [turn], "beyond": "repeat"}])), "--runs", "1"]


def broken_task(change: Callable[[dict[str, Any]], object]) -> Callable[[Sweep], str]:
    """The task file with a change in its task, a key a line."""

    def make(sweep: Sweep) -> str:
        document = json.loads((sweep.root / "tasks.yaml").read_text())
        change(document["tasks"][0])
        return json.dumps(document, indent=2)

    return make


TASK_FILES: Final[dict[str, tuple[Callable[[Sweep], str | bytes], tuple[str, ...]]]] = {
    "an unknown key": (
        broken_task(lambda task: task.update(verfy="true")),
        ("tasks.yaml:", "verfy", "did you mean 'verify'"),
    ),
    "no oracle": (broken_task(lambda task: task.pop("oracle")), ("tasks.yaml:3:", "oracle")),
    "a truth that is a word": (broken_task(lambda task: task.update(expensive="yes")), ("tasks.yaml:", "expensive")),
    "a file that is not there": (
        broken_task(lambda task: task["oracle"]["files"][0].update(source="test_hiden.py")),
        ("test_hiden.py",),
    ),
    "no repository": (broken_task(lambda task: task.update(repo="nowhere")), ("nowhere",)),
    "no such commit": (broken_task(lambda task: task.update(ref="v9.9")), ("v9.9",)),
    "twice the same id": (
        lambda sweep: json.dumps({"tasks": json.loads((sweep.root / "tasks.yaml").read_text())["tasks"] * 2}),
        ("tasks.yaml:1:", "mend-add"),
    ),
    "a list": (lambda _: "- id: a\n", ("tasks.yaml",)),
    "no tasks": (lambda _: "tasks: []\n", ("tasks.yaml", "tasks")),
    "a key twice": (lambda _: "tasks: []\ntasks: []\n", ("tasks.yaml:2:1", "tasks")),
    "an open bracket": (lambda _: "tasks: [\n", ("tasks.yaml:",)),
    "nothing": (lambda _: "", ("tasks.yaml",)),
    "no text": (lambda _: b"\xff\xfe\x00", ("tasks.yaml",)),
}


@pytest.mark.parametrize("name", TASK_FILES)
def test_a_wrong_task_file_is_named_with_the_place_and_nothing_is_made(
    name: str, sweep: Sweep, scripted: list[str]
) -> None:
    make, words = TASK_FILES[name]
    text = make(sweep)
    (sweep.root / "tasks.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert_explained(run(sweep.command(*scripted)), 2, *words)
    assert not sweep.out.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("arms:\n  mine:\n    phases:\n      - {promt: '{task}'}\n", (":4:", "promt", "did you mean 'prompt'")),
        ("arms:\n  mine:\n    phases: []\n", (":3:", "phases")),
        ("arms:\n  mine:\n    agent: bash-agnt\n    phases: [{prompt: '{task}'}]\n", ("bash-agnt", "bash-agent")),
        ("arms:\n  other:\n    phases: [{prompt: '{task}'}]\n", ("mine", "other")),
        ("arms: {\n", ("arms.yaml:",)),
        ("", ("arms.yaml",)),
    ],
    ids=["an unknown key", "no phase", "no agent", "another name", "no YAML", "nothing"],
)
def test_a_wrong_arms_file_is_named_with_the_place(
    text: str, words: tuple[str, ...], sweep: Sweep, scripted: list[str]
) -> None:
    path = sweep.root / "arms.yaml"
    path.write_text(text)
    assert_explained(run(sweep.command(*scripted, "--arms-file", path, arms="mine")), 2, *words)
    assert not sweep.out.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema: script/1\nagnets: []\n", ("script.yaml:2:1", "agnets", "did you mean 'agents'")),
        ("schema: script/9\nagents: []\n", ("script.yaml:", "script/9")),
        (
            "schema: script/1\nagents:\n  - {name: a, turns: []}\n",
            ("script.yaml:3:", "an agent needs at least one turn"),
        ),
        ("schema: script/1\nagents: [\n", ("script.yaml:",)),
        ("", ("script.yaml",)),
    ],
    ids=["an unknown key", "another schema", "no turn", "no YAML", "nothing"],
)
def test_a_wrong_script_is_named_with_the_place_before_anything_is_made(
    text: str, words: tuple[str, ...], sweep: Sweep
) -> None:
    path = sweep.root / "script.yaml"
    path.write_text(text)
    assert_explained(run(sweep.command("--script", path)), 2, *words)
    assert not sweep.out.exists()


@pytest.mark.parametrize("option", ["--tasks", "--arms-file", "--script"])
@pytest.mark.parametrize("what", ["missing", "directory"])
def test_a_file_that_is_none_is_named(option: str, what: str, sweep: Sweep, scripted: list[str]) -> None:
    path = sweep.root / "nowhere.yaml"
    if what == "directory":
        path.mkdir()
    assert_explained(run(sweep.command(*scripted, option, path)), 2, str(path))
    assert not sweep.out.exists()


def test_an_unwritable_results_directory_is_refused_with_the_option(sweep: Sweep, scripted: list[str]) -> None:
    locked = sweep.root / "locked"
    locked.mkdir(mode=0o500)
    done = run([*NOBODY, *sweep.command(*scripted, "--out", locked / "r")])
    assert_explained(done, 2, str(locked / "r"), "cannot be written", "--out")
    assert list(locked.iterdir()) == []


def test_a_results_directory_that_is_a_file_or_holds_something_is_left_alone(sweep: Sweep, scripted: list[str]) -> None:
    sweep.out.write_text("mine")
    assert_explained(run(sweep.command(*scripted)), 2, f"{sweep.out}: not a directory", "--out")
    assert sweep.out.read_text() == "mine"
    other = sweep.root / "other"
    other.mkdir()
    (other / "mine").write_text("mine")
    assert_explained(
        run(sweep.command(*scripted, "--out", other)), 2, f"{other}: is not empty", "new or empty", "resume"
    )
    assert [path.name for path in other.iterdir()] == ["mine"]


def test_the_results_directory_of_a_live_sweep_is_left_alone_and_its_process_named(
    sweep: Sweep, wait_for: Callable[..., None]
) -> None:
    sleep = {"calls": [{"tool": "Bash", "input": {"command": "sleep 500", "timeout_s": 500}}], "usage": USAGE}
    script = sweep.write_script([{"name": "any", "turns": [sleep, {"text": "Done.", "usage": USAGE}]}])
    with sweep.start("--runs", 1, "--script", script) as live:
        try:
            wait_for(lambda: live.poll() is not None or list(sweep.out.glob("trials/*/1/wire-*.jsonl")))
            again = run(sweep.command("--runs", "1", "--script", script))
            assert_explained(again, 2, str(sweep.out), "is not empty")
            assert_explained(sweep.resume(), 2, str(sweep.out), str(live.pid))
            assert live.poll() is None
        finally:
            live.terminate()
            live.communicate(timeout=120)
    assert live.returncode == 128 + 15
    assert [row["error_kind"] for row in sweep.rows] == ["cancelled"]


@pytest.fixture
def disk(public_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of its own, as large as the test says."""
    place = public_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.root
@pytest.mark.parametrize("disk", ["2m"], indirect=True)
def test_a_disk_too_small_for_the_results_is_refused_before_anything_runs(
    disk: Path, sweep: Sweep, scripted: list[str]
) -> None:
    done = run(sweep.command(*scripted, "--out", disk / "r"))
    assert_explained(done, 3, str(disk / "r"), "bytes free", "--out")


@pytest.mark.root
@pytest.mark.parametrize("disk", ["24m"], indirect=True)
def test_a_disk_that_is_nearly_full_begins_no_trial_and_resume_finishes_after_room_is_made(
    disk: Path, sweep: Sweep, scripted: list[str]
) -> None:
    ballast, out = disk / "ballast", disk / "r"
    ballast.write_bytes(bytes(6 << 20))
    assert_explained(run(sweep.command(*scripted, "--out", out)), 3, "too little space", "resume")
    assert not list(out.glob("trials/*/*/wire-*"))
    ballast.unlink()
    again = run([sys.executable, "-m", "fairtrial", "resume", str(out)])
    assert again.returncode == 0, again.stderr
    assert run([sys.executable, "-m", "fairtrial", "audit", str(out)]).returncode == 0


@pytest.mark.root
@pytest.mark.parametrize("disk", ["64k"], indirect=True)
def test_a_full_scratch_directory_is_named_with_its_option(disk: Path, sweep: Sweep, scripted: list[str]) -> None:
    disk.chmod(0o711)
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(64 << 10))
    done = run(sweep.command(*scripted, "--scratch", disk))
    assert_explained(done, 3, str(disk), "--scratch")
    assert list(disk.iterdir()) == [ballast]
