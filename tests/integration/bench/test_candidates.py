"""Candidates whose skills the agent finds in the tree: what its session sees, and what the judges see."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.bench.arms import read_arms
from fairtrial.bench.candidate import Candidate
from fairtrial.workspace.overlay import Overlay, OverlayFile, overlay_digest
from fairtrial.workspace.skill_layout import SkillLayout

pytestmark = [pytest.mark.needs("git", "bwrap"), pytest.mark.timeout(120)]

Row = dict[str, Any]
RunTrial = Callable[..., Row]

LAYOUT = SkillLayout(root=".claude/skills", mirrors=("shipped/skills",))
PATHS = (".claude/skills/tree-work/SKILL.md", "shipped/skills/tree-work/SKILL.md")
OLD = "---\nname: tree-work\ndescription: how\n---\nThe old way.\n"
NEW = OLD.replace("old way", "new way")
ARMS = "arms: {direct: {like: workflow_direct, names: {work: tree-work}}}\n"
USAGE = {"uncached_input": 100, "output": 10}
LOOK = """
git status --porcelain; echo "parents:$(git log --format=%P | tr -d '\\n')"
git rev-list --count HEAD; git rev-parse HEAD
grep -l 'new way' .claude/skills/tree-work/SKILL.md shipped/skills/tree-work/SKILL.md; ls .git
"""


def candidate_of(text: str = NEW) -> Candidate:
    files = (OverlayFile(path=PATHS[0], content=text.encode()),)
    return Candidate(Overlay(files=files, skills=("tree-work",), digest=overlay_digest(files)), LAYOUT)


@pytest.fixture
def with_skills(world: Path) -> Path:
    """The world, whose repository has a skill in its canonical place and in a mirror."""
    hook = world / "repo" / "hook.sh"
    hook.write_text("#!/bin/sh\ntouch /workspace/hooked\n")
    hook.chmod(0o755)
    commit_skill(world / "repo", PATHS)
    (world / "arms.yaml").write_text(ARMS)
    return world


def commit_skill(repository: Path, paths: tuple[str, ...]) -> None:
    for path in paths:
        (repository / path).parent.mkdir(parents=True)
        (repository / path).write_text(OLD)
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("add", "-A"), ("commit", "-q", "-m", "skills")):
        subprocess.run(["git", *identity, *words], cwd=repository, check=True)


def turns(*commands: str) -> list[dict[str, Any]]:
    calls = [{"usage": USAGE, "calls": [{"tool": "Bash", "input": {"command": each}}]} for each in commands]
    skill = {"usage": USAGE, "calls": [{"tool": "Skill", "input": {"skill": "tree-work"}}]}
    return [skill, *calls, {"text": "Done.", "usage": USAGE}]


def transcript(row: Row) -> str:
    return "\n".join(path.read_text() for path in sorted(Path(row["directory"]).glob("transcript-*.jsonl")))


def test_a_session_finds_the_candidate_committed_and_judges_never_see_it(with_skills: Path, trial: RunTrial) -> None:
    arms = read_arms(with_skills / "arms.yaml")
    # Set-up leaves a hook that would run at a commit, and something that is not committed.
    setup = (
        "mkdir -p .git/hooks && cp hook.sh .git/hooks/post-commit && cp hook.sh .git/hooks/pre-commit && echo x > made"
    )
    verify = "! grep -r 'new way' . && python3 -m unittest discover -s tests -q"
    mend = "sed -i 's/a - b/a + b/' calc.py"
    asked: dict[str, Any] = {"arm": "direct", "arms": arms, "setup": setup, "verify": verify}
    row = trial(turns(LOOK, mend), candidate=candidate_of(), **asked)
    assert (row["resolved"], row["error_detail"]) == (True, None)
    assert row["candidate_overlay_digest"] == candidate_of().overlay.digest
    assert row["arm"] == "candidate_direct"
    assert row["variant_head_sha"] != row["sanitized_task_sha"]
    said = transcript(row)
    assert "The new way." in said
    assert "The old way." not in said
    events = [json.loads(line) for line in said.splitlines()]
    shown = next(event["output"] for event in events if "parents:" in event.get("output", ""))
    assert shown.startswith(f"?? made\nparents:\n1\n{row['variant_head_sha']}\n")
    assert all(path in shown for path in PATHS)
    assert "COMMIT_EDITMSG" not in shown
    assert "hooked" not in shown
    assert row["diff_files"] == 1
    again = trial(turns(mend), candidate=candidate_of(), **asked)
    assert again["variant_head_sha"] == row["variant_head_sha"], "the same bytes make the same commit"
    old = trial(turns(LOOK, mend), **asked)
    assert (old["resolved"], old["candidate_overlay_digest"]) == (True, None)
    assert old["variant_head_sha"] == old["sanitized_task_sha"] == row["sanitized_task_sha"]
    assert "The old way." in transcript(old)


@pytest.mark.parametrize(
    ("setup", "text", "words"),
    [
        (f"echo x >> {PATHS[0]}", NEW, f"set-up changed {PATHS[0]}"),
        (f"rm {PATHS[1]}", NEW, f"{PATHS[1]}, which the candidate changes, is no file after set-up"),
        ("mv shipped elsewhere && ln -s elsewhere shipped", NEW, f"set-up moved {PATHS[1]}"),
        (None, OLD, "it makes no difference here"),
    ],
)
def test_a_candidate_that_cannot_be_put_where_it_belongs_voids_the_trial_and_spends_nothing(
    setup: str | None, text: str, words: str, with_skills: Path, trial: RunTrial
) -> None:
    more = {} if setup is None else {"setup": setup}
    arms = read_arms(with_skills / "arms.yaml")
    row = trial(turns(), arm="direct", arms=arms, candidate=candidate_of(text), **more)
    assert row["error_kind"] == "infra-error"
    assert words in row["error_detail"]
    assert not list(Path(row["directory"]).glob("wire-*.jsonl"))


def test_a_placed_skill_is_placed_changed_and_leaves_the_tree_alone(trial: RunTrial) -> None:
    files = (
        OverlayFile(path=".claude/skills/acme-work/SKILL.md", content=b"---\nname: acme-work\n---\nThe new way.\n"),
    )
    candidate = Candidate(Overlay(files=files, skills=("acme-work",), digest=overlay_digest(files)), LAYOUT)
    said = turns("git status --porcelain --ignored; ls -a", "sed -i 's/a - b/a + b/' calc.py")
    said[0]["calls"][0]["input"]["skill"] = "acme-work"
    row = trial(said, arm="workflow_direct", candidate=candidate)
    assert (row["resolved"], row["error_detail"]) == (True, None)
    assert "The new way." in transcript(row)
    assert row["variant_head_sha"] == row["sanitized_task_sha"]
    assert json.dumps(row["skill_digests"]) != "{}"


def test_two_arms_of_one_candidate_begin_with_the_skills_that_each_demands(with_skills: Path, trial: RunTrial) -> None:
    other = ".claude/skills/tree-plan/SKILL.md"
    commit_skill(with_skills / "repo", (other, other.replace(".claude", "shipped")))
    (with_skills / "arms.yaml").write_text(
        f"{ARMS.rstrip()[:-1]}, other: {{like: workflow_direct, names: {{work: tree-plan}}}}}}\n"
    )
    arms = read_arms(with_skills / "arms.yaml")
    files = tuple(OverlayFile(path=path, content=NEW.encode()) for path in (other, PATHS[0]))
    candidate = Candidate(Overlay(files=files, skills=("tree-plan", "tree-work"), digest=overlay_digest(files)), LAYOUT)
    look = "echo seen; grep -rl 'new way' .claude shipped"
    rows = [trial(turns(look), arm=arm, arms=arms, candidate=candidate) for arm in ("direct", "other")]
    for row, (mine, not_mine) in zip(rows, (("tree-work", "tree-plan"), ("tree-plan", "tree-work")), strict=True):
        shown = next(
            event["output"]
            for event in map(json.loads, transcript(row).splitlines())
            if event.get("output", "").startswith("seen")
        )
        assert shown.count(f"skills/{mine}/SKILL.md") == len(PATHS)
        assert not_mine not in shown
    assert rows[0]["variant_head_sha"] != rows[1]["variant_head_sha"]
    assert rows[0]["candidate_overlay_digest"] == rows[1]["candidate_overlay_digest"]
