import io

from rich.console import Console

from fairtrial.report.document import TERMINAL_ROWS, Document, Table, print_document, render_markdown


def document(*rows: tuple[str, ...], note: str = "") -> Document:
    table = Table(title="T_1", headers=("a", "b"), rows=iter(rows), note=note)
    return Document(title="Title", notes=("One <note>.",), tables=(table,))


def on_terminal(shown: Document) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    print_document(shown, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_markdown_is_titles_notes_and_tables() -> None:
    assert render_markdown(document(("1", "x|y"), note="Below.")) == (
        "# Title\n\nOne &lt;note&gt;.\n\n## T_1\n\n| a | b |\n| --- | --- |\n| 1 | x\\|y |\n\nBelow.\n"
    )


def test_a_terminal_shows_the_same_cells_without_obeying_them() -> None:
    shown = on_terminal(document(("[bold]1", "\x1b]0;owned\x07"), note="Below."))
    assert "[bold]1" in shown
    assert "\\x1b]0;owned\\x07" in shown
    assert "\x1b]0;" not in shown
    assert "\x07" not in shown
    assert "One <note>." in shown
    assert "Below." in shown


def test_a_terminal_shows_the_first_lines_of_a_long_table_and_says_so() -> None:
    rows = [(f"line{index}", "") for index in range(TERMINAL_ROWS + 1)]
    shown = on_terminal(document(*rows))
    assert f"line{TERMINAL_ROWS - 1}" in shown
    assert f"line{TERMINAL_ROWS}" not in shown
    assert f"the first {TERMINAL_ROWS} lines; the written report has all" in shown
    assert "written report" not in on_terminal(document(*rows[:-1]))
    assert f"line{TERMINAL_ROWS}" in render_markdown(document(*rows))
