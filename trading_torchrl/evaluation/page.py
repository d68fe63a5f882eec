"""Pieces of a page that is one file: pictures lie inside, nothing is loaded, no scripts."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from matplotlib.figure import Figure

STYLE = """
body { margin: 2.5rem auto; max-width: 66rem; padding: 0 1.2rem; color: #1f2933;
  background: #fff; font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1.4rem; }
h2 { font-size: 1.15rem; margin: 2.6rem 0 .8rem; padding-bottom: .3rem;
  border-bottom: 1px solid #d5dbe1; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.4rem; margin: 0; }
dt { color: #5f6b7a; } dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; white-space: nowrap; vertical-align: top;
  line-height: 1.35; }
th:first-child { text-align: left; padding-left: 0; font-weight: normal; }
thead th { vertical-align: bottom; border-bottom: 2px solid #b8c2cc; white-space: normal; }
tbody tr + tr { border-top: 1px solid #edf0f3; }
tbody th.group { padding-top: 1.1rem; font-weight: 600; color: #16508f; }
small, figcaption, p.about { color: #5f6b7a; }
summary { cursor: pointer; color: #5f6b7a; font-size: .88rem; margin: .3rem 0; }
small { display: block; font-size: .78rem; font-weight: normal; }
figure { margin: 1.2rem 0 2rem; } img { max-width: 100%; height: auto; }
figcaption, p.about { font-size: .88rem; margin: .3rem 0; }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """The whole of it."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def section(heading: str, content: str) -> str:
    """A part under a heading."""
    return f"<section>\n<h2>{escape(heading)}</h2>\n{content}\n</section>"


def paragraph(text: str) -> str:
    """Small print."""
    return f'<p class="about">{escape(text)}</p>'


def folded(summary: str, content: str) -> str:
    """What can be closed."""
    return f"<details open><summary>{escape(summary)}</summary>\n{content}\n</details>"


def listed(facts: Mapping[str, str]) -> str:
    """Names and what they are."""
    items = (f"<dt>{escape(name)}</dt><dd>{escape(str(fact))}</dd>" for name, fact in facts.items())
    return f"<dl>{''.join(items)}</dl>"


def table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells, which are HTML; the first of a row names it."""
    lines = (
        f"<tr><th>{first}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for first, *cells in rows
    )
    return (
        '<div class="wide"><table><thead><tr>'
        + "".join(f"<th>{each}</th>" for each in head)
        + "</tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def image(figure: Figure, caption: str) -> str:
    """A picture, with what it shows."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    text = escape(caption)
    return (
        f'<figure><img alt="{text}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text}</figcaption></figure>"
    )
