"""Every limit of a task file, on both of its sides."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.bench import assets
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.task_file import TaskEntry, path_problem
from fairtrial.bench.tasks import bind_task, read_task_file, select_tasks
from fairtrial.errors import ConfigError, UsageError
from fairtrial.model.bench import Task

WriteTasks = Callable[[str], Path]
FILE = "{source: oracle.py, target: oracle.py}"
COMMAND = 'command: "true"'
CLASS = "    class: bug-fix"


@pytest.fixture
def read(write_tasks: WriteTasks, task_text: str) -> Callable[..., TaskEntry]:
    """Read the shortest task with some of its text replaced."""

    def run(old: str, new: str) -> TaskEntry:
        assert old in task_text
        (task,) = read_task_file(write_tasks(task_text.replace(old, new)))[1].tasks
        return task

    return run


@pytest.fixture
def bind(write_tasks: WriteTasks, task_text: str, blobs: BlobStore) -> Callable[..., Task]:
    """Bind the shortest task with some of its text replaced."""

    def run(old: str, new: str) -> Task:
        document, parsed = read_task_file(write_tasks(task_text.replace(old, new)))
        return bind_task(document, 0, parsed.tasks[0], blobs)

    return run


def add(line: str) -> tuple[str, str]:
    return CLASS, f"{CLASS}\n    {line}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("id: mend-add", f"id: {'a' * 128}"),
        ("id: mend-add", "id: 0._-x"),
        add("ref: v1.0"),
        add("setup: make"),
        add("expensive: true"),
        add("expensive: false"),
        add("sandbox_copy: [a/b, a/c]"),
        add("sandbox_dependencies: [{source: a, target: a}, {source: a, target: ab}]"),
        add("hidden: [a/b]\n    sandbox_copy: [a/c, a/bc]\n    sandbox_dependencies: [{source: ab, target: a/bb}]"),
        (COMMAND, f'command: "{"x" * 8192}"'),
        ("target: oracle.py}", f"target: {'a' * 240}}}"),
        ("target: oracle.py}", f"target: {'ä' * 120}}}"),
        (FILE, ", ".join(f"{{source: s{n}, target: t{n}}}" for n in range(8))),
        ("target: oracle.py}", "target: a/.git/x}"),
        ("target: oracle.py}", "target: .gitignore}"),
        (FILE, f"{FILE}, {{source: other.py, target: oracle.py/b, into: workspace}}"),
        add("cheats: [{name: a, patch: a.patch}, {name: b, script: b.sh}]"),
        add(f"sandbox_copy: [{'/'.join(['abcdefg'] * 512)}]"),
    ],
)
def test_what_just_keeps_to_a_limit_is_read(read: Callable[..., TaskEntry], old: str, new: str) -> None:
    assert read(old, new).task_class == "bug-fix"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("id: mend-add", f"id: {'a' * 129}", "must be 1 to 128"),
        ("id: mend-add", "id: 'a b'", "must be 1 to 128"),
        ("id: mend-add", "id: ''", "must be 1 to 128"),
        ("id: mend-add", "id: ä", "must be 1 to 128"),
        ("class: bug-fix", "class: ''", "class is blank"),
        ("class: bug-fix", "class: 7", "valid string"),
        ("repo: repo", "repo: ' '", "repo is blank"),
        ('verify: python3 -c "import calc"', 'verify: "\\t"', "verify is blank"),
        ('verify: python3 -c "import calc"', 'verify: "a\\0b"', "holds a NUL"),
        ("prompt: Mend add.", 'prompt: "a\\0b"', "holds a NUL"),
        (*add("ref: ''"), "ref is blank"),
        (*add("ref: 1"), "valid string"),
        (*add("setup: ''"), "setup is blank"),
        (*add("setup: [make]"), "valid string"),
        (*add("expensive: 'true'"), "valid boolean"),
        (*add("expensive: 0"), "valid boolean"),
        (*add("expensive: null"), "valid boolean"),
        (*add("expensive: [true]"), "valid boolean"),
        (*add("sandbox_copy: a"), "valid"),
        (*add("sandbox_copy: ['']"), "no plain relative path"),
        (*add("sandbox_copy: [1]"), "valid string"),
        (*add("sandbox_copy: [/etc]"), "no plain relative path"),
        (*add("sandbox_copy: [a/../b]"), "no plain relative path"),
        (*add("sandbox_copy: [a, a]"), "lies in"),
        (*add(f"sandbox_copy: [{'/'.join(['abcdefg'] * 513)}]"), "longer than 4096 bytes"),
        (*add("sandbox_dependencies: [{source: a}]"), "missing key 'target'"),
        (*add("sandbox_dependencies: [{source: a, target: b, mode: c}]"), "unknown key 'mode'"),
        (*add("sandbox_dependencies: [{source: '', target: b}]"), "no plain relative path"),
        (*add("sandbox_dependencies: [{source: a, target: ''}]"), "no plain relative path"),
        (*add("sandbox_dependencies: [{source: a, target: b}, {source: c, target: b/d}]"), "lies in"),
        (*add("hidden: [a]\n    sandbox_copy: [a]"), "sandbox_copy: 'a' would bring back 'a'"),
        (*add("hidden: [x, a]\n    sandbox_copy: [a/b]"), "sandbox_copy: 'a/b' would bring back 'a'"),
        (*add("hidden: [a/b]\n    sandbox_copy: [a]"), "sandbox_copy: 'a' would bring back 'a/b'"),
        (*add("hidden: [a]\n    sandbox_dependencies: [{source: a/b, target: c}]"), "source: 'a/b' would bring back"),
        (*add("hidden: [a]\n    sandbox_dependencies: [{source: c, target: a/b}]"), "target: 'a/b' would bring back"),
        (COMMAND, 'command: "a\\0b"', "holds a NUL"),
        (COMMAND, f'command: "{"ä" * 4097}"', "longer than 8192 bytes"),
        (COMMAND, f"{COMMAND}\n      shell: bash", "unknown key 'shell'"),
        (COMMAND, "cmd: x", r"unknown key 'cmd' in 'tasks\[0\].oracle'; did you mean 'command'"),
        (FILE, f"{FILE}, {{source: other.py, target: oracle.py}}", "target 'oracle.py' is named twice"),
        (FILE, f"{FILE}, {{source: oracle.py, target: other.py}}", "source 'oracle.py' is named twice"),
        (FILE, f"{FILE}, {{source: other.py, target: oracle.py/b}}", "'oracle.py/b' lies below the file 'oracle.py'"),
        (FILE, "{source: oracle.py}", "missing key 'target'"),
        ("target: oracle.py}", "target: ''}", "no plain relative path"),
        ("target: oracle.py}", "target: /oracle.py}", "no plain relative path"),
        ("target: oracle.py}", "target: ./oracle.py}", "no plain relative path"),
        ("target: oracle.py}", "target: a//b}", "no plain relative path"),
        ("target: oracle.py}", "target: 'a\\b'}", "backslash or NUL"),
        ("target: oracle.py}", 'target: "a\\0b"}', "holds a NUL"),
        ("target: oracle.py}", f"target: {'ä' * 121}}}", "longer than 240 bytes"),
        ("target: oracle.py}", "target: .git}", "lies below .git"),
        ("source: oracle.py", "source: ../oracle.py", "no plain relative path"),
        ("source: oracle.py", f"source: {'a' * 241}", "longer than 240 bytes"),
        (*add("cheats: [{name: a, patch: p, script: s}]"), "needs either a patch or a script"),
        (*add("cheats: [{name: a, patch: p}, {name: a, script: s}]"), "cheat 'a' is named twice"),
    ],
)
def test_what_is_beyond_a_limit_is_refused(read: Callable[..., TaskEntry], old: str, new: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(old, new)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "should be an object"),
        ("tasks: {}", "valid"),
        ("tasks: []", "there is no task"),
        ("tasks:", "valid"),
        ("tasks: [x]", "tasks"),
        ("others: []", "unknown key 'others'"),
    ],
)
def test_a_file_is_a_mapping_with_a_list_of_tasks(write_tasks: WriteTasks, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_task_file(write_tasks(text))


def test_nothing_selected_is_an_error(write_tasks: WriteTasks, task_text: str) -> None:
    _, parsed = read_task_file(write_tasks(task_text.replace(CLASS, f"{CLASS}\n    expensive: true")))
    with pytest.raises(UsageError, match="no task is selected"):
        select_tasks(parsed, only=(), include_expensive=False)


@pytest.mark.needs("git")
def test_an_oracle_has_at_most_two_mib_of_files(bind: Callable[..., Task], world: Path) -> None:
    files = ", ".join(f"{{source: s{n}, target: t{n}}}" for n in range(5))
    for n in range(5):
        (world / f"s{n}").write_bytes(b"x" * (512 << 10) if n < 4 else b"")
    assert len(bind(FILE, files).oracle.files) == 5
    (world / "s4").write_bytes(b"x")
    with pytest.raises(ConfigError, match="larger than 2097152 bytes together"):
        bind(FILE, files)


@pytest.mark.needs("git")
def test_what_is_copied_has_a_limit_of_entries_and_of_bytes(
    bind: Callable[..., Task], world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world / "repo" / "kept").mkdir()
    for n in range(4):
        (world / "repo" / "kept" / str(n)).write_bytes(b"12345")
    monkeypatch.setattr(assets, "MOST_ENTRIES", 5)
    monkeypatch.setattr(assets, "MOST_BYTES", 20)
    assert len(bind(*add("sandbox_copy: [kept]")).copies) == 1
    (world / "repo" / "kept" / "0").write_bytes(b"123456")
    with pytest.raises(ConfigError, match="more than 20 bytes"):
        bind(*add("sandbox_copy: [kept]"))
    (world / "repo" / "kept" / "0").write_bytes(b"")
    (world / "repo" / "kept" / "4").write_bytes(b"")
    with pytest.raises(ConfigError, match="more than 5 entries"):
        bind(*add("sandbox_copy: [kept]"))


@pytest.mark.needs("git")
@pytest.mark.parametrize(
    ("n_entries", "n_bytes", "words"), [(4, 100, "more than 4 entries together"), (9, 29, "more than 29 bytes")]
)
def test_all_that_a_task_copies_and_mounts_counts_together(
    bind: Callable[..., Task], world: Path, monkeypatch: pytest.MonkeyPatch, n_entries: int, n_bytes: int, words: str
) -> None:
    """Of one task: another in the same file has the same limits once more."""
    for name in ("a", "b", "lib"):
        (world / "repo" / name).mkdir()
        (world / "repo" / name / "file").write_bytes(b"0123456789")
    monkeypatch.setattr(assets, "MOST_ENTRIES", n_entries)
    monkeypatch.setattr(assets, "MOST_BYTES", n_bytes)
    for _ in range(2):
        assert len(bind(*add("sandbox_copy: [a, b]")).copies) == 2
    with pytest.raises(ConfigError, match=f"lib: {words}"):
        bind(*add("sandbox_copy: [a, b]\n    sandbox_dependencies: [{source: lib, target: lib}]"))


@pytest.mark.needs("git")
def test_a_link_is_not_copied_and_one_that_leads_out_is_not_mounted(bind: Callable[..., Task], world: Path) -> None:
    kept = world / "repo" / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    (kept / "link").symlink_to("file")
    assert len(bind(*add("sandbox_dependencies: [{source: kept, target: kept}]")).dependencies) == 1
    with pytest.raises(ConfigError, match="a symbolic link, which is not copied"):
        bind(*add("sandbox_copy: [kept]"))
    (kept / "out").symlink_to("../../secret")
    with pytest.raises(ConfigError, match="out"):
        bind(*add("sandbox_dependencies: [{source: kept, target: kept}]"))


def test_a_path_is_measured_in_bytes() -> None:
    assert path_problem("ä" * 120, 240) is None
    assert path_problem("ä" * 121, 240) == "is longer than 240 bytes"
