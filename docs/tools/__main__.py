"""Rewrite generated parts, displayed outputs and figures of all pages, and the README's verdicts.

`python -m docs.tools [PAGE…]` rewrites these pages, or all.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from docs.tools import examples, faults, papers, session
from docs.tools.pages import DOCS, ROOT, page_name, pages


def main(names: list[str]) -> None:
    readme = ROOT / "README.md"
    readme.write_text(papers.readme_with_verdicts(readme.read_text()))
    for page in pages():
        if names and page_name(page) not in names:
            continue
        if page in papers.paper_pages():
            page.write_text(papers.updated(page))
        if page == faults.PAGE:
            page.write_text(faults.updated())
        with tempfile.TemporaryDirectory() as folder:
            before = page.read_text()
            after = session.updated(before, Path(folder))
            _keep_figures(page, after != before, Path(folder))
        if after != before:
            page.write_text(after)
            sys.stderr.write(f"{page_name(page)} has new outputs\n")
    examples.write()


def _keep_figures(page: Path, changed: bool, folder: Path) -> None:
    """Copy the figures that the page shows and its commands have drawn."""
    for figure in folder.glob("*.png"):
        shown = DOCS / "pictures" / figure.name
        if f"pictures/{figure.name}" in page.read_text() and (changed or not shown.exists()):
            shutil.copyfile(figure, shown)


if __name__ == "__main__":
    main(sys.argv[1:])
