import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.errors import IntegrityError
from fairtrial.host.slot import Slot
from fairtrial.model.sandbox import Limit
from fairtrial.workspace import change as change_module
from fairtrial.workspace.archive import pack_change, unpack_change
from fairtrial.workspace.artifact import find_artifact
from fairtrial.workspace.change import Change, Kind, apply_change, read_change, room_for
from fairtrial.workspace.churn import measure_churn
from fairtrial.workspace.frozen import load_layer, save_layer
from fairtrial.workspace.layers import Base, Layer, Room, Storage
from fairtrial.workspace.template import Template

pytestmark = pytest.mark.needs("git")

MakeTemplate = Callable[..., Template]
OpenLayer = Callable[..., Layer]
Act = Callable[[Layer, str], None]

BASE: dict[str, object] = {
    ".gitignore": "*.pyc\nbuild/\n!keep.pyc\n",
    "a.txt": "one\ntwo\n",
    "d/b.txt": "b\n",
    "d/e/c.txt": "c\n",
    "run.sh": ("x", "#!/bin/sh\n"),
    "link": ("->", "a.txt"),
    "tracked.pyc": "tracked although ignored\n",
}


@pytest.fixture
def act(slot: Slot) -> Act:
    """Run a shell script in a layer, as the slot's uid."""

    def run(layer: Layer, script: str) -> None:
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
        command = slot.argv(["/bin/sh", "-ec", script])
        subprocess.run(command, cwd=layer.merged, env=env, check=True)

    return run


@pytest.fixture
def changed(make: MakeTemplate, layer_over: OpenLayer, act: Act, slot: Slot) -> Callable[[str], Change]:
    """The change that a script makes to BASE."""

    def make_it(script: str) -> Change:
        template = make(BASE)
        layer = layer_over(template)
        act(layer, script)
        return read_change(layer, template, slot=slot)

    return make_it


def shown(change: Change) -> dict[str, tuple[Kind, bytes]]:
    return {os.fsdecode(entry.path): (entry.kind, entry.content) for entry in change.entries}


def test_what_was_not_touched_is_no_change(changed: Callable[[str], Change]) -> None:
    assert changed("true") == Change(entries=())


def test_a_file_rewritten_with_its_own_content_is_no_change(changed: Callable[[str], Change]) -> None:
    assert shown(changed("cat a.txt >t; mv t a.txt; touch d/b.txt; chmod 600 d/e/c.txt; mkdir -p empty/dirs")) == {}


def test_new_edited_and_removed_files_are_credited_whole(changed: Callable[[str], Change]) -> None:
    change = changed("echo three >>a.txt; mkdir n; echo new >n/f; rm d/b.txt")
    assert shown(change) == {
        "a.txt": (Kind.FILE, b"one\ntwo\nthree\n"),
        "d/b.txt": (Kind.GONE, b""),
        "n/f": (Kind.FILE, b"new\n"),
    }
    assert [entry.existed for entry in change.entries] == [True, True, False]


def test_the_executable_bit_counts_and_other_bits_do_not(changed: Callable[[str], Change]) -> None:
    change = changed("chmod 644 run.sh; chmod 755 a.txt; chmod 600 d/b.txt")
    assert {path: kind for path, (kind, _) in shown(change).items()} == {"run.sh": Kind.FILE, "a.txt": Kind.EXECUTABLE}


def test_links_are_credited_as_links_and_never_followed(changed: Callable[[str], Change]) -> None:
    change = changed(
        "ln -sfn /etc/passwd link; rm a.txt; ln -s ../../../x a.txt; ln -s d/b.txt in; ln -s ../a.txt d/up"
    )
    assert shown(change) == {
        "a.txt": (Kind.LINK, b"../../../x"),
        "d/up": (Kind.LINK, b"../a.txt"),
        "in": (Kind.LINK, b"d/b.txt"),
        "link": (Kind.LINK, b"/etc/passwd"),
    }
    assert change.links_out == (b"a.txt", b"link")


