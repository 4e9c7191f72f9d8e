"""The shipped candidates, from `bench` to `apply`, with the scripted model in the real sandbox."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from fairtrial.bench.tasks import task_binding
from fairtrial.cli.main import run
from fairtrial.errors import UsageError
from fairtrial.host.files import remove_tree
from fairtrial.sweep.bench_inputs import open_inputs, pins_of, private_blobs
from fairtrial.sweep.bench_plan import BenchOptions
from fairtrial.sweep.bench_sweep import begin_bench
from fairtrial.sweep.loop_sweep import SweepOptions

sys.path.insert(0, str(Path(__file__).parent))
from example_project import MODEL, PAIR, bench, fairtrial, git, make_project, promotion_of, rows_of

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(900), pytest.mark.xdist_group("candidates")]

SKILL: Final = "skills/tally-plan/SKILL.md"


@pytest.fixture(scope="module")
def example() -> Iterator[Path]:
    """The example as a project whose skills are committed, one task of which has fresh controls."""
    directory = Path(tempfile.mkdtemp(prefix="", dir=os.environ["TMPDIR"])) / "ex"
    make_project(directory, checked="linear")
    yield directory
    remove_tree(directory.parent)


def test_a_candidate_that_wins_goes_from_bench_to_the_project(example: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    done = fairtrial(*bench(example, "quick", "--rehearsal", "--out", out, "--json"))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["promotion"]
    assert (said["promotable"], said["rehearsal"], said["run_status"]) == (True, True, "complete")
    assert [each["decision"] for each in said["decisions"]] == ["promote"]
    rows = rows_of(out)
    digest = promotion_of(out)["binding"]["candidate_overlay_digest"]
    assert {(row["arm"], row["candidate_overlay_digest"]) for row in rows} == {(PAIR[0], None), (PAIR[1], digest)}
    assert all(row["source"].startswith("fairtrial ") and row["price_table"] for row in rows)
    assert fairtrial("audit", out).returncode == 0

    ask = ("gate", out, "--incumbent", PAIR[0], "--candidate", PAIR[1], "--model", MODEL, "--json")
    earnest, rehearsed = fairtrial(*ask), fairtrial(*ask, "--rehearsal")
    assert (earnest.returncode, rehearsed.returncode) == (1, 0), rehearsed.stdout
    assert [reason["kind"] for reason in json.loads(earnest.stdout)["inadmissible"]] == ["scripted"]
    assert json.loads(rehearsed.stdout)["rehearsal"] is True
    rate = json.loads(rehearsed.stdout)["false_promotion"]
    assert (rate["p_promoted"], rate["n_resamples"]) == (None, 2000), "one task tells nothing"
    assert [each["false_promotion"] for each in said["decisions"]] == [rate]

    project = tmp_path / "project"
    shutil.copytree(example / "skills", project / "skills")
    before = (project / SKILL).read_bytes()
    refused = fairtrial("apply", out, "--project", project)
    assert refused.returncode == 1
    assert "it is a rehearsal" in refused.stderr
    assert (project / SKILL).read_bytes() == before
    done = fairtrial("apply", out, "--project", project, "--rehearsal")
    assert done.returncode == 0, done.stderr
    assert (project / SKILL).read_bytes() == (example / "candidates" / "quick" / SKILL).read_bytes() != before
    remove_tree(out)


def test_a_stricter_policy_refuses_what_a_laxer_one_promotes(example: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    once = ("--runs", "1", "--min-runs", "1", "--rehearsal", "--min-improvement-pct", "50", "--out", out)
    done = fairtrial(*bench(example, "quick", *once))
    assert done.returncode == 0, done.stderr
    promotion = promotion_of(out)
    (decided,) = promotion["decisions"]
    assert (promotion["promotable"], decided["decision"]["decision"]) == (False, "keep_incumbent")
    assert "less than the 50.0 %" in " ".join(decided["decision"]["reasons"])
    assert decided["inadmissible"] == []
    remove_tree(out)


def test_a_scripted_win_in_earnest_promotes_nothing(example: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    done = fairtrial(*bench(example, "quick", "--runs", 1, "--min-runs", 1, "--out", out))
    assert done.returncode == 0, done.stderr
    beside = "How often this policy promotes an equal candidate cannot be told: it takes two runs of each of two tasks"
    assert beside in " ".join(done.stdout.split())
    promotion = promotion_of(out)
    (decided,) = promotion["decisions"]
    assert (promotion["promotable"], promotion["rehearsal"], decided["decision"]["decision"]) == (
        False,
        False,
        "promote",
    )
    assert [reason["kind"] for reason in decided["inadmissible"]] == ["scripted"]
    assert fairtrial("apply", out, "--project", example, "--rehearsal").returncode == 1
    remove_tree(out)


def test_an_outage_leaves_a_promotion_that_nobody_can_use_and_resume_keeps_the_candidate(
    example: Path, tmp_path: Path
) -> None:
    out, script, overlay = tmp_path / "r", tmp_path / "script.json", tmp_path / "overlay"
    fault = {"kind": "status", "parameter": 529, "times": 0}
    turns = [{"text": "never", "fault": fault}]
    script.write_text(json.dumps({"schema": "script/1", "agents": [{"name": "out", "turns": turns}]}))
    shutil.copytree(example / "candidates" / "quick", overlay)
    words = bench(example, "quick", "--runs", 1, "--min-runs", 1, "--rehearsal", "--outage-streak", 1, "--out", out)
    words[words.index("--script") + 1] = str(script)
    words[words.index("--candidate-overlay") + 1] = str(overlay)
    done = fairtrial(*words)
    assert done.returncode == 5, done.stderr
    first = promotion_of(out)
    assert (first["run_status"], first["promotable"]) == ("aborted", False)
    assert fairtrial("apply", out, "--project", example, "--rehearsal").returncode == 1
    (overlay / SKILL).write_text("something else\n")
    done = fairtrial("resume", out)
    assert done.returncode == 5, done.stderr
    again = promotion_of(out)
    assert again["binding"] == first["binding"]
    assert again["run_status"] == "aborted"
    assert fairtrial("audit", out).returncode == 5, "intact, and no trial counts"
    remove_tree(out)


def test_a_killed_sweep_is_finished_with_the_candidate_that_it_began_with(example: Path, tmp_path: Path) -> None:
    out, overlay = tmp_path / "r", tmp_path / "overlay"
    shutil.copytree(example / "candidates" / "quick", overlay)
    words = bench(example, "quick", "--runs", 1, "--min-runs", 1, "--rehearsal", "--out", out)
    words[words.index("--candidate-overlay") + 1] = str(overlay)
    argv = [sys.executable, "-m", "fairtrial", "-q", *words]
    sweep = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and sweep.poll() is None and not list(out.glob("trials/*/1/wire-*.jsonl")):
        time.sleep(0.02)
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    assert not (out / "promotion.json").exists()
    remove_tree(overlay)
    done = fairtrial("resume", out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["promotion"]["run_status"] == "complete"
    promotion = promotion_of(out)
    assert promotion["binding"] == json.loads((out / "sweep.json").read_text())["promotion"]
    (decided,) = promotion["decisions"]
    assert (decided["inadmissible"], decided["decision"]["decision"]) == ([], "promote")
    # What was killed is a void, and counts as a failed run of its arm when the decision is looked at that way.
    killed = {row["arm"] for row in rows_of(out) if row["error_kind"] == "interrupted"}
    assert decided["promotable"] is (PAIR[1] not in killed)
    remove_tree(out)


@pytest.mark.parametrize(
    ("more", "arms", "words"),
    [
        (["--runs", "2"], PAIR, "--runs 2 is less than --min-runs 3"),
        (["--only", "linear,amounts"], PAIR, "the controls of task amounts are missing"),
        (["--only", "linear", "--min-runs", "0"], PAIR, "min"),
        ([], ("workflow",), "use --arms workflow,candidate_workflow"),
        ([], ("candidate_workflow", "workflow"), "use --arms workflow,candidate_workflow"),
        ([], (*PAIR, "baseline"), "no other arm"),
        (["--skill-layout", "plain"], PAIR, "does not lie below .claude/skills/"),
        (["--candidate-overlay", "{ex}/candidates"], PAIR, "does not lie below skills/"),
        (["--candidate-overlay", "{ex}/same"], PAIR, "makes no difference"),
        (["--candidate-overlay", "{ex}/more"], PAIR, "an overlay changes files, it adds none"),
        (["--candidate-overlay", "{ex}/other"], PAIR, "'tally-other', which no arm loads"),
        (["--project", "{ex}/repository"], PAIR, "not in the commit"),
        (["--model", "claude-opus-4-1", "--arms-file", "{ex}/pinned.yaml"], ("p", "candidate_p"), "use --arms"),
    ],
)
def test_a_sweep_that_could_promote_nothing_is_refused_before_it_spends(
    more: list[str],
    arms: tuple[str, ...],
    words: str,
    example: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, path, text in (
        ("same", SKILL, (example / SKILL).read_text()),
        ("more", "skills/tally-plan/more.md", "x\n"),
        ("other", "skills/tally-other/SKILL.md", "x\n"),
    ):
        (example / name / path).parent.mkdir(parents=True, exist_ok=True)
        (example / name / path).write_text(text)
    (example / "pinned.yaml").write_text("arms: {p: {like: workflow, model: claude-sonnet-4-5}}\n")
    given = [word.replace("{ex}", str(example)) for word in more]
    out = tmp_path / "r"
    assert run([*bench(example, "quick", "--rehearsal", "--out", out, arms=",".join(arms)), *given]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


def test_an_arm_that_is_given_another_skill_than_the_project_holds_is_refused(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "tally-plan"
    other.mkdir()
    (other / "SKILL.md").write_text("---\nname: tally-plan\ndescription: x\n---\n")
    words = bench(example, "quick", "--rehearsal", "--out", tmp_path / "r")
    words[words.index(f"--skill=plan={example}/skills/tally-plan")] = f"--skill=plan={other}"
    assert run(words) == 2
    assert "is given another skills/tally-plan/SKILL.md than the project holds" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["given", "committed"])
def test_a_placed_skill_with_another_file_beside_what_the_candidate_changes_is_refused(
    where: str, example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project, other = tmp_path / "project", tmp_path / "tally-plan"
    for into in (project / "skills/tally-plan", other):
        shutil.copytree(example / "skills/tally-plan", into)
    shutil.copytree(example / "skills/tally-work", project / "skills/tally-work")
    words = bench(example, "quick", "--rehearsal", "--out", tmp_path / "r")
    words[words.index(f"--skill=plan={example}/skills/tally-plan")] = f"--skill=plan={other}"
    words[words.index("--project") + 1] = str(project)
    ((other if where == "given" else project / "skills/tally-plan") / "extra.md").write_text("use the answer\n")
    git(project, "init", "-q")
    git(project, "add", "skills")
    git(project, "commit", "-qm", "skills")
    assert run(words) == 2
    assert "is given another skills/tally-plan/extra.md than the project holds" in capsys.readouterr().err


def test_a_skill_that_the_agent_would_not_find_in_the_tree_is_refused(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for word in bench(example, "quick", "--out", tmp_path / "r") if not word.startswith("--skill=")]
    arms = tmp_path / "arms.yaml"
    arms.write_text("arms: {w: {like: workflow, names: {plan: tally-plan, work: tally-work}}}\n")
    words[words.index(",".join(PAIR))] = "w,candidate_w"
    assert run([*words, "--arms-file", str(arms)]) == 2
    assert "looks for skills in .claude/skills, which is no place of the skill layout" in capsys.readouterr().err


def test_tasks_and_inputs_that_an_earlier_sweep_bound_must_still_be_the_same(example: Path, tmp_path: Path) -> None:
    options = BenchOptions(
        tasks=str(example / "tasks.yaml"),
        only=("linear",),
        arms=("baseline",),
        model=MODEL,
        agent="bash-agent",
        script=str(example / "script.yaml"),
    )
    with private_blobs(tmp_path) as blobs:
        inputs = open_inputs(options, blobs, commits={})
    bound, pins = [task_binding(task) for task in inputs.tasks], pins_of(inputs)
    how = SweepOptions(
        out=tmp_path / "r",
        scratch=tmp_path,
        keep_workspaces=False,
        lock_wait_s=0,
        report=lambda _results: None,
        say=lambda _line: None,
        watch=lambda _event: None,
    )
    for wrong in ([bound[0] | {"verify_digest": "x"}], [*bound, bound[0] | {"id": "gone"}]):
        with pytest.raises(UsageError, match="tasks have changed since they were bound"):
            begin_bench(options, how, n_workers=1, bound_tasks=wrong)
    of_others = {"arm.workflow.sha256": "of an arm that this sweep does not have"}
    for name in ("arm.baseline.sha256", "arm.baseline.environment_sha256", "script.sha256"):
        with pytest.raises(UsageError, match=rf"since they were bound: {name} was x, is {pins[name]}$"):
            begin_bench(options, how, n_workers=1, bound_tasks=bound, bound_inputs={**pins, **of_others, name: "x"})
    assert not (tmp_path / "r").exists()


@pytest.fixture
def tree_skills(example: Path, tmp_path: Path) -> Path:
    """The example with its skills in the repository itself, at its second commit from the end, and a candidate."""
    directory = tmp_path / "tree"
    shutil.copytree(example, directory)
    shutil.copytree(example / "skills", directory / "repository" / ".claude" / "skills")
    git(directory / "repository", "add", "-A")
    git(directory / "repository", "commit", "-qm", "skills")
    (directory / "arms.yaml").write_text("arms: {w: {like: workflow, names: {plan: tally-plan, work: tally-work}}}\n")
    shutil.copytree(example / "candidates" / "quick", directory / "overlay" / ".claude")
    return directory


def ask_of_tree(directory: Path, *more: object) -> list[str]:
    asked = ("bench", "--tasks", directory / "tasks.yaml", "--only", "linear", "--arms", "w,candidate_w", "--dry-run")
    model = ("--agent", "bash-agent", "--model", MODEL, "--script", directory / "script.yaml")
    overlay = ("--candidate-overlay", directory / "overlay", "--arms-file", directory / "arms.yaml")
    return [str(word) for word in (*asked, *model, *overlay, "--project", directory / "repository", *more)]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("ref: main", "ref: main", None),
        ("ref: main", "ref: main~1", "does not show its agents .claude/skills/tally-plan/SKILL.md"),
        ("ref: main", "ref: main\n    hidden: [.claude/skills]", "does not show its agents .claude/skills/tally-plan"),
    ],
)
def test_what_the_agent_finds_in_the_tree_must_be_what_the_project_holds(
    old: str, new: str, words: str | None, tree_skills: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = tree_skills / "tasks.yaml"
    tasks.write_text(tasks.read_text().replace(old, new))
    assert run(ask_of_tree(tree_skills)) == 2
    said = capsys.readouterr().err
    assert "the controls of task linear are stale" in said, "another commit is another task"
    assert words in said if words is not None else "show" not in said


def test_another_skill_in_the_tree_than_in_the_project_is_refused(
    tree_skills: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = tree_skills / "repository"
    (repository / ".claude" / SKILL).write_text("something else\n")
    git(repository, "commit", "-qam", "newer")
    tasks = tree_skills / "tasks.yaml"
    tasks.write_text(tasks.read_text().replace("ref: main", "ref: main~1"))
    assert run(ask_of_tree(tree_skills)) == 2
    assert (
        "shows its agents another .claude/skills/tally-plan/SKILL.md than the project holds" in capsys.readouterr().err
    )


@pytest.mark.parametrize("place", [".claude/skills", "mirror/skills"])
@pytest.mark.parametrize(
    ("file", "words"), [("extra.md", "does not show its agents"), ("gone.md", "shows its agents another")]
)
def test_a_skill_in_the_tree_with_another_file_beside_what_the_candidate_changes_is_refused(
    file: str, words: str, place: str, tree_skills: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository, skill = tree_skills / "repository", f"{place}/tally-plan"
    shutil.copytree(repository / ".claude" / "skills", repository / "mirror" / "skills")
    (repository / skill / "gone.md").write_text("use the answer\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "older")
    if file == "gone.md":
        (repository / skill / file).unlink()
    else:
        (repository / skill / file).write_text("newer\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "newer")
    tasks, layout = tree_skills / "tasks.yaml", tree_skills / "mirrored.yaml"
    tasks.write_text(tasks.read_text().replace("ref: main", "ref: main~1"))
    layout.write_text("root: .claude/skills\nmirrors: [mirror/skills]\n")
    assert run(ask_of_tree(tree_skills, "--skill-layout", layout)) == 2
    assert f"{words} {skill}/{file}" in " ".join(capsys.readouterr().err.split())


def test_a_placed_skill_that_one_in_the_tree_would_shadow_is_refused(
    tree_skills: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skills = tree_skills / "repository" / ".claude" / "skills"
    words = ask_of_tree(tree_skills, f"--skill=plan={skills}/tally-plan", f"--skill=work={skills}/tally-work")
    (tree_skills / "arms.yaml").write_text("arms: {}\n")
    words[words.index("w,candidate_w")] = ",".join(PAIR)
    assert run(words) == 2
    assert "has a skill tally-plan of its own in its tree" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--rehearsal"], ["--project", "."], ["--proposer-model", "m"]])
def test_options_about_a_candidate_need_one(more: list[str], example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "--tasks", str(example / "tasks.yaml"), "--model", MODEL, "--dry-run", *more]
    assert run(words) == 2
    assert "--candidate-overlay" in capsys.readouterr().err


def test_a_rehearsal_needs_a_script(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = bench(example, "quick", "--rehearsal", "--dry-run")
    at = words.index("--script")
    assert run(words[:at] + words[at + 2 :]) == 2
    assert "--rehearsal is for a scripted model" in capsys.readouterr().err
