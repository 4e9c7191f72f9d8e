"""All pages together: links, paths and commands that they name, and words."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fairtrial.cli.main import group
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.model.loop import Transport

README_LINES = 100
NAMED_PATH = re.compile(r"`((?:src|tests|docs|benchmarks|requirements)/[\w./-]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def pages(clone: Path) -> list[Path]:
    return [clone / "README.md", clone / "CONTRIBUTING.md", *sorted((clone / "docs").rglob("*.md"))]


def without_code(text: str) -> str:
    return re.sub(r"^    .*$", "", text, flags=re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, made as forges make them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_inside_the_project_leads_somewhere(clone: Path) -> None:
    n_links = 0
    for page in pages(clone):
        for link in LINK.findall(without_code(page.read_text())):
            if "://" in link:
                continue
            n_links += 1
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            assert target.exists(), f"{page.relative_to(clone)}: {link}"
            assert target.is_relative_to(clone)
            assert not anchor or anchor in anchors(target), f"{page.relative_to(clone)}: {link}"
    assert n_links


def test_every_path_that_a_page_names_exists(clone: Path) -> None:
    for page in pages(clone):
        for name in NAMED_PATH.findall(page.read_text()):
            assert (clone / name).exists(), f"{page.relative_to(clone)}: {name}"


def test_every_page_of_the_reference_is_in_its_list(clone: Path) -> None:
    reference = clone / "docs" / "reference"
    linked = {name.partition("#")[0] for name in LINK.findall((reference / "README.md").read_text())}
    assert linked == {path.name for path in reference.glob("*.md")} - {"README.md"} | {"agents/index.md"}


def test_the_readme_is_short_and_begins_with_two_commands_that_make_knows(clone: Path) -> None:
    lines = (clone / "README.md").read_text().splitlines()
    assert len(lines) <= README_LINES
    first, second = [line.split()[:2] for line in lines if line.startswith("    ")][:2]
    targets = re.findall(r"^([a-z]+):", (clone / "Makefile").read_text(), re.MULTILINE)
    assert (first, second) == (["make", "demo"], ["make", "test"])
    assert {"demo", "test"} <= set(targets)


def test_every_make_target_that_a_page_names_exists(clone: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (clone / "Makefile").read_text(), re.MULTILINE))
    for page in pages(clone):
        named = set(re.findall(r"^    make ([a-z]+)|`make ([a-z]+)", page.read_text(), re.MULTILINE))
        assert {name for pair in named for name in pair if name} <= targets, page.name


def command_lines(clone: Path) -> Iterator[tuple[str, list[str]]]:
    for page in pages(clone):
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(r"^ {4,}(?:\.venv/bin/)?fairtrial ([^\n\[]+)$", text, re.MULTILINE):
            yield f"{page.relative_to(clone)}: {line}", shlex.split(line, comments=True)


def test_every_command_line_that_a_page_shows_is_understood(clone: Path) -> None:
    shown = list(command_lines(clone))
    assert len(shown) > 10
    for where, words in shown:
        if words[0] == "COMMAND":
            continue
        with click.Context(group) as context:
            command = group.get_command(context, words[0])
            assert command is not None, where
            values, _, _ = command.make_parser(context).parse_args(words[1:])
        if scenarios := values.get("scenarios"):
            assert set(scenarios.split(",")) <= {"all", *SCENARIOS}, where
        if transport := values.get("transport"):
            assert set(transport.split(",")) <= {str(each) for each in Transport}, where


@pytest.mark.parametrize("wrong", [r"oracle[- ]agents?\b", r"agent called `?oracle", r"--agent oracle"])
def test_no_page_calls_an_agent_an_oracle(wrong: str, clone: Path) -> None:
    for page in pages(clone):
        assert not re.search(wrong, page.read_text(), re.IGNORECASE), page.name
