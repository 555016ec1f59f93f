"""HTML for reports: one file without scripts or network access, for light and dark screens and for print."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_NUMBER = re.compile(r"–|[-–]?[\d.,]+(e[-+]?\d+)?( ± [\d.]+(e[-+]?\d+)?)?")
_CSS = """
:root { color-scheme: light dark; --ink: #1d2733; --faint: #7b8794; --accent: #2f6fab; --second: #d1602b;
  --card: #ffffff; --back: #f5f6f8; --line: #dfe3e8; --mark: #eaf1f8; --bad: #b3372b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ed; --faint: #8b97a5; --accent: #6aaee8; --second: #f0935f; --card: #1b2129; --back: #12161c;
    --line: #2f3843; --mark: #223040; --bad: #f08a7e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 32px 24px 48px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 0 0 10px; }
p { margin: 6px 0 10px; max-width: 75ch; }
.lead { color: var(--faint); margin: 0 0 18px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 20px 22px;
  margin: 0 0 18px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); gap: 12px; margin: 0 0 18px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; }
.tile b { display: block; font-size: 22px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile span { color: var(--faint); font-size: 13px; }
.tile.bad b { color: var(--bad); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--faint); border-bottom: 1px solid var(--line); }
th, td { padding: 5px 26px 5px 0; vertical-align: top; }
td { border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
tr:last-child td { border-bottom: 0; }
.number { text-align: right; white-space: nowrap; }
tr.mark td { background: var(--mark); }
figure { margin: 8px 0 14px; }
figcaption { color: var(--faint); font-size: 13px; max-width: 85ch; }
.pair { display: flex; flex-wrap: wrap; gap: 8px 24px; align-items: flex-start; }
.pair > figure { flex: 1 1 420px; min-width: 0; }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: inherit !important; }
pre { background: var(--back); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; overflow-x: auto;
  font-size: 12.5px; line-height: 1.45; }
code { font-size: 0.92em; }
summary { cursor: pointer; color: var(--accent); }
footer { color: var(--faint); font-size: 13px; }
@media print {
  :root { --ink: #111; --faint: #666; --accent: #2f6fab; --second: #d1602b; --card: #fff; --back: #fff; --line: #ccc;
    --mark: #eee; }
  body { font-size: 11px; } main { max-width: none; padding: 0; }
  section { border: 0; padding: 0; margin: 0 0 18px; } figure, .tiles, tr { break-inside: avoid; }
  h2 { break-after: avoid; } .wide { overflow: visible; } pre { white-space: pre-wrap; }
}
"""


def page(title: str, lead: str, parts: Iterable[str]) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{_CSS}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n"
        f'<p class="lead">{escape(lead)}</p>\n'
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A section; empty if all its parts are."""
    held = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{held}\n</section>" if held else ""


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def tiles(facts: Sequence[tuple[str, str, bool]]) -> str:
    """A row of numbers. Each fact is a value, its label, and whether it is a problem."""
    shown = "".join(
        f'<div class="tile{" bad" * bad}"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for value, label, bad in facts
    )
    return f'<div class="tiles">{shown}</div>'


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], marked: Sequence[bool] = ()) -> str:
    """A table with right-aligned columns of numbers. Rows can be highlighted."""
    texts = [[str(cell) for cell in row] for row in rows]
    numbers = [bool(texts) and all(_NUMBER.fullmatch(row[i]) for row in texts) for i in range(len(header))]
    classes = [' class="number"' if number else "" for number in numbers]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in zip(header, classes, strict=True))
    body = ""
    for i, row in enumerate(texts):
        cells = "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, classes, strict=True))
        kind = ' class="mark"' if i < len(marked) and marked[i] else ""
        body += f"<tr{kind}>{cells}</tr>\n"
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def figure(svg: str, caption: str) -> str:
    return f"<figure>\n{svg}\n<figcaption>{escape(caption)}</figcaption>\n</figure>" if svg else ""


def pair(*figures: str) -> str:
    """Figures side by side, if there is room."""
    held = "".join(figures)
    return f'<div class="pair">{held}</div>' if held else ""


def folded(summary: str, text: str) -> str:
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"


def footer(text: str) -> str:
    return f"<footer>{escape(text)}</footer>"