def test_a_directory_that_takes_a_files_place_and_the_other_way_round(changed: Callable[[str], Change]) -> None:
    change = changed(
        "rm a.txt; mkdir a.txt; echo x >a.txt/x; rm -r d; echo flat >d; rm link; mkdir link; echo y >link/y"
    )
    assert {path: kind for path, (kind, _) in shown(change).items()} == {
        "a.txt": Kind.GONE,
        "a.txt/x": Kind.FILE,
        "d": Kind.FILE,
        "d/b.txt": Kind.GONE,
        "d/e/c.txt": Kind.GONE,
        "link": Kind.GONE,
        "link/y": Kind.FILE,
    }


def test_a_directory_removed_and_made_again_hides_what_it_had(changed: Callable[[str], Change]) -> None:
    change = changed("rm -r d; mkdir -p d/e; echo n >d/e/new; printf 'c\\n' >d/e/c.txt")
    assert {path: kind for path, (kind, _) in shown(change).items()} == {"d/b.txt": Kind.GONE, "d/e/new": Kind.FILE}


def test_a_renamed_directory_is_gone_there_and_new_here(changed: Callable[[str], Change]) -> None:
    change = changed("mv d moved")
    assert {path: kind for path, (kind, _) in shown(change).items()} == {
        "d/b.txt": Kind.GONE,
        "d/e/c.txt": Kind.GONE,
        "moved/b.txt": Kind.FILE,
        "moved/e/c.txt": Kind.FILE,
    }


def test_the_bases_own_rules_decide_what_is_ignored_and_the_agents_do_not(changed: Callable[[str], Change]) -> None:
    change = changed(
        "echo 'solution.py' >>.gitignore; mkdir -p .git/info; echo solution.py >>.git/info/exclude;"
        " git config core.excludesFile /workspace/x; echo s >solution.py; echo f >forged.pyc; mkdir -p build d/build;"
        " echo o >build/o; echo o >d/build/o; echo k >keep.pyc"
    )
    assert set(shown(change)) == {".gitignore", "solution.py", "keep.pyc"}


def test_a_tracked_file_is_credited_whatever_ignores_it(changed: Callable[[str], Change]) -> None:
    assert set(shown(changed("echo x >tracked.pyc"))) == {"tracked.pyc"}


def test_no_git_directory_is_ever_credited(changed: Callable[[str], Change]) -> None:
    change = changed(
        "git -c user.name=x -c user.email=x commit -q --allow-empty -m x; mkdir sub;"
        " git init -q sub; echo f >sub/f; rm -rf .git"
    )
    assert set(shown(change)) == {"sub/f"}


def test_special_files_are_refused_and_a_hard_link_counts_as_a_file(changed: Callable[[str], Change]) -> None:
    change = changed(
        "mkfifo pipe; ln a.txt hard; rm d/b.txt; mkfifo d/b.txt;"
        " python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'"
    )
    assert {os.fsdecode(refusal.path): refusal.reason for refusal in change.refused} == {
        "pipe": "a pipe",
        "d/b.txt": "a pipe",
        "sock": "a socket",
    }
    assert shown(change) == {"hard": (Kind.FILE, b"one\ntwo\n")}


def test_closed_directories_and_files_hide_nothing(changed: Callable[[str], Change]) -> None:
    change = changed("mkdir n; echo x >n/x; echo y >n/y; chmod 000 n/y n; chmod 000 d a.txt; echo z >z")
    assert set(shown(change)) == {"n/x", "n/y", "z"}


def test_names_that_are_no_text_and_names_with_every_sign_survive(changed: Callable[[str], Change]) -> None:
    change = changed(
        "python3 -c 'import os\n"
        'for name in (b"\\xff", b"new\\nline", b"back\\\\slash", b"q\\"", b"tab\\t", b" ", b"-x"):'
        ' open(name, "wb").write(name)\''
    )
    assert {entry.path for entry in change.entries} == {
        b"\xff",
        b"new\nline",
        b"back\\slash",
        b'q"',
        b"tab\t",
        b" ",
        b"-x",
    }
    assert all(entry.content == entry.path for entry in change.entries)
    assert unpack_change(pack_change(change, commit="c", tree_id="t"))[0] == change


