"""What a task file may say, and where an error points."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.bench.task_file import check_model_name
from fairtrial.bench.tasks import read_task_file, select_tasks
from fairtrial.errors import ConfigError, UsageError

WriteTasks = Callable[[str], Path]


def test_the_shortest_task_is_read(write_tasks: WriteTasks, task_text: str) -> None:
    _, parsed = read_task_file(write_tasks(task_text))
    (task,) = parsed.tasks
    assert (task.id, task.task_class, task.ref, task.expensive) == ("mend-add", "bug-fix", "HEAD", False)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("    verify:", "    verfy:", 2, "missing key 'verify'"),
        ("    verify:", "    verfy:", 6, "unknown key 'verfy' in 'tasks[0]'; did you mean 'verify'?"),
        ("    class: bug-fix", "    clazz: bug-fix", 3, "did you mean 'class'?"),
        ("id: mend-add", "id: -mend", 2, "id '-mend' must be"),
        ("prompt: Mend add.", 'prompt: "  "', 2, "prompt is blank"),
        ("    class: bug-fix", "    class: bug-fix\n    expensive: 1", 4, "should be a valid boolean"),
        ("    class: bug-fix", "    class: bug-fix\n    expensive:", 4, "should be a valid boolean"),
        ("    class: bug-fix", "    class: bug-fix\n    class: other", 4, "duplicate key 'class'"),
        ("    class: bug-fix", "    class: bug-fix\n    setup_network: true", 2, "there is no setup"),
        ("    class: bug-fix", "    class: bug-fix\n    toolchains: [opt/x]", 2, "no absolute path"),
        ("    class: bug-fix", "    class: bug-fix\n    sandbox_copy: [a/b, a]", 2, "lies in 'a'"),
        ("    class: bug-fix", "    class: bug-fix\n    limits: {memory_mib: 0}", 4, "memory_mib is at least 1"),
        ("    class: bug-fix", "    class: bug-fix\n    limits: {memory: 9}", 4, "did you mean 'memory_mib'?"),
        ("    class: bug-fix", "    class: bug-fix\n    isolation: procss", 4, "did you mean 'process'?"),
        (
            "target: oracle.py}]",
            "target: oracle.py, into: workspace}]\n    isolation: process",
            2,
            "keeps the oracle out of the workspace",
        ),
        ("target: oracle.py}", "target: ../oracle.py}", 10, "no plain relative path"),
        ("target: oracle.py}", "target: .git/config}", 10, "lies below .git"),
        ("target: oracle.py}", "target: .GIT/config}", 10, "lies below .git"),
        ("target: oracle.py}", f"target: {'a' * 241}}}", 10, "longer than 240 bytes"),
        ("target: oracle.py}", "target: oracle.py, into: elsewhere}", 10, "unknown value 'elsewhere'"),
        ('command: "true"', 'command: ""', 8, "command is blank"),
        ('command: "true"', f'command: "{"x" * 8193}"', 8, "longer than 8192 bytes"),
        ('command: "true"', 'command: "x"\n      expect_tests: 2', 8, "needs a runner"),
        ('command: "true"', 'command: "x"\n      runner: nose', 8, "runner 'nose' is unknown"),
        ("    class: bug-fix", "    class: bug-fix\n    cheats: [{name: a}]", 4, "needs either a patch or a script"),
    ],
)
def test_what_is_wrong_is_named_at_its_place(
    write_tasks: WriteTasks, task_text: str, old: str, new: str, line: int, words: str
) -> None:
    path = write_tasks(task_text.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read_task_file(path)
    assert any(each.startswith(f"{path}:{line}:") and words in each for each in str(caught.value).splitlines()), (
        caught.value
    )


def test_an_id_is_used_once_over_the_whole_file(write_tasks: WriteTasks, task_text: str) -> None:
    again = task_text.removeprefix("tasks:\n").replace("class:", "expensive: true\n    class:")
    path = write_tasks(task_text + again)
    with pytest.raises(ConfigError, match=rf"{path}:11:.*id 'mend-add' stands in line 2 too"):
        read_task_file(path)


def test_oracle_files_are_one_to_eight_with_sources_and_targets_of_their_own(
    write_tasks: WriteTasks, task_text: str
) -> None:
    one = "{source: oracle.py, target: oracle.py}"
    nine = ", ".join(f"{{source: s{n}, target: t{n}}}" for n in range(9))
    for files, words in (("", "0 entries"), (nine, "9 entries"), (f"{one}, {one}", "named twice")):
        with pytest.raises(ConfigError, match=words):
            read_task_file(write_tasks(task_text.replace(one, files)))


def test_expensive_tasks_are_skipped_unless_asked_for(write_tasks: WriteTasks, task_text: str) -> None:
    dear = (
        task_text.removeprefix("tasks:\n").replace("mend-add", "dear").replace("class:", "expensive: true\n    class:")
    )
    _, parsed = read_task_file(write_tasks(task_text + dear))
    cheap = select_tasks(parsed, only=(), include_expensive=False)
    assert ([task.id for task in cheap.selected], cheap.skipped) == (["mend-add"], ("dear",))
    every = select_tasks(parsed, only=(), include_expensive=True)
    assert ([task.id for task in every.selected], every.skipped) == (["mend-add", "dear"], ())
    with pytest.raises(UsageError, match="--include-expensive: dear"):
        select_tasks(parsed, only=("dear",), include_expensive=False)
    with pytest.raises(UsageError, match="did you mean 'dear'"):
        select_tasks(parsed, only=("deer",), include_expensive=True)


def test_held_out_tasks_run_only_when_they_are_named_or_as_controls(write_tasks: WriteTasks, task_text: str) -> None:
    held = task_text.removeprefix("tasks:\n").replace("mend-add", "held").replace("class:", "holdout: true\n    class:")
    _, parsed = read_task_file(write_tasks(task_text + held))

    def selected(*only: str, include_holdout: bool = False) -> list[str]:
        chosen = select_tasks(parsed, only=only, include_expensive=False, include_holdout=include_holdout)
        return [task.id for task in chosen.selected]

    assert selected() == ["mend-add"]
    assert selected("held") == ["held"]
    assert selected(include_holdout=True) == ["mend-add", "held"]
    _, parsed = read_task_file(write_tasks("tasks:\n" + held))
    with pytest.raises(UsageError, match="all are held out"):
        selected()


@pytest.mark.parametrize(
    "name", ["", "  ", "auto", "LATEST", "gpt-latest", "openrouter/auto", "a@latest", "a:AUTO", "a\nb", "m" * 257]
)
def test_a_model_that_moves_or_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="model"):
        check_model_name(name)


@pytest.mark.parametrize("name", ["claude-sonnet-4-5", "autogen", "latest-1", " gpt-5 "])
def test_a_fixed_model_is_taken(name: str) -> None:
    assert check_model_name(name) == name.strip()
