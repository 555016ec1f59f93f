"""The numbers in code blocks whose output no test compares: specs, configuration, and commands that are not run.

They are committed in tests/docs/examples.json. So a number that changes by mistake fails a test.
"""

import json
import re

from docs.tools.pages import ROOT, Block, blocks_of, page_name, pages

FILE = ROOT / "tests" / "docs" / "examples.json"
_NUMBER = re.compile(r"(?<![\w.])\d[\w.]*")


def numbers() -> dict[str, list[list[str]]]:
    """By page, the numbers of each such block, in order."""
    found = {page_name(page): [*map(_numbers, filter(_is_example, blocks_of(page.read_text())))] for page in pages()}
    return {page: blocks for page, blocks in found.items() if any(blocks)}


def write() -> None:
    lines = [f"{json.dumps(page)}: {json.dumps(blocks)}" for page, blocks in numbers().items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _is_example(block: Block) -> bool:
    return block.language in ("yaml", "toml") or block.not_run is not None


def _numbers(block: Block) -> list[str]:
    return _NUMBER.findall(block.text)