def test_names_that_git_would_take_for_patterns_are_names(changed: Callable[[str], Change]) -> None:
    names = {":!x", ":^x", ":(bogus)x", ":(top)x", ":(glob)**", ":(prefix:9)y", "::x", ":/x", ":!d/x", "d/:!x"}
    ignored = (":!x.pyc", ":(top)x.pyc", ":/x.pyc", ":!d/x.pyc", "d/:!x.pyc")
    touch = " ".join(f"'./{name}'" for name in (*names, *ignored))
    assert set(shown(changed(f"mkdir ':!d' :; touch {touch}"))) == names


def test_a_change_made_again_over_the_base_gives_the_same_tree(
    make: MakeTemplate, layer_over: OpenLayer, act: Act, slot: Slot
) -> None:
    template = make(BASE)
    layer = layer_over(template)
    act(
        layer,
        "rm a.txt; mkdir a.txt; echo x >a.txt/x; rm -r d; echo flat >d; ln -sfn out link; echo n >n; chmod 755 n;"
        " echo i >i.pyc",
    )
    change = read_change(layer, template, slot=slot)
    judged = layer_over(template)
    apply_change(change, judged, slot=slot)
    assert read_change(judged, template, slot=slot) == change
    act(layer, "rm i.pyc")
    command = ["diff", "-r", "--no-dereference", "--exclude=.git", str(layer.merged), str(judged.merged)]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""
    act(judged, "echo mine >>n; rm -r a.txt")  # it belongs to the slot


def test_a_link_in_the_base_is_never_written_through(
    make: MakeTemplate, layer_over: OpenLayer, act: Act, slot: Slot, public_path: Path
) -> None:
    outside = public_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    template = make({"out": ("->", str(outside)), "f": "1"})
    layer = layer_over(template)
    act(layer, "rm out; mkdir out; echo x >out/x")
    change = read_change(layer, template, slot=slot)
    assert {path: kind for path, (kind, _) in shown(change).items()} == {"out": Kind.GONE, "out/x": Kind.FILE}
    judged = layer_over(template)
    apply_change(change, judged, slot=slot)
    assert list(outside.iterdir()) == []
    assert (judged.merged / "out/x").read_text() == "x\n"


def test_a_frozen_layer_is_the_base_of_others_and_not_credited(
    make: MakeTemplate, layer_over: OpenLayer, act: Act, slot: Slot
) -> None:
    template = make(BASE)
    setup = layer_over(template, storage=Storage.DISK)
    act(setup, "mkdir build; echo dep >build/dep; echo set >>a.txt; rm d/b.txt; mv d/e moved; rmdir d; mkdir d")
    layer = layer_over(setup.frozen())
    assert read_change(layer, template, slot=slot) == Change(entries=())
    act(layer, "test -f build/dep; test ! -e d/b.txt; echo n >d/n; echo more >>a.txt; rm moved/c.txt")
    assert shown(read_change(layer, template, slot=slot)) == {
        "a.txt": (Kind.FILE, b"one\ntwo\nset\nmore\n"),
        "d/n": (Kind.FILE, b"n\n"),
        "moved/c.txt": (Kind.GONE, b""),
    }
    assert not (setup.merged / "d/n").exists()


def test_a_saved_layer_is_the_same_base_in_another_slot(
    make: MakeTemplate, layer_over: OpenLayer, act: Act, slot: Slot, public_path: Path
) -> None:
    template = make(BASE)
    setup = layer_over(template)
    act(
        setup,
        "mkdir build; echo dep >build/dep; chmod 555 build; rm d/b.txt; rm -r d/e; mkdir d/e; ln -s x build2; rm a.txt",
    )
    archive = save_layer(setup, slot=slot).rename(public_path / "saved")
    with load_layer(archive, setup.base, slot=slot) as base:
        layer = layer_over(base)
        act(
            layer,
            "test -f build/dep; test ! -e d/b.txt; test ! -e d/e/c.txt; test ! -e a.txt; test ! -w build || id -u",
        )
        assert (layer.merged / "build2").readlink() == Path("x")
        command = ["diff", "-r", "--no-dereference", str(setup.merged), str(layer.merged)]
        assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""


