"""What a task means to keep from its agents and does not."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.secrecy import require_secrecy
from fairtrial.bench.tasks import bind_task, read_task_file
from fairtrial.errors import UsageError

pytestmark = pytest.mark.needs("git")
Look = Callable[..., None]


@pytest.fixture
def look(world: Path, blobs: BlobStore, task_text: str, write_tasks: Callable[[str], Path]) -> Look:
    """Commit more files to the repository, and look at a task with more keys."""

    def run(files: dict[str, str], keys: str = "") -> None:
        repository = world / "repo"
        for path, content in files.items():
            (repository / path).parent.mkdir(parents=True, exist_ok=True)
            (repository / path).write_text(content)
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
        for words in (("add", "-A"), (*identity, "commit", "-q", "--allow-empty", "-m", "more")):
            subprocess.run(["git", *words], cwd=repository, env=env, check=True)
        document, parsed = read_task_file(write_tasks(task_text.replace("    class:", f"{keys}    class:", 1)))
        require_secrecy((bind_task(document, 0, parsed.tasks[0], blobs),))

    return run


@pytest.mark.parametrize("hidden", ["answers", "answers/a.py", "answers/of others", "line\nbreak", "umlaut ä"])
def test_what_is_hidden_may_be_a_file_or_a_directory(look: Look, hidden: str) -> None:
    files = dict.fromkeys(("answers/a.py", "answers/of others/b", "line\nbreak", "umlaut ä"), "x")
    look(files, keys=f"    hidden: [{hidden!r}]\n".replace("'", '"'))


@pytest.mark.parametrize("hidden", ["answer", "answers/a", "Answers", "answers/a.py/b"])
def test_a_hidden_path_that_is_not_in_the_tree_is_refused(look: Look, hidden: str) -> None:
    with pytest.raises(UsageError, match=f"task mend-add: it hides '{hidden}', which the tree of HEAD does not have"):
        look({"answers/a.py": "x"}, keys=f"    hidden: [answers, {hidden}]\n")
