import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from fairtrial.errors import UsageError
from fairtrial.host.slot import Slot, open_slot
from fairtrial.workspace.template import Template, make_template, resolve_commit

MakeTemplate = Callable[..., Template]


class Source(Protocol):
    """A repository that a user could have."""

    root: Path

    def commit(self, files: dict[str, object]) -> str: ...
    def git(self, *arguments: str, stdin: str = "", cwd: Path | None = None) -> str: ...


pytestmark = pytest.mark.needs("git")


ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


def ask(template: Template, slot: Slot, *arguments: str) -> str:
    command = slot.argv(["/usr/bin/git", "-c", "safe.directory=*", "-C", str(template.tree), *arguments])
    return subprocess.run(command, env=ENV, check=True, capture_output=True, text=True).stdout


def test_a_template_holds_one_commit_without_parent_ref_or_reflog(
    make: MakeTemplate, source: Source, slot: Slot
) -> None:
    source.commit({"a": "old"})
    template = make({"a": "new", "b/c": "x"})
    assert (template.tree / "a").read_text() == "new"
    assert ask(template, slot, "rev-list", "--all", "HEAD").split() == [template.commit]
    assert ask(template, slot, "for-each-ref") == ""
    assert not (template.tree / ".git/logs").exists()
    assert ask(template, slot, "status", "--porcelain") == ""
    assert template.tree_id == template.source_tree == source.git("rev-parse", "HEAD^{tree}").strip()


def test_the_future_the_past_and_deleted_branches_cannot_be_read(
    make: MakeTemplate, source: Source, slot: Slot
) -> None:
    past = source.commit({"f": "past"})
    base = source.commit({"f": "base"})
    fix = source.commit({"f": "FIX"})
    source.git("tag", "v2")
    source.git("reset", "-q", "--hard", base)
    template = make(ref=base)
    for secret in (past, fix, base, source.git("rev-parse", f"{fix}:f").strip()):
        with pytest.raises(subprocess.CalledProcessError):
            ask(template, slot, "cat-file", "-t", secret)


def test_two_templates_of_one_commit_have_the_same_id(make: MakeTemplate) -> None:
    first = make({"a": "1"})
    assert make().commit == first.commit


def test_hidden_paths_are_nowhere_and_both_tree_ids_are_known(make: MakeTemplate, source: Source, slot: Slot) -> None:
    template = make(
        {"a": "1", "eval/oracle.py": "secret", "eval/deep/x": "secret2", "b/keep": "2"}, hide=("eval", "b/none")
    )
    assert not (template.tree / "eval").exists()
    assert template.tracked == {b"a", b"b/keep"}
    assert template.source_tree != template.tree_id
    with pytest.raises(subprocess.CalledProcessError):
        ask(template, slot, "cat-file", "-t", source.git("rev-parse", "HEAD:eval/oracle.py").strip())


def test_executables_links_odd_names_and_empty_files_come_through(make: MakeTemplate) -> None:
    odd = {
        "back\\slash": "1",
        'q"uote': "2",
        "new\nline": "3",
        " space ": "4",
        "git~1": "5",
        "-dash": "6",
        "*": "7",
        "é": "8",
    }
    template = make({**odd, "run": ("x", "#!/bin/sh\n"), "link": ("->", "nowhere/at all"), "empty": ""})
    assert {name: (template.tree / name).read_text() for name in odd} == odd
    assert (template.tree / "run").stat().st_mode & 0o111
    assert (template.tree / "link").readlink() == Path("nowhere/at all")


def test_names_that_are_no_text_come_through(make: MakeTemplate, source: Source) -> None:
    (source.root / os.fsdecode(b"\xff\xfe")).write_text("x")
    template = make({"a": "1"})
    assert b"\xff\xfe" in template.tracked
    assert (template.tree / os.fsdecode(b"\xff\xfe")).exists()