def test_two_layers_over_one_base_do_not_see_each_other(make: MakeTemplate, layer_over: OpenLayer, act: Act) -> None:
    template = make(BASE)
    one, two = layer_over(template), layer_over(template)
    act(one, "echo x >x; git config a.b c; echo y >a.txt; git stash -q || true; git gc -q --prune=now")
    act(two, "test ! -e x; ! git config a.b; git status --porcelain | wc -l | grep -qx 0; git fsck --strict")
    assert (template.tree / "a.txt").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("script", "excess"),
    [
        ("head -c 600 /dev/zero >x; head -c 600 /dev/zero >y", Limit.DISK),
        ("head -c 999 /dev/zero >x", None),
        ("for i in $(seq 30); do echo >$i; done", Limit.INODES),
    ],
)
def test_more_than_can_be_kept_is_no_change_but_an_excess(
    changed: Callable[[str], Change], monkeypatch: pytest.MonkeyPatch, script: str, excess: Limit | None
) -> None:
    monkeypatch.setattr(change_module, "MOST_BYTES", 1000)
    monkeypatch.setattr(change_module, "MOST_ENTRIES", 20)
    change = changed(script)
    assert change.excess is excess
    assert (change.entries == ()) is (excess is not None)


@pytest.mark.parametrize(("n_files", "excess"), [(5, None), (6, Limit.INODES)])
def test_more_paths_than_are_credited_are_an_excess(
    changed: Callable[[str], Change], monkeypatch: pytest.MonkeyPatch, n_files: int, excess: Limit | None
) -> None:
    monkeypatch.setattr(change_module, "MOST_CREDITED", 5)
    change = changed(f"for n in $(seq {n_files}); do : >n$n; done")
    assert (change.excess, len(change.entries)) == (excess, 0 if excess else 5)


def test_a_path_too_deep_to_name_is_an_excess(changed: Callable[[str], Change]) -> None:
    script = "import os\nfor _ in range(50):\n    os.mkdir('x' * 200); os.chdir('x' * 200)\nopen('f', 'w')"
    assert changed(f'python3 -c "{script}"').excess is Limit.INODES


@pytest.mark.parametrize(("n_levels", "excess"), [(256, None), (257, Limit.INODES)])
def test_a_path_of_more_levels_than_are_credited_is_an_excess(
    changed: Callable[[str], Change], n_levels: int, excess: Limit | None
) -> None:
    change = changed(f"p=$(seq -s / {n_levels - 1}); mkdir -p $p; echo x >$p/f")
    assert (change.excess, len(change.entries)) == (excess, 0 if excess else 1)


@pytest.mark.parametrize(("most_bytes", "excess"), [(100_000, None), (1000, Limit.INODES)])
def test_more_bytes_of_paths_than_git_can_answer_for_are_an_excess_though_it_ignores_them(
    changed: Callable[[str], Change], monkeypatch: pytest.MonkeyPatch, most_bytes: int, excess: Limit | None
) -> None:
    monkeypatch.setattr(change_module, "MOST_PATH_BYTES", most_bytes)
    change = changed("mkdir build; cd build; for n in $(seq 100 199); do : >$n.pyc; done")
    assert (change.excess, change.entries) == (excess, ())


def test_churn_counts_lines_as_git_does_under_the_bases_rules(
    make: MakeTemplate, layer_over: OpenLayer, act: Act, slot: Slot
) -> None:
    template = make({**BASE, ".gitattributes": "*.crlf text eol=crlf\n", "w.crlf": "one\r\ntwo\r\n", "docs/p": "1\n"})
    layer = layer_over(template)
    act(
        layer,
        "printf 'one\\r\\n2\\r\\n' >w.crlf; rm d/b.txt; printf '\\0bin' >bin; ln -s x new; echo p >docs/p;"
        " rm -r .gitattributes;"
        " rm a.txt; mkdir a.txt; echo x >a.txt/x; printf '* -diff\\n' >d/.gitattributes; echo d >d/f",
    )
    churn = measure_churn(read_change(layer, template, slot=slot), template, slot=slot, exclude=("docs",))
    # w.crlf 1+1, d/b.txt -1, bin, new +1, .gitattributes -1, a.txt -2, a.txt/x +1, d/.gitattributes +1, d/f +1
    assert (churn.files, churn.insertions, churn.deletions) == (9, 5, 5)
    assert b"+2" in churn.patch
    assert not churn.patch_truncated


