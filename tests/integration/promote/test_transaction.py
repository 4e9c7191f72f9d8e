"""All or none, whoever else writes to the tree meanwhile."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairtrial.errors import HostError, IntegrityError, UsageError
from fairtrial.promote import target as target_module
from fairtrial.promote import transaction
from fairtrial.promote.recovery import find_recoveries, recover
from fairtrial.promote.target import Change
from fairtrial.promote.transaction import Step, publish

sys.path.insert(0, str(Path(__file__).parent))
from tree_with_mirrors import CHANGES, NEW, OLD, PATHS, contents, leftovers, make_tree

NOW = datetime(2026, 11, 29, tzinfo=UTC)
Act = Callable[[], object]


def at(wanted: Step, act: Act, *, number: int = 1) -> Callable[[Step, str], None]:
    """A watch that acts once, at the n-th time of a step."""
    left = [number]

    def watch(step: Step, _path: str) -> None:
        if step is wanted:
            left[0] -= 1
            if left[0] == 0:
                act()

    return watch


def ignore(_step: Step, _path: str) -> None:
    """Look away."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


def only_recovery(tree: Path) -> dict[str, object]:
    (path,) = find_recoveries(tree)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    recovery: dict[str, object] = json.loads(path.read_text())
    return recovery


def test_every_file_is_replaced_and_nothing_is_left(tree: Path) -> None:
    assert publish(tree, CHANGES, now=NOW, watch=ignore) == PATHS
    assert contents(tree) == [NEW] * 3
    assert {stat.S_IMODE((tree / path).stat().st_mode) for path in PATHS} == {0o640}
    assert leftovers(tree) == []


def test_what_holds_the_new_bytes_already_is_left_alone(tree: Path) -> None:
    same = Change(path=PATHS[0], old_sha256=CHANGES[0].old_sha256, content=OLD)
    inode = (tree / PATHS[0]).stat().st_ino
    assert publish(tree, (same, *CHANGES[1:]), now=NOW, watch=ignore) == PATHS[1:]
    assert publish(tree, (same,), now=NOW, watch=ignore) == ()
    assert (tree / PATHS[0]).stat().st_ino == inode


def test_the_steps_come_in_order(tree: Path) -> None:
    steps: list[Step] = []
    publish(tree, CHANGES, now=NOW, watch=lambda step, _path: steps.append(step))
    assert steps == [Step.HELD, Step.STAGED, *[Step.READY, Step.EXCHANGED] * 3, Step.DONE]


def drift(tree: Path) -> None:
    (tree / PATHS[2]).write_bytes(b"mine")


def remove(tree: Path) -> None:
    (tree / PATHS[1]).unlink()


def link(tree: Path) -> None:
    (tree / PATHS[1]).unlink()
    (tree / PATHS[1]).symlink_to(tree / PATHS[0])


def hard_link(tree: Path) -> None:
    os.link(tree / PATHS[1], tree / "other-name")


def linked_directory(tree: Path) -> None:
    (tree / "a").rename(tree / "c")
    (tree / "a").symlink_to("c")


def no_directory(tree: Path) -> None:
    (tree / "a").rename(tree / "c")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (drift, f"{PATHS[2]}: drifted"),
        (remove, f"{PATHS[1]}: missing"),
        (link, f"{PATHS[1]}: missing, or no regular file"),
        (hard_link, "no regular file of its own"),
        (linked_directory, "directory cannot be entered"),
        (no_directory, "directory cannot be entered"),
    ],
)
def test_a_tree_that_is_not_as_bound_is_not_touched(spoil: Callable[[Path], None], words: str, tree: Path) -> None:
    spoil(tree)
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    steps: list[Step] = []
    with pytest.raises(UsageError, match=words):
        publish(tree, CHANGES, now=NOW, watch=lambda step, _path: steps.append(step))
    assert steps == []
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before


def test_every_file_that_is_not_as_bound_is_named(tree: Path) -> None:
    drift(tree)
    remove(tree)
    with pytest.raises(UsageError, match=r"a/skills/work/SKILL.md: missing.*b/skills/work/SKILL.md: drifted"):
        publish(tree, CHANGES, now=NOW, watch=ignore)


