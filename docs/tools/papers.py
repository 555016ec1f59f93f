"""Pages of the papers: the part below the marker is written from the records, by `mislabel reproduce --check`."""

import json
import re
from itertools import takewhile
from pathlib import Path

from click.testing import CliRunner

from docs.tools.pages import DOCS, RECORDS
from docs.tools.reference import table
from mislabel.sweeps.commands.main import cli
from mislabel.sweeps.papers.bundled import experiments, spec_path, sweep_name

REPORTED = DOCS / "papers" / "reported.json"
MARKER = "<!-- Below this line: written by `make docs-pages` from the records. -->\n"
VERDICTS = ("confirmed", "not confirmed", "undecided", "not run")


def paper_pages() -> list[Path]:
    return [page for page in sorted((DOCS / "papers").glob("*.md")) if page.stem != "index"]


def updated(page: Path) -> str:
    """The page with its generated part as the records and claims give it today."""
    written, marker, _ = page.read_text().partition(MARKER)
    assert marker, f"{page}: no marker"
    return written + marker + "\n" + _generated(page.stem)


def findings(paper: str) -> dict[str, list[dict[str, str]]]:
    """The checked claims by experiment, or small version of one, for the experiments that the records have."""
    found: dict[str, list[dict[str, str]]] = {}
    for experiment in experiments_of(paper):
        for quick in (False, True):
            if _is_recorded(name := experiment + " --quick" * quick):
                found[name] = _checked(experiment, quick)
    for row in json.loads(REPORTED.read_text()):
        if row["experiment"].startswith(f"{paper}/"):
            found.setdefault(row["experiment"], []).append(row)
    return dict(sorted(found.items(), key=lambda item: _in_order(item[0])))


def _in_order(name: str) -> list[tuple[str, int]]:
    """Sorts fig2 before fig10."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D+)(\d*)", name)]


def _is_recorded(name: str) -> bool:
    experiment, _, quick = name.partition(" ")
    return (RECORDS / sweep_name(experiment, bool(quick))).exists()


def experiments_of(paper: str) -> list[str]:
    return [name for name in experiments() if name.startswith(f"{paper}/")]


def _checked(experiment: str, quick: bool) -> list[dict[str, str]]:
    """The rows that `mislabel reproduce --check --markdown` prints."""
    words = ["reproduce", experiment, "--check", "--markdown", "--store", str(RECORDS), *["--quick"] * quick]
    printed = CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False).stdout
    head, _, *rows = (_cells(line) for line in printed.splitlines() if line.startswith("|"))
    return [dict(zip(head, row, strict=True)) for row in rows]


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _generated(paper: str) -> str:
    found = findings(paper)
    names = [name.removesuffix(" --quick") for name in found]
    absent = [name for name in experiments_of(paper) if name not in names]
    parts = ["## Verdicts", _counts(found)]
    for name, rows in found.items():
        experiment = name.partition(" ")[0]
        command = f"`mislabel reproduce {name}`"
        source = "" if _is_recorded(name) else " These are results that we reported; the records don't have the runs."
        parts += [
            f"### {_title(name)}",
            f"{_description(experiment)} Run it again with {command}.{source}",
            _table(rows),
        ]
    if absent:
        listed = "\n".join(f"- `{name}`: {_description(name)}" for name in absent)
        parts += ["## Not run at the paper's sizes", listed]
    return "\n\n".join(parts) + "\n"


def _counts(found: dict[str, list[dict[str, str]]]) -> str:
    rows = [
        (
            f"[{_title(name)}](#{_anchor(name)})",
            *(str(sum(_plain(row["verdict"]) == verdict for row in rows) or "") for verdict in VERDICTS[:3]),
        )
        for name, rows in found.items()
    ]
    return table(("experiment", *VERDICTS[:3]), rows)


def _title(name: str) -> str:
    experiment, _, quick = name.partition(" ")
    return experiment.partition("/")[2] + (", small version" if quick else "")


def _anchor(name: str) -> str:
    return _title(name).replace(",", "").replace(" ", "-")


def _plain(verdict: str) -> str:
    return verdict.strip("*")


def _table(rows: list[dict[str, str]]) -> str:
    cells = [
        (
            f"{_text(row['the paper says'])}<br>*{_text(row['what we measure'])}*",
            f"{row['ours']}<br>*holds where {row['holds where']}*",
            row["verdict"],
        )
        for row in rows
    ]
    return table(("the paper says, *what we measure*", "ours", "verdict"), cells)


def _text(cell: str) -> str:
    return re.sub(r"([*_])", r"\\\1", cell)


def _description(experiment: str) -> str:
    """The comment at the top of the experiment's spec."""
    lines = Path(spec_path(experiment)).read_text().splitlines()
    comment = " ".join(line.lstrip("# ").strip() for line in takewhile(lambda line: line.startswith("#"), lines))
    return _text(comment)