def test_the_same_bytes_have_the_same_digest_and_no_others(
    make: MakeTemplate, layer_over: OpenLayer, act: Act, slot: Slot
) -> None:
    template = make(BASE)

    def digest(script: str) -> str | None:
        layer = layer_over(template)
        act(layer, script)
        return measure_churn(read_change(layer, template, slot=slot), template, slot=slot, exclude=("docs",)).digest

    first = digest("echo 1 >new; rm a.txt; mkdir docs; echo a >docs/plan")
    assert first == digest("rm a.txt; printf '1\\n' >new; mkdir docs; echo b >docs/plan"), "whoever wrote it"
    others = ["echo 2 >new; rm a.txt", "echo 1 >new", "echo 1 >new; chmod +x new; rm a.txt", "ln -s 1 new; rm a.txt"]
    assert len({first, *map(digest, others)}) == 1 + len(others)
    assert digest("mkdir docs; echo a >docs/plan") is None


def test_only_so_much_of_a_patch_is_kept(make: MakeTemplate, layer_over: OpenLayer, act: Act, slot: Slot) -> None:
    template = make(BASE)
    layer = layer_over(template)
    act(layer, "seq 100000 >many")
    churn = measure_churn(read_change(layer, template, slot=slot), template, slot=slot)
    assert (churn.insertions, len(churn.patch), churn.patch_truncated) == (100_000, 300_000, True)


def test_a_packed_change_that_was_altered_is_refused(changed: Callable[[str], Change]) -> None:
    packed = pack_change(changed("echo x >x; rm a.txt"), commit="c", tree_id="t")
    assert unpack_change(packed)[1] == "c"
    for altered in (packed.replace(b"x\n\0", b"y\n\0"), packed[:600], b"", packed.replace(b'"gone"', b'"file"')):
        with pytest.raises(IntegrityError):
            unpack_change(altered)


def test_the_hooks_monitors_and_filters_of_an_agents_repository_never_run(
    changed: Callable[[str], Change], public_path: Path
) -> None:
    mark = public_path / "ran"
    public_path.chmod(0o777)
    change = changed(
        f"git config core.fsmonitor 'touch {mark}'; git config filter.f.clean 'touch {mark}; cat';"
        f" git config core.hooksPath .git/h; git config core.worktree /; echo '* filter=f diff=t' >.gitattributes;"
        f" git config diff.t.textconv 'touch {mark}'; echo x >>a.txt"
    )
    assert set(shown(change)) == {".gitattributes", "a.txt"}
    assert not mark.exists()


@pytest.mark.parametrize(
    ("script", "wrong"),
    [
        ("true", "0 artifacts"),
        ("mkdir -p docs/plans; echo p >docs/plans/a.md; echo q >docs/plans/b.md", "2 artifacts"),
        ("mkdir -p docs/plans; echo p >docs/plans/a.md; echo x >>a.txt", "other paths: a.txt"),
        ("mkdir -p docs/plans; ln -s /etc/passwd docs/plans/a.md", "is link"),
        ("mkdir -p docs/plans/x; echo p >docs/plans/x/a.md", "other paths"),
        ("mkdir -p docs/plans; echo p >docs/plans/$(printf '\\377').md", r"no text: docs/plans/\\xff\.md"),
    ],
)
def test_a_phase_may_change_its_artifact_only(changed: Callable[[str], Change], script: str, wrong: str) -> None:
    with pytest.raises(IntegrityError, match=wrong):
        find_artifact(changed(script), "docs/plans/*.md")


def test_the_one_artifact_is_found(changed: Callable[[str], Change]) -> None:
    assert (
        find_artifact(changed("mkdir -p docs/plans; echo p >docs/plans/a.md"), "docs/plans/*.md") == "docs/plans/a.md"
    )


