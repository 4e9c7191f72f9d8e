import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fairtrial.report.text import UNMEASURED, escape_markdown, figure, shorten, signed_figure, visible, yes_no


@pytest.mark.parametrize(
    ("value", "decimals", "printed"),
    [
        (None, 1, UNMEASURED),
        (0, 1, "0"),
        (0.0, 1, "0.0"),
        (-0.04, 1, "0.0"),
        (12.345, 1, "12.3"),
        (12.0, 0, "12"),
        (12.5, 0, "12.5"),
        (3, 2, "3"),
    ],
)
def test_a_figure_is_printed_with_its_decimals_and_an_unknown_is_never_zero(
    value: float | None, decimals: int, printed: str
) -> None:
    assert figure(value, decimals) == printed


@pytest.mark.parametrize(
    ("value", "printed"), [(None, UNMEASURED), (1.25, "+1.2"), (-1.25, "-1.2"), (0.01, "0.0"), (-0.01, "0.0")]
)
def test_a_difference_carries_its_sign(value: float | None, printed: str) -> None:
    assert signed_figure(value) == printed


def test_a_fact_that_may_be_unknown() -> None:
    assert [yes_no(True), yes_no(False), yes_no(None)] == ["yes", "no", UNMEASURED]


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("plain words", "plain words"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("a\u202eb", "a\\u202eb"),
        ("a\ud800b", "a\\ud800b"),
        ("\u2028", "\\u2028"),
        ("é\xa0日本", "é\xa0日本"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(foreign: str, shown: str) -> None:
    assert visible(foreign) == shown


@given(st.text())
def test_visible_text_holds_nothing_that_a_terminal_obeys_and_can_be_written(foreign: str) -> None:
    shown = visible(foreign)
    shown.encode()
    assert not re.search("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", shown)


def test_a_long_text_is_cut_visibly_after_its_characters_were_spelled_out() -> None:
    assert shorten("x" * 70, 70) == "x" * 70
    assert shorten("x" * 71, 70) == "x" * 69 + "…"
    assert shorten("\x00" * 20, 70) == ("\\x00" * 20)[:69] + "…"


@pytest.mark.parametrize("name", ["agent_task_baseline_v1", "git(null)", "12.5", "-3.0", "127.0.0.1", "a-b.c"])
def test_names_and_figures_stay_searchable(name: str) -> None:
    assert escape_markdown(name) == name


MARKUP = [
    "a | b",
    "[x](http://evil)",
    "<script>alert(1)</script>",
    "&lt;b&gt;",
    "`code`",
    "*a* **b** _c_ __d__ ~~e~~",
    "# heading",
    "http://evil.example and www.evil.example",
    "![x](y)",
    "\\",
    "$x$",
    "<!-- -->",
]


@pytest.mark.parametrize("foreign", MARKUP)
def test_markdown_shows_foreign_text_as_it_is(foreign: str) -> None:
    table = f"| h |\n| --- |\n| {escape_markdown(foreign)} |\n"
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(table)
    (cell,) = [token for token in tokens if token.type == "inline" and token.map == [2, 3]]
    assert cell.children is not None
    assert {child.type for child in cell.children} <= {"text", "text_special"}
    assert "".join(child.content for child in cell.children) == foreign
    assert "http://" not in escape_markdown(foreign)
    assert "www." not in escape_markdown(foreign)


@given(st.text())
def test_no_text_breaks_out_of_its_table_cell(foreign: str) -> None:
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(f"| h |\n| --- |\n| x{escape_markdown(foreign)}x |\n")
    assert [token.type for token in tokens].count("tr_open") == 2
    assert [token.type for token in tokens].count("td_open") == 1
    (cell,) = [token for token in tokens if token.type == "inline" and token.map == [2, 3]]
    assert cell.children is not None
    assert "".join(child.content for child in cell.children) == f"x{visible(foreign)}x"