def test_line_ends_and_idents_are_as_the_attributes_say_and_export_rules_are_not_applied(make: MakeTemplate) -> None:
    attributes = "*.txt text eol=crlf\n*.id ident\nhidden export-ignore\nv export-subst\n"
    template = make(
        {".gitattributes": attributes, "a.txt": "one\r\ntwo\r\n", "b.id": "$Id$\n", "hidden": "h", "v": "$Format:%H$"}
    )
    assert (template.tree / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
    assert (template.tree / "b.id").read_text().startswith("$Id: ")
    assert (template.tree / "hidden").read_text() == "h"
    assert (template.tree / "v").read_text() == "$Format:%H$"


def test_a_repository_whose_files_do_not_match_its_rules_still_makes_a_template(
    make: MakeTemplate, source: Source
) -> None:
    source.commit({"a.txt": b"one\r\n"})
    rules = source.git("hash-object", "-w", "--stdin", stdin="* text=auto eol=lf\n").strip()
    source.git("update-index", "--add", "--cacheinfo", f"100644,{rules},.gitattributes")
    source.git("commit", "-q", "-m", "rules")
    template = make()
    assert b"a.txt" in template.tracked


def test_large_file_pointers_stay_pointers(make: MakeTemplate) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"
    template = make({".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "a.bin": pointer})
    assert (template.tree / "a.bin").read_text() == pointer


def test_submodules_are_empty_directories(make: MakeTemplate, source: Source, slot: Slot) -> None:
    commit = source.commit(
        {"a": "1", ".gitmodules": '[submodule "s"]\n\tpath = lib/s\n\turl = ext::touch% /tmp/pwned\n'}
    )
    source.git("update-index", "--add", "--cacheinfo", f"160000,{commit},lib/s")
    source.git("commit", "-q", "-m", "link")
    template = make()
    assert template.gitlinks == {b"lib/s"}
    assert list((template.tree / "lib/s").iterdir()) == []
    assert ask(template, slot, "status", "--porcelain") == ""


def test_nothing_of_the_sources_configuration_or_hooks_is_used(
    make: MakeTemplate, source: Source, public_path: Path
) -> None:
    marker = public_path / "ran"
    hook = source.root / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
    hook.chmod(0o755)
    for name, value in {
        "core.fsmonitor": f"touch {marker}",
        "filter.evil.smudge": f"touch {marker}",
        "core.hooksPath": str(hook.parent),
        "user.name": "secret name",
    }.items():
        source.git("config", name, value)
    source.commit({"a": "1", ".gitattributes": "* filter=evil\n"})
    marker.unlink(missing_ok=True)
    template = make()
    assert not marker.exists()
    assert "secret" not in (template.tree / ".git/config").read_text()
    assert not (template.tree / ".git/hooks").exists()


def test_replace_refs_do_not_replace_anything(make: MakeTemplate, source: Source) -> None:
    source.commit({"a": "real"})
    real = source.git("rev-parse", "HEAD:a").strip()
    forged = source.git("hash-object", "-w", "--stdin", stdin="forged").strip()
    source.git("replace", real, forged)
    assert (make().tree / "a").read_text() == "real"


def test_a_partial_clone_is_refused(source: Source, public_path: Path, slot: Slot) -> None:
    source.commit({"a": "1"})
    source.git("config", "uploadpack.allowFilter", "true")
    partial = public_path / "partial"
    source.git(
        "clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{source.root}", str(partial), cwd=public_path
    )
    with pytest.raises(UsageError, match="partial clone"):
        make_template(partial, resolve_commit(partial, "HEAD"), slot.root / "t", slot=slot)


def test_shallow_bare_shared_and_linked_repositories_will_do(source: Source, public_path: Path, slot: Slot) -> None:
    source.commit({"a": "1"})
    source.commit({"a": "2"})
    source.git("clone", "-q", "--depth=1", f"file://{source.root}", "shallow", cwd=public_path)
    source.git("clone", "-q", "--bare", str(source.root), "bare", cwd=public_path)
    source.git("clone", "-q", "--shared", str(source.root), "shared", cwd=public_path)
    source.git("worktree", "add", "-q", "--detach", str(public_path / "linked"))
    made = [
        make_template(public_path / name, resolve_commit(public_path / name, "HEAD"), slot.root / name, slot=slot)
        for name in ("shallow", "bare", "shared", "linked")
    ]
    assert {(template.tree / "a").read_text() for template in made} == {"2"}
    assert len({template.commit for template in made}) == 1


def test_a_sha256_repository_stays_one(long_source: Source, slot: Slot) -> None:
    source = long_source
    commit = source.commit({"a": "1"})
    template = make_template(source.root, commit, slot.root / "t", slot=slot)
    assert (template.object_format, len(template.commit)) == ("sha256", 64)


def test_what_is_no_repository_or_no_commit_is_refused(source: Source, public_path: Path) -> None:
    source.commit({"a": "1"})
    for repository, ref in (
        (public_path, "HEAD"),
        (source.root, "nowhere"),
        (source.root, "--help"),
        (source.root, "HEAD:a"),
    ):
        with pytest.raises(UsageError):
            resolve_commit(repository, ref)


def test_the_template_belongs_to_the_slot(make: MakeTemplate, slot: Slot) -> None:
    template = make({"a/b": "1"})
    owners = {path.lstat().st_uid for path in template.tree.rglob("*")}
    assert owners == {slot.uid}


def test_the_callers_umask_does_not_show_in_a_tree(make: MakeTemplate, public_path: Path) -> None:
    before = os.umask(0o077)
    try:
        slot = open_slot(public_path)
        template = make({"a/b": "1", "run": ("x", "")})
    finally:
        os.umask(before)
    assert slot.root.is_dir()
    modes = [stat.S_IMODE((template.tree / name).stat().st_mode) for name in ("a", "a/b", "run")]
    assert modes == [0o755, 0o644, 0o755]
