"""The tool lane from the command line: a sweep, its records, its reports, its exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairtrial.host.lock import HOST_LOCK_PATH, acquire_lock

pytestmark = [pytest.mark.needs("git"), pytest.mark.xdist_group("measurement"), pytest.mark.timeout(400)]


def fairtrial(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fairtrial", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=300)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    out = tmp_path_factory.mktemp("sweep") / "r"
    scenarios = "task_loop,agent_task_baseline_v1"
    done = fairtrial(
        "loop", "--scenarios", scenarios, "--transport", "file,http,hosted", "--runs", 2, "--out", out, "--json"
    )
    assert done.returncode == 0, done.stderr
    return out, done


def rows_of(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def test_json_is_one_object_with_a_schema_and_the_seal(sweep: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, done = sweep
    value = json.loads(done.stdout)
    assert value["schema"] == "loop-report/1"
    assert value["results"] == str(out)
    assert value["sealed"] is True
    audited = fairtrial("audit", out, "--expect", value["seal"], "--json")
    assert audited.returncode == 0, audited.stdout
    assert json.loads(audited.stdout)["complete"] is True


def test_progress_goes_to_standard_error_a_line_an_attempt(
    sweep: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, done = sweep
    finals = [row for row in rows_of(out) if row["final"]]
    lines = [line for line in done.stderr.splitlines() if line.startswith("fairtrial: [")]
    assert len(lines) == len(finals)


def test_every_planned_trial_has_rows_with_the_total_last(sweep: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, _ = sweep
    plan = json.loads((out / "sweep.json").read_text())["plan"]
    rows = rows_of(out)
    assert [row["key"] for row in rows if row["final"]] == [entry["key"] for entry in plan]
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    for row in rows:
        if row["final"]:
            assert str(row["operation"]).endswith((".total", ".skipped"))


def test_what_cannot_be_measured_is_one_visible_row_a_cell(
    sweep: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, _ = sweep
    skips = {
        (row["scenario"], row["remote_transport"]): row
        for row in rows_of(out)
        if str(row["operation"]).endswith(".skipped")
    }
    assert set(skips) == {
        ("task_loop", "hosted"),
        ("agent_task_baseline_v1", "http"),
        ("agent_task_baseline_v1", "hosted"),
    }
    assert all(row["returncode"] == 77 and row["skip_reason"] for row in skips.values())


def test_each_row_carries_what_its_time_depends_on(sweep: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, _ = sweep
    for row in rows_of(out):
        assert row["filesystem_type"]
        assert row["filesystem_options"]
        assert isinstance(row["load_1m"], float)
        assert row["measurement_lock"] == "held"
        assert row["subject_versions"]["git"].startswith("git version")  # type: ignore[index,call-overload]
        assert row["trial_order_seed"] == 20260908


def test_report_renders_again_and_changes_nothing(sweep: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, _ = sweep
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert fairtrial("report", out, "--markdown").stdout == (out / "report.md").read_text()
    again = json.loads(fairtrial("report", out, "--json").stdout)
    assert again == json.loads((out / "report.json").read_text())
    bare = json.loads(fairtrial("report", out / "results.jsonl", "--json").stdout)
    for subject in (each for section in again["sections"] for each in section["subjects"]):
        subject["planned"] = None  # bare rows have no plan
    assert bare == again | {"sealed": False, "planned": None, "uncounted": None}
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_resuming_a_finished_sweep_runs_nothing_and_keeps_the_seal(
    sweep: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, done = sweep
    again = fairtrial("resume", out, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["seal"] == json.loads(done.stdout)["seal"]


def test_an_edited_number_in_a_report_is_named(
    sweep: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    out, _ = sweep
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(out), str(copy)], check=True)
    text = (copy / "report.md").read_text()
    (copy / "report.md").write_text(text.replace("pass", "pASS", 1))
    audited = fairtrial("audit", copy)
    assert audited.returncode == 4
    assert "report.md" in audited.stdout


@pytest.mark.parametrize("edit", [{}, {"loop": {"scenario": "task_loop"}}, {"loop": {"scenario": "unheard_of"}}])
def test_a_plan_that_does_not_say_what_was_planned_is_no_report(
    sweep: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path, edit: dict[str, object]
) -> None:
    out, _ = sweep
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(out), str(copy)], check=True)
    document = json.loads((copy / "sweep.json").read_text())
    document["plan"][0] = {name: value for name, value in document["plan"][0].items() if name != "loop"} | edit
    (copy / "sweep.json").write_text(json.dumps(document))
    refused = fairtrial("report", copy)
    assert refused.returncode == 4, refused.stderr
    assert f"{copy}/sweep.json: not a plan that this version understands" in refused.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_sweep_says_so_and_resume_finishes_it(number: signal.Signals, tmp_path: Path) -> None:
    for n_runs in (3, 20):
        out = tmp_path / f"r{n_runs}"
        command = [sys.executable, "-m", "fairtrial", "loop", "--runs", str(n_runs), "--out", str(out)]
        pipe = subprocess.PIPE
        live = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        deadline = time.monotonic() + 200
        # Before its first trial it may wait for another measurement on this host, and has nothing to report.
        while live.poll() is None and not list(out.glob("trials/*/*/intent.json")) and time.monotonic() < deadline:
            time.sleep(0.02)
        if live.returncode is None:
            os.killpg(live.pid, number)
        _, said = live.communicate(timeout=100)
        if live.returncode != 0:
            break  # else the short one was over before the signal came
    assert live.returncode == 128 + number, said
    assert "fairtrial resume" in said
    assert not (out / "seal.json").exists()
    report, rows = json.loads((out / "report.json").read_text()), [row for row in rows_of(out) if row["final"]]
    n_planned = len(json.loads((out / "sweep.json").read_text())["plan"])
    assert n_planned == report["planned"] == 2 * n_runs
    cancelled = [(row["subject"], row["run"]) for row in rows if row["error_kind"] == "cancelled"]
    assert [(void["subject"], void["run"]) for void in report["void"]] == cancelled
    subjects = [each for section in report["sections"] for each in section["subjects"]]
    assert sum(each["planned"] for each in subjects) == n_planned
    assert sum(each["not_begun"] for each in subjects) == n_planned - len(rows)
    assert report["uncounted"] == n_planned - len(rows) + len(cancelled)
    assert f"INCOMPLETE: {report['uncounted']} of {n_planned} planned trials" in (out / "report.md").read_text()
    again = fairtrial("resume", out)
    assert again.returncode == 0, again.stderr
    assert fairtrial("audit", out).returncode == 0
    assert "INCOMPLETE" not in (out / "report.md").read_text()


def test_a_worker_that_is_killed_makes_one_interrupted_row_and_the_sweep_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "r"
    command = [sys.executable, "-m", "fairtrial", "loop", "--runs", "3", "--out", str(out)]
    live = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while not list(out.glob("trials/*/*/intent.json")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    worker = int(Path(f"/proc/{live.pid}/task/{live.pid}/children").read_text().split()[0])
    os.kill(worker, signal.SIGSTOP)
    while all((path.parent / "outcome.json").exists() for path in out.glob("trials/*/*/intent.json")):
        os.kill(worker, signal.SIGCONT)  # it was between two trials: nothing would be interrupted
        time.sleep(0.02)
        os.kill(worker, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    _, said = live.communicate(timeout=200)
    assert live.returncode == 5, said
    kinds = [row["error_kind"] for row in rows_of(out) if row["final"]]
    assert kinds.count("interrupted") == 1
    assert kinds.count(None) == 5
    again = fairtrial("resume", out)
    assert again.returncode == 0, again.stderr
    assert len([row for row in rows_of(out) if row["final"]]) == 7


def test_a_failed_truth_check_ends_the_sweep_with_one(tmp_path: Path) -> None:
    liar = tmp_path / "git"
    liar.write_text('#!/bin/sh\nfor word; do [ "$word" = origin ] && exit 0; done\nexec /usr/bin/git "$@"\n')
    liar.chmod(0o755)
    path = tmp_path / "subjects.toml"
    path.write_text(f'[subject.liar]\nsubject = "git"\nbinary = "{liar}"\n')
    out = tmp_path / "r"
    done = fairtrial("loop", "--subjects-file", path, "--subjects", "liar", "--runs", 1, "--out", out)
    assert done.returncode == 1, done.stderr
    totals = [row for row in rows_of(out) if row["final"]]
    assert [total["oracle_payload_on_remote_branch"] for total in totals] == [False, False]


def test_dry_run_prints_the_plan_and_makes_nothing(tmp_path: Path) -> None:
    done = fairtrial("loop", "--runs", 2, "--dry-run", "--json", cwd=tmp_path)
    assert [entry["plan_index"] for entry in json.loads(done.stdout)["plan"]] == [0, 1, 2, 3]
    assert list(tmp_path.iterdir()) == []


def test_kept_workspaces_are_named_and_output_that_is_not_admitted_costs_nothing(tmp_path: Path) -> None:
    scratch, out = tmp_path / "s", tmp_path / "r"
    scratch.mkdir()
    asked = ["--keep-workspaces", "--scratch", scratch, "--admitted-output-characters", 0]
    done = fairtrial("loop", "--scenarios", "agent_task_baseline_v1", "--runs", 1, *asked, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    kept = Path(json.loads(done.stdout)["workspaces"])
    assert kept.parent == scratch
    assert [*kept.rglob("task-notes.md")]
    steps = [row for row in rows_of(out) if row["step_kind"] == "vcs"]
    assert {row["admitted_output_characters"] for row in steps} == {0}
    assert any(row["output_characters"] for row in steps)


def test_a_sweep_that_will_not_wait_names_who_is_measuring(tmp_path: Path) -> None:
    out = tmp_path / "r"
    with acquire_lock(HOST_LOCK_PATH, wait_s=300, on_wait=lambda _: None):
        done = fairtrial("loop", "--runs", 1, "--lock-wait", 0, "--out", out)
    assert done.returncode == 3, done.stderr
    assert f"still locked by pid {os.getpid()} " in done.stderr
    assert not [*out.glob("trials/*")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_sweep_that_is_stopped_while_it_waits_ends_at_once_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    out, scratch = tmp_path / "r", tmp_path / "s"
    scratch.mkdir()
    words = ["loop", "--transport", "file", "--runs", "1", "--out", str(out), "--scratch", str(scratch)]
    with acquire_lock(HOST_LOCK_PATH, wait_s=300, on_wait=lambda _: None):
        waits = subprocess.Popen(
            [sys.executable, "-m", "fairtrial", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert waits.stderr is not None
        assert any("waiting up to" in line for line in iter(waits.stderr.readline, ""))
        waits.send_signal(number)
        _, said = waits.communicate(timeout=300)
    assert waits.returncode == 128 + number, said
    assert "stopped; go on with: " in said
    assert list(scratch.iterdir()) == []
    assert fairtrial("audit", out).returncode == 5, "sound, and not complete"


def test_a_credential_variable_reaches_the_client_of_a_hosted_remote_and_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, trace, out = tmp_path / "hosted.git", tmp_path / "trace", tmp_path / "r"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(remote)], check=True)
    hook = remote / "hooks" / "pre-receive"
    hook.write_text('#!/bin/sh\necho "so you are $GIT_TRACE"\ncase $(cat) in *followup*) exit 1 ;; esac\n')
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_TRACE", str(trace))
    hosted = ["loop", "--transport", "hosted", "--remote-is-disposable", f"file://{remote}", "--runs", 1]
    done = fairtrial(*hosted, "--credential-env", "GIT_TRACE", "--out", out)
    assert done.returncode == 1, "the server refuses one publication, so that its words are in a row"
    assert trace.exists()
    assert any("so you are [redacted:secret]" in str(row.get("stderr")) for row in rows_of(out))
    assert str(trace).encode() not in b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    monkeypatch.delenv("GIT_TRACE")
    unset = fairtrial(*hosted, "--credential-env", "GIT_TRACE", "--out", tmp_path / "u")
    assert unset.returncode == 0, unset.stderr
    (row,) = rows_of(tmp_path / "u")
    assert row["returncode"] == 77
    assert "GIT_TRACE" in str(row["skip_reason"])


def test_resume_removes_the_scratch_of_an_earlier_pass_wherever_it_was(tmp_path: Path) -> None:
    out, first, second = tmp_path / "r", tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    command = [
        sys.executable,
        "-m",
        "fairtrial",
        "-q",
        "loop",
        "--runs",
        "2",
        "--out",
        str(out),
        "--scratch",
        str(first),
    ]
    live = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while not list(out.glob("trials/*/*/intent.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    live.send_signal(signal.SIGSTOP)  # so that it does not end meanwhile
    copy = tmp_path / "copy"
    # Its worker goes on, and what it renames meanwhile is not found: cp says so and copies the rest.
    subprocess.run(["cp", "-a", str(out), str(copy)], check=False, stderr=subprocess.DEVNULL)
    copied = fairtrial("resume", copy)
    assert copied.returncode == 2, copied.stderr
    assert f"this is a copy of a directory whose sweep is alive: {first}" in copied.stderr
    assert live.poll() is None
    live.kill()
    live.wait(60)
    assert list(first.iterdir()) != []
    again = fairtrial("resume", out, "--scratch", second)
    assert again.returncode == 0, again.stderr
    assert list(first.iterdir()) == []
    assert list(second.iterdir()) == []


def test_an_attempt_that_died_before_its_intent_is_named_interrupted_and_the_records_stay_sound(tmp_path: Path) -> None:
    out = tmp_path / "r"
    assert fairtrial("loop", "--runs", 1, "--out", out).returncode == 0
    attempts = [path.parent.relative_to(out) for path in out.glob("trials/*/*/intent.json")]
    for name in ("trials", "results.jsonl", "seal.json", "report.md", "report.json"):
        subprocess.run(["rm", "-r", str(out / name)], check=True)
    (out / attempts[0]).mkdir(parents=True)
    again = fairtrial("resume", out)
    assert again.returncode == 0, again.stderr
    assert [row["error_kind"] for row in rows_of(out) if row["final"]].count("interrupted") == 1
    assert fairtrial("audit", out).returncode == 0
