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
ORACLE = "print('hidden')\n"
REFERENCE = "--- a/calc.py\n+++ b/calc.py\n"
UPSTREAM = "tests/test_add.py, into: workspace"
Look = Callable[..., None]


@pytest.fixture
def look(world: Path, blobs: BlobStore, task_text: str, write_tasks: Callable[[str], Path]) -> Look:
    """Commit more files to the repository, and look at a task with more keys."""

    def run(files: dict[str, str], keys: str = "", target: str = "oracle.py") -> None:
        repository = world / "repo"
        for path, content in files.items():
            (repository / path).parent.mkdir(parents=True, exist_ok=True)
            (repository / path).write_text(content)
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
        for words in (("add", "-A"), (*identity, "commit", "-q", "--allow-empty", "-m", "more")):
            subprocess.run(["git", *words], cwd=repository, env=env, check=True)
        text = task_text.replace("    class:", f"{keys}    class:", 1).replace("target: oracle.py", f"target: {target}")
        path = write_tasks(text)
        document, parsed = read_task_file(path)
        require_secrecy(path, (bind_task(document, 0, parsed.tasks[0], blobs),), blobs)

    return run


@pytest.mark.parametrize("hidden", ["answers", "answers/a.py", "answers/of others", "line\nbreak", "umlaut ä"])
def test_what_is_hidden_may_be_a_file_or_a_directory(look: Look, hidden: str) -> None:
    files = dict.fromkeys(("answers/a.py", "answers/of others/b", "line\nbreak", "umlaut ä"), "x")
    look(files, keys=f"    hidden: [{hidden!r}]\n".replace("'", '"'))


@pytest.mark.parametrize("hidden", ["answer", "answers/a", "Answers", "answers/a.py/b"])
def test_a_hidden_path_that_is_not_in_the_tree_is_refused(look: Look, hidden: str) -> None:
    with pytest.raises(UsageError, match=f"task mend-add: it hides '{hidden}', which the tree of HEAD does not have"):
        look({"answers/a.py": "x"}, keys=f"    hidden: [answers, {hidden}]\n")


@pytest.mark.parametrize(
    ("files", "target", "words"),
    [
        ({"eval/oracles/a.py": ORACLE}, "oracle.py", "'eval/oracles/a.py' is the oracle's oracle.py"),
        ({"tests/test_add.py": ORACLE}, "oracle.py", "'tests/test_add.py' is the oracle's oracle.py"),
        ({"oracle.py": ORACLE}, UPSTREAM, "'oracle.py' is the oracle's tests/test_add.py"),
        ({"oracle.py": ORACLE, "tests/test_add.py": "old"}, UPSTREAM, "'oracle.py' is the oracle's tests/test_add.py"),
        ({"eval/fix": REFERENCE}, "oracle.py", "'eval/fix' is the reference"),
        ({"a": ORACLE, "b": REFERENCE}, "oracle.py", "'a' is the oracle's oracle.py, 'b' is the reference. Name these"),
    ],
)
def test_an_oracle_or_a_reference_that_lies_in_the_tree_is_refused_unless_it_is_hidden(
    look: Look, files: dict[str, str], target: str, words: str
) -> None:
    with pytest.raises(UsageError, match=f"the tree of HEAD would show its agents what they must not see: {words}"):
        look(files, target=target)
    hidden = [path for path, content in files.items() if content in (ORACLE, REFERENCE)]
    look({}, keys=f"    hidden: {hidden}\n", target=target)


@pytest.mark.parametrize(
    ("files", "target"),
    [
        ({"tests/test_add.py": ORACLE}, UPSTREAM),
        ({"tests/test_add.py": ORACLE, "copy.py": ORACLE}, UPSTREAM),
        ({"tests/test_add.py": f"{ORACLE}# an older one\n"}, UPSTREAM),
    ],
)
def test_a_test_that_the_tree_has_at_the_place_where_it_is_put_is_no_secret(
    look: Look, files: dict[str, str], target: str
) -> None:
    look(files, target=target)


def test_an_empty_file_is_no_secret(look: Look, world: Path) -> None:
    (world / "oracle.py").write_text("\n")
    look({"tests/__init__.py": "\n", "other": ""})


def test_a_task_file_that_lies_in_the_tree_is_refused_whatever_it_said_there(look: Look, world: Path) -> None:
    (world / "repo" / "eval").mkdir()
    (world / "tasks.yaml").symlink_to("repo/eval/tasks.yaml")
    words = "must not see: 'eval/tasks.yaml' is the task file. Name these paths"
    with pytest.raises(UsageError, match=words):
        look({"eval/tasks.yaml": "tasks: []\n"})
    with pytest.raises(UsageError, match=words):
        look({}, keys="    expensive: true\n")
    look({}, keys="    hidden: [eval]\n")


def test_a_copy_of_the_task_file_is_found_by_its_bytes(look: Look, world: Path) -> None:
    look({})
    with pytest.raises(UsageError, match="must not see: 'benchmark' is the task file"):
        look({"benchmark": (world / "tasks.yaml").read_text()})


def test_a_repository_of_longer_ids_is_looked_at_alike(look: Look, world: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    (world / "repo" / ".git").rename(world / "before")
    words = ["git", "init", "-q", "--object-format=sha256", "-b", "main"]
    subprocess.run(words, cwd=world / "repo", env=env, check=True)
    with pytest.raises(UsageError, match="'answer' is the oracle's"):
        look({"answer": ORACLE})


@pytest.mark.parametrize("key", ["sandbox_copy: [eval]", "sandbox_dependencies: [{source: eval, target: lib}]"])
def test_a_copy_or_a_mount_that_holds_the_task_file_is_refused(look: Look, world: Path, key: str) -> None:
    (world / "repo" / "eval").mkdir()
    (world / "repo" / ".gitignore").write_text("eval\n")
    (world / "repo" / "eval" / "a").write_text("")
    (world / "tasks.yaml").symlink_to("repo/eval/tasks.yaml")
    with pytest.raises(UsageError, match=r"'eval/tasks\.yaml' is the task file, and is copied or mounted"):
        look({}, keys=f"    {key}\n")
    look({}, keys="    sandbox_copy: [eval/a]\n")
