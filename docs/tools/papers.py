"""Pages of the papers: the part below the marker is what `mislabel reproduce PAPER --check --markdown` prints."""

import re
from functools import cache
from pathlib import Path

from docs.tools.pages import DOCS, RECORDS
from mislabel.analysis.claims import page as claims_page
from mislabel.analysis.claims.claim import paper
from mislabel.analysis.claims.page import Checked

MARKER = "<!-- Below this line: written by `make docs-pages` from the records. -->\n"


def paper_pages() -> list[Path]:
    return [page for page in sorted((DOCS / "papers").glob("*.md")) if page.stem != "index"]


def updated(page: Path) -> str:
    """The page with its generated part as the records and claims give it today."""
    written, marker, _ = page.read_text().partition(MARKER)
    assert marker, f"{page}: no marker"
    return f"{written}{marker}\n{claims_page.page(page.stem, str(RECORDS))}"


@cache
def checked(name: str) -> Checked:
    """The claims of a paper, checked with the records."""
    return Checked(name, str(RECORDS))


def verdict_lines() -> dict[str, str]:
    """Each paper's line in the README: its page, how many claims have each verdict, and the coverage."""
    lines = {}
    for page in paper_pages():
        title = page.read_text().partition("\n")[0].removeprefix("# ")
        counts = " | ".join(map(str, checked(page.stem).counts().values()))
        tested, items = paper(page.stem).coverage
        lines[page.stem] = f"| [{title}](docs/papers/{page.name}) | {counts} | {tested} of {items} |"
    return lines


def readme_with_verdicts(readme: str) -> str:
    """The README with today's line of each paper."""
    for name, line in verdict_lines().items():
        readme = re.sub(rf"^\| \[.*\]\(docs/papers/{name}\.md\) .*$", line, readme, flags=re.MULTILINE)
    return readme
