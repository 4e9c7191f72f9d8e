import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.errors import UsageError
from fairtrial.host.files import remove_tree
from fairtrial.workspace.overlay import (
    MAX_OVERLAY_BYTES,
    Overlay,
    OverlayFile,
    candidate_of,
    freeze_overlay,
    incumbent_of,
    overlay_digest,
    read_overlay,
    require_pairs,
    required_candidate_arms,
)
from fairtrial.workspace.skill_layout import SkillLayout, read_layout

LAYOUT = SkillLayout(root=".claude/skills", skills=("plan", "work"))
ARMS = {"workflow": ("plan", "work"), "workflow_direct": ("work",), "baseline": ()}


def write(root: Path, **files: str | bytes) -> Path:
    """Writes files by path, with `__` for a slash; every one below the skills' root."""
    for name, content in files.items():
        path = root / ".claude/skills" / name.replace("__", "/").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def refused(root: Path, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_overlay(root, LAYOUT)


def test_an_overlay_is_its_files_in_path_order_with_a_framed_digest(tmp_path: Path) -> None:
    overlay = read_overlay(write(tmp_path, work__SKILL_md="w", plan__deep__er_md="p"), LAYOUT)
    assert [file.path for file in overlay.files] == [".claude/skills/plan/deep/er.md", ".claude/skills/work/SKILL.md"]
    assert overlay.skills == ("plan", "work")
    frames = b".claude/skills/plan/deep/er.md", b"p", b".claude/skills/work/SKILL.md", b"w"
    assert overlay.digest == hashlib.sha256(b"".join(len(f).to_bytes(8, "big") + f for f in frames)).hexdigest()
    assert overlay.of_skill("plan", LAYOUT) == {"deep/er.md": b"p"}


def test_the_digest_knows_where_a_path_ends() -> None:
    one = [OverlayFile(path="ab", content=b"c")]
    other = [OverlayFile(path="a", content=b"bc")]
    assert overlay_digest(one) != overlay_digest(other)


def test_exactly_four_mebibytes_pass_and_freeze_with_the_same_digest(tmp_path: Path) -> None:
    root = write(tmp_path / "o", work__a_md=b"x" * (MAX_OVERLAY_BYTES - 1), work__b_md=b"y")
    overlay = read_overlay(root, LAYOUT)
    freeze_overlay(overlay, tmp_path / "frozen")
    again = read_overlay(tmp_path / "frozen", LAYOUT)
    assert again.digest == overlay.digest
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "frozen").rglob("*") if path.is_file()}
    assert modes == {0o400}
    assert {Path(at).stat().st_mode & 0o777 for at, _, _ in os.walk(tmp_path / "frozen")} == {0o500}
    remove_tree(tmp_path / "frozen")


def test_one_byte_more_is_refused_and_leaves_no_destination(tmp_path: Path) -> None:
    refused(write(tmp_path, work__a_md=b"x" * MAX_OVERLAY_BYTES, work__b_md=b"y"), "larger than 4194304 bytes")


def test_a_destination_that_is_there_is_not_touched(tmp_path: Path) -> None:
    overlay = read_overlay(write(tmp_path / "o", work__SKILL_md="w"), LAYOUT)
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match="is there already"):
        freeze_overlay(overlay, tmp_path / "there")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o", "there"]


def test_an_empty_overlay_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "holds no file")
    write(tmp_path, work__SKILL_md="w").joinpath(".claude/skills/work/SKILL.md").unlink()
    refused(tmp_path, "holds no file")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("src/main.py", "src does not lie below .claude/skills/"),
        ("README.md", "README.md is no Markdown file below"),
        (".claude/settings.json", "settings.json is no Markdown file"),
        (".claude/CLAUDE.md", "CLAUDE.md is no Markdown file below"),
        (".claude/skills/top.md", "top.md is no Markdown file below"),
        (".claude/skills/work/run.py", "run.py is no Markdown file"),
        (".claude/skills/work/data.json", "data.json is no Markdown file"),
        (".claude/skills/other/SKILL.md", "other is no skill that a candidate may change"),
        (".claude/commands/x.md", "commands does not lie below"),
        (".claude/skills/work/bell\x07.md", "is no plain name"),
        (".claude/skills/work/back\\slash.md", "is no plain name"),
    ],
)
def test_what_is_no_prose_of_a_named_skill_is_refused(path: str, words: str, tmp_path: Path) -> None:
    write(tmp_path, work__SKILL_md="w")
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text("x")
    refused(tmp_path, words)


def link_to_file(root: Path) -> None:
    (root / ".claude/skills/work/link.md").symlink_to("SKILL.md")


def link_to_directory(root: Path) -> None:
    (root / ".claude/skills/plan").symlink_to("work")


def fifo(root: Path) -> None:
    os.mkfifo(root / ".claude/skills/work/pipe.md")


