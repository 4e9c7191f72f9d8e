"""Real trees through whole trials, and trials beside each other on one of them."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = [
    pytest.mark.needs("bwrap", "git"),
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("attack-sweep"),
]

N_FILES: Final = {"sha1": 10_000, "sha256": 100}
MEND: Final = "sed -i 's/a - b/a + b/' calc.py\n"
POINTER: Final = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12345\n".format("0" * 64)
FILES: Final[Mapping[str, bytes]] = {
    ".gitattributes": b"*.bin filter=lfs diff=lfs merge=lfs -text\ncrlf.txt text eol=crlf\nident.txt ident\n"
    b"subst.txt export-subst\nleft-out.txt export-ignore\n* text=auto\n",
    "big.bin": POINTER.encode(),
    "crlf.txt": b"one\ntwo\n",
    "ident.txt": b"$Id$\n",
    "subst.txt": b"$Format:%H$\n",
    "left-out.txt": b"here\n",
    "bin/run": b"#!/bin/sh\nexit 0\n",
    "bin/data": b"data\n",
    "name with spaces": b"1\n",
    'quo"te': b"2\n",
    "new\nline": b"3\n",
    "\u00fcml\u00e4ut": b"4\n",
    "-dash": b"5\n",
    "deep/" * 30 + "file": b"6\n",
    "empty": b"",
}
LOOK: Final = r"""
test -z "$(git status --porcelain --ignored)" || tell "status: $(git status --porcelain --ignored | head -3)"
test "$(git rev-list --all --count HEAD)" = 1 || tell history
test "$(git ls-files | wc -l)" -gt @N_FILES@ || tell "number of files"
test -x bin/run -a ! -x bin/data || tell "executable bits"
test "$(readlink link)" = calc.py -a "$(readlink dangling)" = nowhere/at-all -a -L up || tell links
test -d sub -a -z "$(ls -A sub)" || tell submodule
grep -q 'git-lfs.github.com' big.bin || tell pointer
test "$(grep -c $'\r$' crlf.txt)" = 2 || tell "line ends"
grep -q '[$]Id: [0-9a-f]' ident.txt || tell ident
grep -qF '$Format:%H$' subst.txt || tell export-subst
test -f left-out.txt || tell export-ignore
test -f 'name with spaces' -a -f 'quo"te' -a -f $'new\nline' -a -f -dash -a -f empty || tell names
test "$(cat $'\377\376')" = 7 || tell "a name that is no text"
"""
CHANGE: Final = r"""
printf 'three\r\n' >>crlf.txt; chmod +x bin/data; chmod -x bin/run; ln -sf bin/run link; rm 'quo"te' empty
printf 8 >>$'new\nline'; printf 9 >$'\377\375'; mkdir sub/new && echo x >sub/new/file; echo 1 >d7/f7
"""
VERIFY: Final = r"""
test -x bin/data && test ! -x bin/run && test "$(readlink link)" = bin/run && test ! -e 'quo"te' && test ! -e empty &&
test "$(grep -c "$(printf '\r')$" crlf.txt)" = 3 && grep -q 1 d7/f7 && test -f d8/f8
"""


def git(repository: Path, *words: str, stdin: bytes | None = None) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "core.autocrlf=false")
    subprocess.run(["git", *identity, *words], cwd=repository, env=env, check=True, input=stdin, capture_output=True)


def fill(repository: Path, object_format: str) -> None:
    for name, content in FILES.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (repository / "bin" / "run").chmod(0o755)
    (repository / "bin" / "data").chmod(0o644)
    Path(os.fsdecode(os.fsencode(repository) + b"/\xff\xfe")).write_bytes(b"7\n")
    for name, target in {"link": "calc.py", "dangling": "nowhere/at-all", "up": "../../outside"}.items():
        (repository / name).symlink_to(target)
    for number in range(N_FILES[object_format]):
        path = repository / f"d{number % 50}" / f"f{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number}\n")
    git(repository, "add", "-A")
    commit = "1" * (40 if object_format == "sha1" else 64)
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    git(repository, "commit", "-q", "-m", "all kinds of files")


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_a_tree_of_all_kinds_of_files_is_clean_whole_and_judged_as_it_was_left(
    sweep: Callable[..., Any], open_world: Callable[..., Any], object_format: str
) -> None:
    world = open_world(object_format)
    fill(world.repository, object_format)
    look = LOOK.replace("@N_FILES@", str(N_FILES[object_format]))
    swept = sweep({"all-kinds": (look + MEND + CHANGE, {"verify": VERIFY})}, world=world, quiet={"all-kinds"})
    row = swept.rows["all-kinds"]
    assert swept.told("all-kinds") == ""
    assert (row["resolved"], row["error_kind"]) == (True, None), row["error_detail"]
    assert len(row["sanitized_task_sha"]) == (40 if object_format == "sha1" else 64)
    assert row["source_tree"] == row["sanitized_tree"]


NEIGHBOURS: Final = 6
NEIGHBOUR: Final = (
    r"""
me=@ME@
git config user.name t; git config user.email t@example.invalid; git config test.mark $me
for round in 1 2 3 4 5; do
  echo $me $round >mark; git add mark; git stash -q; grep -qs " $round" mark && tell stash
  git stash pop -q || tell pop
  git commit -q -a -m "$me $round" || tell commit
  git branch "b-$me-$round"; git tag "t-$me-$round"; git gc -q --prune=now; git reflog expire --expire=now --all
  git worktree add -q /tmp/w$round && git worktree remove /tmp/w$round || tell worktree
done
test "$(git log --format=%s | grep -cv "^$me \|^base$")" = 0 || tell commits
test "$(git config test.mark)" = $me || tell config
test "$(git for-each-ref | grep -cv "$me\|HEAD\|w[1-5]$")" = 0 || tell "refs: $(git for-each-ref | grep -v $me)"
test "$(cat mark)" = "$me 5" || tell mark
test "$(git stash list)" = "" || tell "stash list"
git fsck --full >/dev/null 2>&1 || tell fsck
"""
    + MEND
)


def test_trials_at_the_same_time_share_no_ref_stash_setting_or_object(sweep: Callable[..., Any]) -> None:
    # B15 to B17: what agents do to git in work trees of one repository, they do to each other.
    names = [f"neighbour-{number}" for number in range(NEIGHBOURS)]
    swept = sweep({name: (NEIGHBOUR.replace("@ME@", name), {}) for name in names}, "--workers", 2, quiet=names)
    for name in names:
        row = swept.rows[name]
        assert swept.told(name) == ""
        assert (row["resolved"], row["error_kind"]) == (True, None), row["error_detail"]
        assert [other for other in names if other in swept.patch(name)] == [name]
