"""A report's Markdown as one page for a browser: no script, nothing from elsewhere, and no markup of a row's own."""

from typing import Final

from markdown_it import MarkdownIt

__all__ = ["render_html"]

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; }}
th, td {{ border: 1px solid #8885; padding: 0.2rem 0.6rem; text-align: left; vertical-align: top; }}
th {{ background: #8882; }}
</style>
</head>
<body>
{body}</body>
</html>
"""


def render_html(markdown: str, *, title: str) -> str:
    """Write a report's Markdown as a page.

    Args:
        markdown: With tables; markup in it is shown and not obeyed.
        title: A plain word or two of ours.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    return _PAGE.format(title=title, body=parser.render(markdown))
