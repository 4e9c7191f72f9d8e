"""The page for a browser holds what the Markdown says, and obeys nothing that a row says."""

from html.parser import HTMLParser

from fairtrial.report.document import Document, Table, render_markdown
from fairtrial.report.html import render_html

HOSTILE = (
    "<script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "![x](https://elsewhere.example/pixel.png)",
    "<img src=x onerror=alert(1)>",
    "</table></body>",
    "{title}",
)
OURS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td"}


class Page(HTMLParser):
    """What a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.cells: list[str] = []
        self._is_in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self._is_in_cell = tag == "td"
        if self._is_in_cell:
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self._is_in_cell = self._is_in_cell and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.cells[-1] += data


def test_what_a_row_says_is_shown_and_not_obeyed() -> None:
    table = Table(title="Words", headers=("said",), rows=tuple((words,) for words in HOSTILE))
    page = Page()
    page.feed(
        render_html(render_markdown(Document(title="A report", notes=(), tables=(table,))), title="fairtrial report")
    )
    assert page.cells == list(HOSTILE)
    assert page.tags <= OURS
    assert page.attributes <= {"lang", "charset", "http-equiv", "content", "name", "style"}


def test_a_link_or_an_image_in_the_markdown_itself_loads_nothing() -> None:
    page = Page()
    page.feed(render_html("![x](https://elsewhere.example/p.png) <b>y</b>\n", title="t"))
    assert not page.tags & {"img", "b", "script"}