def test_a_full_layer_says_so(make: MakeTemplate, layer_over: OpenLayer, act: Act) -> None:
    template = make(BASE)
    layer = layer_over(template, room=Room(disk_bytes=1 << 20, inodes=200))
    assert layer.space.full() is None
    act(layer, "head -c 3000000 /dev/zero >big 2>&1 || true")
    assert layer.space.full() is Limit.DISK
    other = layer_over(template, room=Room(disk_bytes=1 << 24, inodes=200))
    act(other, "(for i in $(seq 400); do : >f$i; done) 2>&- || true")
    assert other.space.full() is Limit.INODES


def test_nothing_of_a_layer_is_left(make: MakeTemplate, slot: Slot, act: Act) -> None:
    from fairtrial.workspace.layers import open_layer

    template = make(BASE)
    before = set(slot.root.iterdir())
    for storage in Storage:
        with open_layer(Base(trees=(template.tree,)), slot=slot, room=Room(), storage=storage) as layer:
            act(layer, "mkdir -p x/y; echo f >x/y/f; chmod 000 x/y x; chmod 555 d")
    assert set(slot.root.iterdir()) == before
    assert str(slot.root) not in Path("/proc/self/mountinfo").read_text()


def test_layers_are_overlays_where_this_process_owns_its_mounts(
    make: MakeTemplate, layer_over: OpenLayer, slot: Slot
) -> None:
    assert slot.mounts is (os.getpid() == 1), slot.reason
    assert (layer_over(make(BASE)).upper is not None) is slot.mounts


def test_names_that_git_refuses_are_not_credited_and_break_nothing(
    make: MakeTemplate,
    layer_over: OpenLayer,
    act: Act,
    slot: Slot,
    source: Any,  # noqa: ANN401 - the fixture's class lives in conftest.py
) -> None:
    commit = source.commit(BASE)
    source.git("update-index", "--add", "--cacheinfo", f"160000,{commit},lib/s")
    source.git("commit", "-q", "-m", "link")
    template = make()
    layer = layer_over(template)
    act(layer, "mkdir .GIT d/.Git; echo x >.GIT/x; echo y >d/.Git/y; ln -s x .gitmodules; ln -s x d/.GITmodules")
    act(layer, "echo s >lib/s/f")
    change = read_change(layer, template, slot=slot)
    assert set(shown(change)) == {"lib/s/f"}
    assert {refusal.path for refusal in change.refused} == {b".gitmodules", b"d/.GITmodules"}
    assert measure_churn(change, template, slot=slot).insertions == 1


def test_what_git_cannot_compare_is_unknown_and_not_zero(
    make: MakeTemplate, layer_over: OpenLayer, act: Act, slot: Slot
) -> None:
    template = make({".gitattributes": "*.u16 text working-tree-encoding=UTF-16LE-BOM\n", "a": "1\n"})
    layer = layer_over(template)
    act(layer, "printf 'abc' >x.u16; echo 2 >>a")
    churn = measure_churn(read_change(layer, template, slot=slot), template, slot=slot)
    assert (churn.files, churn.insertions, churn.deletions) == (2, None, None)
    assert churn.reason


def test_a_layer_can_be_given_room_for_any_change(
    make: MakeTemplate, layer_over: OpenLayer, act: Act, slot: Slot
) -> None:
    template = make(BASE)
    layer = layer_over(template)
    act(layer, "mkdir -p $(seq -s / 40); cd $(seq -s / 40); for i in $(seq 300); do echo $i >$i; done")
    change = read_change(layer, template, slot=slot)
    judged = layer_over(template, room=room_for(change, Room(disk_bytes=1 << 20, inodes=64)))
    apply_change(change, judged, slot=slot)
    assert judged.space.full() is None


def test_a_change_is_given_room_for_each_of_its_directories_once(changed: Callable[[str], Change]) -> None:
    change = changed("mkdir -p n/a n/b n-o; for p in n/a n/b n-o n; do touch $p/1 $p/2; done; touch d/e/new top")
    paths = [os.fsdecode(entry.path) for entry in change.entries]
    directories = {str(parent) for path in paths for parent in Path(path).parents} - {"."}
    assert directories == {"d", "d/e", "n", "n-o", "n/a", "n/b"}
    assert room_for(change, Room(inodes=7)).inodes == 7 + len(paths) + len(directories)
