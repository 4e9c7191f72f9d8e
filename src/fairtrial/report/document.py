"""A report as titles, notes and tables, and its two renderings: Markdown and a terminal.

What a report says is built once; each renderer escapes every cell, so no author of a report has to remember to.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fairtrial.report.text import escape_markdown, visible

__all__ = ["NOT_AUDITED", "Document", "Table", "print_document", "render_markdown"]

NOT_AUDITED: Final = (
    "Not audited: these figures are of the rows as they stand in the file. 'fairtrial audit' says whether they are the"
    " rows that were written."
)
TERMINAL_ROWS: Final = 60
COLUMN_GAP: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table.

    Attributes:
        title: Its heading.
        headers: Its columns.
        rows: Its lines, consumed once, so that a long table never stands in memory.
        note: A sentence below it, or "".
    """

    title: str
    headers: Sequence[str]
    rows: Iterable[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A report.

    Attributes:
        title: Its heading.
        notes: What a reader must know first, a paragraph each.
        tables: Its tables, in order.
    """

    title: str
    notes: Sequence[str]
    tables: Sequence[Table]


def render_markdown(document: Document) -> str:
    """Give the document as Markdown; the same document gives the same bytes."""
    return "\n".join(_markdown_lines(document)) + "\n"


def print_document(document: Document, console: Console) -> None:
    """Print the document on a terminal, of each table the first lines: a terminal is no place for thousands."""
    console.print(Text(visible(document.title), style="bold"))
    for note in document.notes:
        console.print(Text(visible(note), style="dim"))
    for table in document.tables:
        rows = iter(table.rows)
        console.print()
        console.print(_grid(table, list(islice(rows, TERMINAL_ROWS)), console.width))
        if next(rows, None) is not None:
            console.print(Text(f"These are the first {TERMINAL_ROWS} lines; the written report has all.", style="dim"))
        if table.note:
            console.print(Text(visible(table.note), style="dim"))


def _grid(table: Table, rows: Sequence[Sequence[str]], width: int) -> RichTable:
    """Lay a table out; foreign text only enters as plain text, never as markup."""
    title = Text(visible(table.title), style="bold")
    grid = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    lines = [[visible(cell) for cell in line] for line in (table.headers, *rows)]
    for header, column_width in zip(lines[0], _column_widths(lines, width), strict=True):
        grid.add_column(Text(header), overflow="fold", width=column_width)
    for line in lines[1:]:
        grid.add_row(*map(Text, line))
    return grid


def _column_widths(lines: Sequence[Sequence[str]], width: int) -> Sequence[int | None]:
    """Give each column its longest word, and what is left to those whose cells would take the most lines.

    Left alone, rich shrinks wide columns first and breaks names in two. It is left alone where the longest words do not
    fit the terminal.
    """
    columns = list(zip(*lines, strict=True))
    widths = [max(1, *(len(word) for cell in column for word in cell.split())) for column in columns]
    wanted = [max(map(len, column)) for column in columns]
    left = width - sum(widths) - COLUMN_GAP * len(columns)
    if left < 0:
        return [None] * len(columns)
    for _ in range(min(left, sum(wanted) - sum(widths))):
        neediest = max(range(len(columns)), key=lambda index: wanted[index] / widths[index])
        widths[neediest] += 1
    return widths


def _markdown_lines(document: Document) -> Iterator[str]:
    yield f"# {escape_markdown(document.title)}"
    for note in document.notes:
        yield from ("", escape_markdown(note))
    for table in document.tables:
        yield from ("", f"## {escape_markdown(table.title)}", "")
        yield _markdown_row(table.headers)
        yield _markdown_row(["---"] * len(table.headers))
        for row in table.rows:
            yield _markdown_row([escape_markdown(cell) for cell in row])
        if table.note:
            yield from ("", escape_markdown(table.note))


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
