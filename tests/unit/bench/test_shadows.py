"""A skill in the tree that an agent may load in place of the one that its arm is given."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.agents.codex import Codex
from fairtrial.agents.gemini_cli import GeminiCli
from fairtrial.agents.opencode import OpenCode
from fairtrial.bench.arms import Defaults, build_arm, read_arms
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.shadows import refuse_shadowed_skills
from fairtrial.bench.tasks import bind_task, read_task_file
from fairtrial.bench.trial import read_skill_places
from fairtrial.errors import UsageError
from fairtrial.model.bench import Arm, Task
from fairtrial.protocols import Agent

pytestmark = pytest.mark.needs("git")
OURS = "---\nname: work\ndescription: how\n---\nOurs.\n"
PLACES = {"bash-agent": (".claude/skills",)}
Bind = Callable[..., Task]


@pytest.fixture
def arm(world: Path, blobs: BlobStore) -> Arm:
    """An arm that is given a skill of two files."""
    skill = world / "given" / "work"
    (skill / "more").mkdir(parents=True)
    (skill / "SKILL.md").write_text(OURS)
    (skill / "more" / "steps.md").write_text("One.\n")
    defaults = Defaults(agent="bash-agent", model="m-1", skills={"work": skill})
    return build_arm(read_arms(None)["workflow_direct"], defaults, blobs)


@pytest.fixture
def bind(world: Path, blobs: BlobStore, task_text: str, write_tasks: Callable[[str], Path]) -> Bind:
    """Commit files to the repository; the task on them."""

    def commit(files: dict[str, str], *, keys: str = "") -> Task:
        repository = world / "repo"
        for path, text in files.items():
            (repository / path).parent.mkdir(parents=True, exist_ok=True)
            (repository / path).write_text(text)
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
        for words in (("add", "-A"), (*identity, "commit", "-q", "--allow-empty", "-m", "more")):
            subprocess.run(["git", *words], cwd=repository, check=True)
        document, parsed = read_task_file(write_tasks(task_text.replace("    class:", f"{keys}    class:", 1)))
        return bind_task(document, 0, parsed.tasks[0], blobs)

    return commit


SAME = {".claude/skills/work/SKILL.md": OURS, ".claude/skills/work/more/steps.md": "One.\n"}


@pytest.mark.parametrize(
    "files",
    [
        {".claude/skills/work/SKILL.md": "---\nname: work\ndescription: how\n---\nTheirs.\n"},
        SAME | {".claude/skills/work/more/steps.md": "Two.\n"},
        SAME | {".claude/skills/work/extra.md": "Read me too.\n"},
    ],
    ids=["another", "another-part", "one-file-more"],
)
def test_another_skill_of_that_name_in_the_tree_is_refused(files: dict[str, str], bind: Bind, arm: Arm) -> None:
    with pytest.raises(UsageError, match="task mend-add has a skill work of its own in its tree"):
        refuse_shadowed_skills([bind(files)], [arm], PLACES)


@pytest.mark.parametrize(
    "files",
    [{}, SAME, {".claude/skills/other/SKILL.md": "x\n"}, {".claude/skills/work/notes.txt": "no skill\n"}],
    ids=["none", "the-same", "another-name", "no-skill"],
)
def test_what_no_agent_could_mistake_for_it_does_no_harm(files: dict[str, str], bind: Bind, arm: Arm) -> None:
    refuse_shadowed_skills([bind(files)], [arm], PLACES)


def test_a_skill_that_the_task_hides_is_not_in_the_tree(bind: Bind, arm: Arm) -> None:
    files = {".claude/skills/work/SKILL.md": "theirs\n"}
    task = bind(files, keys="    hidden: [.claude/skills/work]\n")
    refuse_shadowed_skills([task], [arm], PLACES)


def test_an_agent_that_looks_for_no_skills_cannot_be_misled(bind: Bind, arm: Arm) -> None:
    task = bind({".claude/skills/work/SKILL.md": "theirs\n"})
    refuse_shadowed_skills([task], [arm], {"bash-agent": ()})


@pytest.mark.parametrize(
    ("agent", "place"),
    [
        (Codex, ".agents/skills"),
        (GeminiCli, ".agents/skills"),
        (OpenCode, ".agents/skills"),
        (OpenCode, ".opencode/skill"),
        (OpenCode, ".opencode/skills"),
    ],
)
def test_a_place_in_the_tree_is_looked_at_that_is_no_users(
    agent: type[Agent], place: str, bind: Bind, arm: Arm
) -> None:
    task = bind({f"{place}/work/SKILL.md": "theirs\n"})
    refuse_shadowed_skills([task], [arm], PLACES)
    with pytest.raises(UsageError, match=f"{re.escape(place)}/work, which"):
        refuse_shadowed_skills([task], [arm], {"bash-agent": read_skill_places(agent())})


@pytest.mark.parametrize("place", [".claude/skills", ".gemini/skills"])
def test_the_agents_own_place_is_looked_at_and_the_one_that_many_share(place: str, bind: Bind, arm: Arm) -> None:
    task = bind({f"{place}/work/SKILL.md": "theirs\n"})
    with pytest.raises(UsageError, match=f"{re.escape(place)}/work, which"):
        refuse_shadowed_skills([task], [arm], {"bash-agent": read_skill_places(GeminiCli())})
