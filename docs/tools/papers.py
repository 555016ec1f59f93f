"""Pages of the papers: the part below the marker is written from the records, by `mislabel reproduce --check`."""

import json
import re
from functools import cache
from itertools import takewhile
from pathlib import Path

from click.testing import CliRunner

from docs.tools.pages import DOCS, RECORDS
from docs.tools.reference import table
from mislabel.analysis.claims.registry import CLAIMS
from mislabel.sweeps.checks.reader import read_spec
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
    reported = json.loads(REPORTED.read_text())
    for row in reported:
        if row["experiment"].startswith(f"{paper}/"):
            found.setdefault(row["experiment"], _claims_without(reported, row["experiment"])).append(row)
    return dict(sorted(found.items(), key=lambda item: _in_order(item[0])))


def _claims_without(reported: list[dict[str, str]], experiment: str) -> list[dict[str, str]]:
    """Rows for the claims of an experiment that have no reported result."""
    known = {row["the paper says"] for row in reported if row["experiment"] == experiment}
    return [
        {
            "the paper says": paper,
            "what we measure": claim.quantity,
            "ours": "–",
            "holds where": str(claim.rule.holds),
            "verdict": "not run",
        }
        for paper, claim in CLAIMS[experiment].items()
        if paper not in known
    ]


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
    head, _, *rows = (_cells(line) for line in _printed(experiment, quick) if line.startswith("|"))
    return [dict(zip(head, row, strict=True)) for row in rows]


@cache
def _printed(experiment: str, quick: bool) -> list[str]:
    words = ["reproduce", experiment, "--check", "--markdown", "--store", str(RECORDS), *["--quick"] * quick]
    printed: str = CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False).stdout
    return printed.splitlines()


def _source(name: str) -> str:
    """A sentence on where the results come from, if that is not a commit of ours."""
    if not _is_recorded(name):
        return "These are results that we reported; the records don't have the runs."
    experiment, _, quick = name.partition(" ")
    notes = [line for line in _printed(experiment, bool(quick)) if line.startswith("`")]
    return " ".join("Note: " + note.partition(": ")[2] for note in notes)


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
        description = f"{_description(experiment)} Run it again with {command}. {_source(name)}".rstrip()
        parts += [f"### {_title(name)}", description, _table(rows)]
    if absent:
        listed = "\n".join(f"- `{name}`{_gpu(name)}: {_description(name)}" for name in absent)
        parts += ["## Not run at the paper's sizes", listed]
    return "\n\n".join(parts) + "\n"


def _counts(found: dict[str, list[dict[str, str]]]) -> str:
    rows = [
        (
            f"[{_title(name)}](#{_anchor(name)})",
            *(str(sum(_plain(row["verdict"]) == verdict for row in rows) or "") for verdict in VERDICTS),
        )
        for name, rows in found.items()
    ]
    return table(("experiment", *VERDICTS), rows)


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


def _gpu(experiment: str) -> str:
    spec, _ = read_spec(spec_path(experiment), (), False)
    return " (needs a GPU)" if spec.resources.gpu else ""


def _description(experiment: str) -> str:
    """The comment at the top of the experiment's spec."""
    lines = Path(spec_path(experiment)).read_text().splitlines()
    comment = " ".join(line.lstrip("# ").strip() for line in takewhile(lambda line: line.startswith("#"), lines))
    return _text(comment)


def verdict_lines() -> dict[str, str]:
    """Each paper's line in the README: its page and how many claims have each verdict."""
    lines = {}
    for page in paper_pages():
        title = page.read_text().partition("\n")[0].removeprefix("# ")
        found = [_plain(row["verdict"]) for rows in findings(page.stem).values() for row in rows]
        counts = " | ".join(str(found.count(verdict)) for verdict in VERDICTS[:3])
        lines[page.stem] = f"| [{title}](docs/papers/{page.name}) | {counts} |"
    return lines


def readme_with_verdicts(readme: str) -> str:
    """The README with today's line of each paper."""
    for paper, line in verdict_lines().items():
        readme = re.sub(rf"^\| \[.*\]\(docs/papers/{paper}\.md\) .*$", line, readme, flags=re.MULTILINE)
    return readme