def test_a_root_reached_through_a_link_is_refused(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("tree")
    (tmp_path / "above").symlink_to(".")
    for root in (tmp_path / "link", tmp_path / "above" / "tree"):
        with pytest.raises(UsageError, match="path without links"):
            publish(root, CHANGES, now=NOW, watch=ignore)
    assert contents(tree) == [OLD] * 3


def test_a_root_that_is_swapped_while_it_is_opened_is_refused(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = target_module.open_without_links

    def swap(path: Path) -> int:
        fd = opened(path)
        if not (tmp_path / "moved").exists():
            tree.rename(tmp_path / "moved")
            make_tree(tree)
        return fd

    monkeypatch.setattr(target_module, "open_without_links", swap)
    with pytest.raises(IntegrityError, match="was replaced meanwhile"):
        publish(tree, CHANGES, now=NOW, watch=ignore)
    assert contents(tree) == contents(tmp_path / "moved") == [OLD] * 3
    assert leftovers(tmp_path) == []


def edit_in_place(path: Path) -> Act:
    return lambda: path.write_bytes(b"mine")


def edit_by_rename(path: Path) -> Act:
    def act() -> None:
        path.with_suffix(".mine").write_bytes(b"mine")
        path.with_suffix(".mine").rename(path)

    return act


@pytest.mark.parametrize("edit", [edit_in_place, edit_by_rename])
@pytest.mark.parametrize("step", [Step.STAGED, Step.READY])
@pytest.mark.parametrize("edited", [0, 2])
def test_an_edit_before_the_exchange_survives_and_the_rest_is_put_back(
    edit: Callable[[Path], Act], step: Step, edited: int, tree: Path
) -> None:
    number = 1 if step is Step.STAGED else edited + 1
    with pytest.raises(IntegrityError, match="the change is kept"):
        publish(tree, CHANGES, now=NOW, watch=at(step, edit(tree / PATHS[edited]), number=number))
    assert contents(tree) == [b"mine" if number == edited else OLD for number in range(3)]
    assert leftovers(tree) == []


def test_a_change_of_mode_before_the_exchange_survives(tree: Path) -> None:
    watch = at(Step.READY, lambda: (tree / PATHS[1]).chmod(0o600), number=2)
    with pytest.raises(IntegrityError, match="the change is kept"):
        publish(tree, CHANGES, now=NOW, watch=watch)
    assert contents(tree) == [OLD] * 3
    assert [stat.S_IMODE((tree / path).stat().st_mode) for path in PATHS] == [0o640, 0o600, 0o640]
    assert leftovers(tree) == []


@pytest.mark.parametrize("edit", [edit_in_place, edit_by_rename])
def test_an_edit_after_the_exchange_survives_and_a_recovery_file_tells_of_it(
    edit: Callable[[Path], Act], tree: Path
) -> None:
    with pytest.raises(IntegrityError, match=r"rollback-incomplete.*says what to do"):
        publish(tree, CHANGES, now=NOW, watch=at(Step.EXCHANGED, edit(tree / PATHS[1]), number=2))
    assert contents(tree) == [OLD, b"mine", OLD]
    recovery = only_recovery(tree)
    assert recovery["transaction_state"] == "rollback-incomplete"
    assert recovery["commands"] == []
    backups = recovery["backups"]
    assert isinstance(backups, list)
    assert Path(backups[1]["backup"]).read_bytes() == OLD
    assert backups[1]["backup_exists"]
    with pytest.raises(IntegrityError, match="Compare each destination"):
        recover(tree)
    assert contents(tree) == [OLD, b"mine", OLD]


@pytest.mark.parametrize("step", list(Step))
def test_an_interrupt_at_any_step_puts_everything_back_and_is_raised_again(step: Step, tree: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    number = 2 if step in (Step.READY, Step.EXCHANGED) else 1
    with pytest.raises(KeyboardInterrupt):
        publish(tree, CHANGES, now=NOW, watch=at(step, interrupt, number=number))
    assert contents(tree) == [OLD] * 3
    assert leftovers(tree) == []


@pytest.mark.parametrize("moved", ["a/skills/work", "a", "."])
def test_a_directory_that_is_replaced_after_preparation_puts_everything_back(moved: str, tree: Path) -> None:
    elsewhere = tree.parent / "elsewhere"

    def replace() -> None:
        (tree / moved).rename(elsewhere)
        make_tree(tree)

    with pytest.raises(IntegrityError, match="directory was replaced meanwhile"):
        publish(tree, CHANGES, now=NOW, watch=at(Step.STAGED, replace))
    assert contents(tree) == [OLD] * 3
    assert {path.read_bytes() for path in elsewhere.rglob("*.md")} == {OLD}
    assert leftovers(tree) == leftovers(elsewhere) == []


def test_a_candidate_at_both_names_needs_a_person(tree: Path) -> None:
    place = tree / PATHS[1]

    def link_both() -> None:
        (staged,) = (
            path
            for path in place.parent.glob(".fairtrial-*")
            if path.read_bytes() == OLD and path != place and path.stat().st_ino == before
        )
        staged.unlink()
        os.link(place, staged)

    before = place.stat().st_ino
    with pytest.raises(IntegrityError, match="rollback-incomplete"):
        publish(tree, CHANGES, now=NOW, watch=at(Step.EXCHANGED, link_both, number=2))
    assert contents(tree) == [OLD, NEW, OLD]
    backups = only_recovery(tree)["backups"]
    assert isinstance(backups, list)
    assert Path(backups[1]["backup"]).read_bytes() == OLD


def test_a_file_system_that_cannot_exchange_changes_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_fd: int, _one: str, other: str) -> None:
        raise OSError(errno.EINVAL, "the file system cannot exchange two files", other)

    monkeypatch.setattr(transaction, "exchange", refuse)
    with pytest.raises(HostError, match="cannot exchange two files; everything is as it was"):
        publish(tree, CHANGES, now=NOW, watch=ignore)
    assert contents(tree) == [OLD] * 3
    assert leftovers(tree) == []


def test_any_failed_fsync_leaves_no_temporary_file(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync
    for failing in range(1, 100):
        left = [failing]

        def fail(fd: int, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(errno.EIO, "disk failure")
            real(fd)

        monkeypatch.setattr(os, "fsync", fail)
        try:
            publish(tree, CHANGES, now=NOW, watch=ignore)
        except HostError:
            monkeypatch.setattr(os, "fsync", real)
            assert contents(tree) in ([OLD] * 3, [NEW] * 3)
            if contents(tree) == [NEW] * 3:  # it failed when all was done, in cleaning up
                assert failing > 10
                break
            assert leftovers(tree) == [], failing
        else:
            assert left[0] > 0
            break
    assert failing > 10
    assert contents(tree) == [NEW] * 3


def test_a_failed_clean_up_after_success_is_told_as_published(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.unlink

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        if "recovery" not in str(path):
            raise OSError(errno.EPERM, "not permitted")
        real(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(HostError, match="every file was replaced, but"):
        publish(tree, CHANGES, now=NOW, watch=ignore)
    monkeypatch.setattr(os, "unlink", real)
    recovery = only_recovery(tree)
    assert recovery["transaction_state"] == "published"
    assert contents(tree) == [NEW] * 3
    with pytest.raises(IntegrityError, match="--recover"):
        publish(tree, CHANGES, now=NOW, watch=ignore)
    recover(tree)
    assert contents(tree) == [NEW] * 3
    assert leftovers(tree) == []


def test_no_descriptor_stays_open(tree: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(KeyboardInterrupt):
        publish(tree, CHANGES, now=NOW, watch=at(Step.EXCHANGED, stop))
    publish(tree, CHANGES, now=NOW, watch=ignore)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_recovery_file_that_nobody_can_read_stays(tree: Path) -> None:
    (tree / ".fairtrial-recovery-x.json").write_text("{}")
    with pytest.raises(IntegrityError, match="cannot be read as a recovery file"):
        recover(tree)
    assert len(find_recoveries(tree)) == 1


def test_there_is_nothing_to_recover_in_a_clean_tree(tree: Path) -> None:
    assert recover(tree) == ()


def break_off(tree: Path, *, n_exchanged: int) -> dict[str, object]:
    """Leave the tree as a kill after so many exchanges leaves it; returns what the recovery file says."""
    child = os.fork()
    if child == 0:
        watch = at(Step.EXCHANGED, lambda: os.kill(os.getpid(), signal.SIGKILL), number=n_exchanged)
        publish(tree, CHANGES, now=NOW, watch=watch)
        os._exit(9)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    return only_recovery(tree)


def rewrite_backup(tree: Path, **changes: str) -> None:
    """Let the recovery file say something else of its first file."""
    (path,) = find_recoveries(tree)
    recovery = json.loads(path.read_text())
    recovery["backups"][0] |= changes
    path.write_text(json.dumps(recovery))


@pytest.mark.parametrize("state", ["not-fully-published", "published"])
@pytest.mark.parametrize(
    ("target", "said_below"),
    [("SKILL.md", "home"), ("../home/SKILL.md", "home"), ("home/SKILL.md", "home"), ("link/SKILL.md", "tree/link")],
)
def test_a_recovery_file_of_somebody_else_touches_nothing_outside_of_the_tree(
    tree: Path, target: str, said_below: str, state: str
) -> None:
    home, said = tree.parent / "home", tree.parent / said_below
    home.mkdir()
    (tree / "link").symlink_to(home)
    names = ("SKILL.md", f".fairtrial-{'a' * 16}", f".fairtrial-{'b' * 16}")
    for name in names:
        (home / name).write_bytes(NEW)
    backup = {
        "target": target,
        **dict(zip(("destination", "candidate", "backup"), (str(said / name) for name in names), strict=True)),
        "candidate_exists": True,
        "backup_exists": True,
        "old_sha256": CHANGES[0].old_sha256,
        "new_sha256": CHANGES[0].new_sha256,
    }
    recovery = {"schema": "recovery/1", "transaction_state": state, "failure": "", "what_to_do": ""}
    lists = {"rollback_failures": [], "commands": [], "backups": [backup]}
    (tree / ".fairtrial-recovery-x.json").write_text(json.dumps({**recovery, **lists}))
    with pytest.raises((IntegrityError, HostError)):
        recover(tree)
    assert sorted(path.name for path in home.iterdir()) == sorted(names)
    assert len(find_recoveries(tree)) == 1


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("candidate", "precious.md"),
        ("backup", "precious.md"),
        ("backup", ".fairtrial-recovery-x.json"),
        ("target", "./" + PATHS[0]),
        ("target", "/" + PATHS[0]),
        ("target", "../tree/" + PATHS[0]),
        ("target", PATHS[1]),
    ],
)
def test_a_recovery_file_that_names_what_no_transaction_leaves_does_nothing(tree: Path, field: str, name: str) -> None:
    break_off(tree, n_exchanged=2)
    precious = (tree / PATHS[0]).with_name("precious.md")
    precious.write_bytes(b"mine")
    before = (contents(tree), leftovers(tree))
    rewrite_backup(tree, **{field: name if field == "target" else str(precious.with_name(name))})
    with pytest.raises(IntegrityError, match="no transaction of this tree leaves that"):
        recover(tree)
    assert (contents(tree), leftovers(tree), precious.read_bytes()) == (*before, b"mine")


def test_a_recovery_file_that_is_a_link_and_a_tree_that_is_reached_through_one_are_refused(tree: Path) -> None:
    break_off(tree, n_exchanged=1)
    (tree.parent / "link").symlink_to(tree)
    with pytest.raises(UsageError, match="path without links"):
        recover(tree.parent / "link")
    (path,) = find_recoveries(tree)
    path.rename(tree.parent / "elsewhere")
    path.symlink_to(tree.parent / "elsewhere")
    with pytest.raises(IntegrityError, match="cannot be read as a recovery file"):
        recover(tree)
    assert contents(tree) == [NEW, OLD, OLD]


def test_a_tree_that_was_moved_is_put_back_where_it_lies_now(tree: Path) -> None:
    break_off(tree, n_exchanged=2)
    moved = tree.rename(tree.parent / "moved")
    recover(moved)
    assert (contents(moved), leftovers(moved)) == ([OLD] * 3, [])


def test_an_edit_after_a_kill_is_kept_and_left_to_a_person(tree: Path) -> None:
    break_off(tree, n_exchanged=2)
    (tree / PATHS[1]).write_bytes(b"mine")
    with pytest.raises(IntegrityError, match=rf"edited since: .*{PATHS[1]}; keep what you want"):
        recover(tree)
    assert contents(tree) == [OLD, b"mine", OLD]
    assert len(find_recoveries(tree)) == 1
    assert [path for path in leftovers(tree) if path.startswith("a/")]


def test_the_commands_keep_the_recovery_file_while_something_is_left_of_an_edited_file(tree: Path) -> None:
    backups = break_off(tree, n_exchanged=2)["backups"]
    assert isinstance(backups, list)
    (tree / PATHS[1]).write_bytes(b"mine")

    def follow() -> str:
        commands = only_recovery(tree)["commands"]
        assert isinstance(commands, list)
        return "".join(subprocess.check_output(["/bin/sh", "-c", command], text=True) for command in commands)

    beside = [Path(backups[1][name]) for name in ("candidate", "backup")]
    assert f"edited since, so left alone: {tree / PATHS[1]}\n{beside[0]} is left for you to decide on\n" in follow()
    assert contents(tree) == [OLD, b"mine", OLD]
    (recovery,) = find_recoveries(tree)
    assert leftovers(tree) == sorted(str(path.relative_to(tree)) for path in (recovery, *beside))
    beside[0].unlink()
    assert f"{beside[1]} is left for you to decide on\n" in follow()
    beside[1].unlink()
    follow()
    assert leftovers(tree) == []


def test_a_lost_displaced_file_is_taken_from_the_backup(tree: Path) -> None:
    backups = break_off(tree, n_exchanged=1)["backups"]
    assert isinstance(backups, list)
    Path(backups[0]["candidate"]).unlink()
    assert recover(tree) == (f"{PATHS[0]}: put back",)
    assert contents(tree) == [OLD] * 3
    assert leftovers(tree) == []


def test_an_edit_of_the_last_moment_is_put_back_after_a_kill(tree: Path) -> None:
    backups = break_off(tree, n_exchanged=1)["backups"]
    assert isinstance(backups, list)
    Path(backups[0]["candidate"]).write_bytes(b"mine")  # as if it had been in the file's place just before
    recover(tree)
    assert contents(tree) == [b"mine", OLD, OLD]
    assert leftovers(tree) == []


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to], ids=["symlink", "hardlink"])
def test_an_edit_of_the_last_moment_that_is_a_link_is_put_back_after_a_kill(
    tree: Path, link: Callable[[Path, Path], None]
) -> None:
    backups = break_off(tree, n_exchanged=1)["backups"]
    assert isinstance(backups, list)
    displaced, mine = Path(backups[0]["candidate"]), tree / "mine.md"
    mine.write_bytes(b"mine")
    displaced.unlink()
    link(displaced, mine)  # as if it had been in the file's place just before
    assert recover(tree) == (f"{PATHS[0]}: put back",)
    assert contents(tree) == [b"mine", OLD, OLD]
    assert (tree / PATHS[0]).samefile(mine)
    assert leftovers(tree) == []


def test_a_second_transaction_waits_for_nobody_and_changes_nothing(tree: Path) -> None:
    problems: list[str] = []

    def second() -> None:
        for act in (lambda: publish(tree, CHANGES, now=NOW, watch=ignore), lambda: recover(tree)):
            with pytest.raises(HostError, match="still locked by") as found:
                act()
            problems.append(str(found.value))

    publish(tree, CHANGES, now=NOW, watch=at(Step.READY, second, number=2))
    assert len(problems) == 2
    assert contents(tree) == [NEW] * 3


def test_a_tree_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        publish(tmp_path / "none", CHANGES, now=NOW, watch=ignore)
    with pytest.raises(UsageError, match="no such directory"):
        recover(tmp_path / "none")


@pytest.mark.root
def test_files_of_a_lower_layer_are_replaced_through_an_overlay_mount(tree: Path, tmp_path: Path) -> None:
    for name in ("upper", "work", "merged"):
        (tmp_path / name).mkdir()
    places = f"lowerdir={tree},upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from datetime import UTC, datetime\n"
        "from tree_with_mirrors import CHANGES, NEW, contents, leftovers\n"
        "from fairtrial.promote.transaction import publish\n"
        "root = Path(sys.argv[2])\n"
        "publish(root, CHANGES, now=datetime.now(UTC), watch=lambda _step, _path: None)\n"
        "assert (contents(root), leftovers(root)) == ([NEW] * 3, [])\n"
    )
    mount = f'mount -t overlay overlay -o {places} {tmp_path}/merged && exec "$0" -c "$1" "$2" {tmp_path}/merged'
    argv = ["unshare", "-m", "/bin/sh", "-c", mount, sys.executable, script, str(Path(__file__).parent)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "mount:" in done.stderr:
        pytest.skip(f"no overlay can be mounted here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert contents(tree) == [OLD] * 3
