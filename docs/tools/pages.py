"""The Markdown pages of this folder, and their code blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent
RECORDS = ROOT / "records"
_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>[a-z]*)\n(?P<text>.*?)^(?P=fence)$", re.DOTALL | re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- not run: (?P<reason>[^>]+) -->\n$")


def pages() -> list[Path]:
    """All pages that are written by hand or committed, in a fixed order."""
    return sorted(DOCS.rglob("*.md"))


def page_name(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


@dataclass(frozen=True)
class Block:
    """A fenced code block. A comment `<!-- not run: REASON -->` in the line above says that tests do not run it."""

    language: str
    text: str
    start: int
    """Position of the text in the page."""
    not_run: str | None

    @property
    def file(self) -> str | None:
        """The file that the block shows: its name is in the first line, as a comment."""
        match = re.match(r"# (?P<name>[\w./-]+\.\w+)\n", self.text)
        return match["name"] if match else None


def blocks_of(text: str) -> Iterator[Block]:
    """The code blocks of a page, in order."""
    for match in _FENCE.finditer(text):
        above = _NOT_RUN.search(text, 0, match.start())
        reason = above["reason"] if above and above.end() == match.start() else None
        yield Block(match["language"], match["text"], match.start("text"), reason)


def prose_of(text: str) -> str:
    """The page without code blocks, inline code, comments and the targets of links."""
    text = _FENCE.sub("", text)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "", text)
    return re.sub(r"\]\([^)]*\)", "]", text)
