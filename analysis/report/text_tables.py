"""Tables of cells as Markdown, LaTeX or HTML: mean ± half the interval, the best in bold."""

from html import escape
from typing import Any

import numpy as np
import pandas as pd

from mislabel.analysis.statistics.ranking import COUNTS
from mislabel.sweeps.formatting import value_text, with_interval

_LATEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
          "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "–": "--", "±": r"$\pm$"}  # fmt: skip


def metrics_of(table: pd.DataFrame) -> list[str]:
    """The metrics of a table of `ranked`."""
    return [column.removesuffix("_low") for column in table.columns if column.endswith("_low")]


def shown_columns(table: pd.DataFrame) -> dict[str, str]:
    """The columns of a table of `ranked` that are worth showing, without metrics, and their titles."""
    metrics = metrics_of(table)
    hidden = {f"{metric}{end}" for metric in metrics for end in ("", "_std", "_low", "_high")} | {"cell_id"}
    hidden |= {name for name in ("diverged", "stopped", "stopped_cells") if name in table and not table[name].any()}
    if "stopped" not in table or "stopped" in hidden:
        hidden.add("step")
    if "cells" in table:  # rows that join cells
        hidden |= {"runs", "stopped"}
    titles = {"runs": "seeds", "stopped_cells": "stopped cells"}
    return {name: titles.get(name, name) for name in table.columns if name not in hidden}


def best_rows(table: pd.DataFrame, metric: str, goal: str | None) -> np.ndarray:
    """Whether each row has the best mean of the metric, among cells that were trained to the end."""
    means = table[metric].astype(float)
    if "cell_id" in table:
        means = means.where(table["stopped"] == 0)
    if goal is None or means.isna().all():
        return np.zeros(len(table), bool)
    best = means.min() if goal == "minimize" else means.max()
    return np.asarray(means == best)


def to_markdown(table: pd.DataFrame, goals: dict[str, str]) -> str:
    """A Markdown table."""
    header, rows, bold, numeric = _texts(table, goals)
    marked = [
        [f"**{text}**" if strong else text.replace("|", "\\|") for text, strong in zip(*row, strict=True)]
        for row in zip(rows, bold, strict=True)
    ]
    rule = ["---:" if number else "---" for number in numeric]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *marked))


def to_latex(table: pd.DataFrame, goals: dict[str, str]) -> str:
    """A LaTeX tabular with the rules of the package booktabs."""
    header, rows, bold, numeric = _texts(table, goals)
    lines = []
    for texts, strong in zip(rows, bold, strict=True):
        cells = [f"\\textbf{{{_latex(t)}}}" if b else _latex(t) for t, b in zip(texts, strong, strict=True)]
        lines.append(" & ".join(cells) + r" \\")
    head = " & ".join(map(_latex, header)) + r" \\"
    form = "".join("r" if number else "l" for number in numeric)
    return "\n".join(
        [f"\\begin{{tabular}}{{{form}}}", r"\toprule", head, r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"]
    )


def to_html(table: pd.DataFrame, goals: dict[str, str]) -> str:
    """An HTML table for a notebook."""
    header, rows, bold, numeric = _texts(table, goals)
    style = [' style="text-align: right"' if number else ' style="text-align: left"' for number in numeric]
    head = "".join(f"<th{own}>{escape(name)}</th>" for name, own in zip(header, style, strict=True))
    body = ""
    for texts, strong in zip(rows, bold, strict=True):
        cells = (f"<b>{escape(text)}</b>" if b else escape(text) for text, b in zip(texts, strong, strict=True))
        body += "<tr>" + "".join(f"<td{own}>{cell}</td>" for cell, own in zip(cells, style, strict=True)) + "</tr>\n"
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


def text_rows(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and rows as texts."""
    header, rows, _, _ = _texts(table, {})
    return header, rows


def _texts(
    table: pd.DataFrame, goals: dict[str, str]
) -> tuple[list[str], list[list[str]], list[list[bool]], list[bool]]:
    """Header, rows, which texts are bold, and which columns are numbers."""
    columns, metrics = shown_columns(table), metrics_of(table)
    best = {metric: best_rows(table, metric, goals.get(metric)) for metric in metrics}
    rows, bold = [], []
    for i, (_, row) in enumerate(table.iterrows()):
        rows.append([*(_text(row, name) for name in columns), *(_mean(row, metric) for metric in metrics)])
        bold.append([False] * len(columns) + [bool(best[metric][i]) for metric in metrics])
    numeric = [name in COUNTS or not any(isinstance(value, str) for value in table[name]) for name in columns]
    return [*columns.values(), *metrics], rows, bold, numeric + [True] * len(metrics)


def _text(row: "pd.Series[Any]", name: str) -> str:
    if name == "front":
        return "yes" if row[name] else "–"
    return value_text(row[name], digits=6)


def _mean(row: "pd.Series[Any]", metric: str) -> str:
    return with_interval(row[metric], row[f"{metric}_high"])


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