@pytest.mark.parametrize("spoil", [link_to_file, link_to_directory, fifo])
def test_links_and_special_files_are_refused(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    spoil(write(tmp_path, work__SKILL_md="w"))
    refused(tmp_path, "is a symbolic link or a special file")


@pytest.mark.parametrize("linked", ["itself", "ancestor"])
def test_a_link_in_the_overlays_own_path_is_refused(linked: str, tmp_path: Path) -> None:
    write(tmp_path / "a/b", work__SKILL_md="w")
    (tmp_path / "link").symlink_to("a/b" if linked == "itself" else "a")
    refused(tmp_path / "link" if linked == "itself" else tmp_path / "link/b", "no link")


def test_an_absent_overlay_is_a_usage_error(tmp_path: Path) -> None:
    refused(tmp_path / "nothing", "'nothing' cannot be entered")


def test_padding_directories_are_entries(tmp_path: Path) -> None:
    write(tmp_path, work__SKILL_md="w")  # .claude, skills, work, SKILL.md
    for number in range(252):
        (tmp_path / f".claude/skills/work/{number}").mkdir()
    read_overlay(tmp_path, LAYOUT)
    (tmp_path / ".claude/skills/work/more").mkdir()
    refused(tmp_path, "more than 256 entries")


def test_sixty_four_files_are_the_most(tmp_path: Path) -> None:
    for number in range(64):
        write(tmp_path, **{f"work__{number}_md": "x"})
    assert len(read_overlay(tmp_path, LAYOUT).files) == 64
    write(tmp_path, work__more_md="x")
    refused(tmp_path, "more than 64 files")


def test_a_path_of_512_bytes_is_the_longest(tmp_path: Path) -> None:
    root = ".claude/skills/work"
    longest = f"{root}/{'d' * 240}/{'e' * 200}/"
    path = f"{longest}{'f' * (512 - len(longest) - 3)}.md"
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("x")
    assert read_overlay(tmp_path, LAYOUT).files[0].path == path
    (tmp_path / path).rename(tmp_path / path.replace("/f", "/ff", 1))
    refused(tmp_path, "longer than 512 bytes")


def overlay_of(*skills: str) -> Overlay:
    files = tuple(OverlayFile(path=f".claude/skills/{skill}/SKILL.md", content=b"x") for skill in skills)
    return Overlay(files=files, skills=skills, digest=overlay_digest(files))


def test_the_arms_that_must_run_follow_from_what_is_touched() -> None:
    assert required_candidate_arms(["plan"], ARMS) == ("candidate_workflow",)
    assert required_candidate_arms(["work"], ARMS) == ("candidate_workflow", "candidate_workflow_direct")
    assert incumbent_of(candidate_of("x")) == "x"
    assert incumbent_of("workflow") is None


PAIR = ("workflow", "candidate_workflow")
BOTH = (*PAIR, "workflow_direct", "candidate_workflow_direct")


def test_exact_pairs_of_the_required_arms_pass() -> None:
    assert require_pairs(PAIR, overlay_of("plan"), ARMS) == ("candidate_workflow",)
    assert require_pairs(BOTH, overlay_of("plan", "work"), ARMS) == BOTH[1::2]
    assert require_pairs((*BOTH[2:], *PAIR), overlay_of("work"), ARMS) == ("candidate_workflow_direct", PAIR[1])
    assert require_pairs(("workflow", "baseline"), None, ARMS) == ()


@pytest.mark.parametrize(
    ("asked", "skills", "words"),
    [
        (PAIR, (), "without a candidate"),
        (PAIR, ("work",), "use --arms workflow,candidate_workflow,workflow_direct,candidate_workflow_direct"),
        (PAIR[::-1], ("plan",), "use --arms workflow,candidate_workflow$"),
        (("candidate_workflow",), ("plan",), "each incumbent and then its candidate"),
        (("workflow",), ("plan",), "each incumbent and then its candidate"),
        ((*PAIR, "baseline"), ("plan",), "no other arm"),
        ((*PAIR, *PAIR), ("plan",), "no other arm"),
        (BOTH, ("plan",), "no other arm"),
        (PAIR, ("other",), "'other', which no arm loads"),
        (PAIR, ("plan", "other"), "'other', which no arm loads"),
    ],
)
def test_any_other_arms_are_refused(asked: tuple[str, ...], skills: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        require_pairs(asked, overlay_of(*skills) if skills else None, ARMS)


def test_the_shipped_layouts_can_be_read() -> None:
    assert read_layout("plain") == SkillLayout(root=".claude/skills")
    layout = read_layout("gitnexus")
    assert layout.skills == ("gitnexus-plan", "gitnexus-work")
    assert layout.targets(".claude/skills/gitnexus-work/a.md") == (
        ".claude/skills/gitnexus-work/a.md",
        "gitnexus/skills/gitnexus-work/a.md",
        "gitnexus-claude-plugin/skills/gitnexus-work/a.md",
    )


def test_a_layout_of_a_project_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text("root: skills\nmirrors: [copy/skills]\nskills: [plan]\n")
    assert read_layout(str(path)) == SkillLayout(root="skills", mirrors=("copy/skills",), skills=("plan",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("root: /skills\n", "no plain path"),
        ("root: a/../b\n", "no plain path"),
        ("root: .git/skills\n", "no plain path"),
        ("root: a\nmirrors: [a]\n", "named twice"),
        ("root: a\nmirrors: [a/b]\n", "holds another"),
        ("root: a\nskills: []\n", "skills is empty"),
        ("root: a\nskills: ['../x']\n", "must be letters"),
        ("root: a\nmirors: [b]\n", "did you mean 'mirrors'"),
    ],
)
def test_a_wrong_layout_is_refused_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_layout(str(path))


def test_an_unknown_layout_is_refused_with_the_near_miss(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'plain'"):
        read_layout("plein")
    with pytest.raises(UsageError, match="no such file"):
        read_layout(str(tmp_path / "none.yaml"))
