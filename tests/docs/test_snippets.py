"""Every code block of the documentation is run or checked, and every displayed output is the real one."""

import json
import re
import tomllib
from pathlib import Path

import click
import pytest

from docs.tools import examples
from docs.tools.pages import ROOT, Block, blocks_of, page_name, pages
from docs.tools.session import Session, commands_of, words_of
from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.commands.main import cli
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.document import read_document
from tests.analysis.mlflow_view.shown import MLFLOWS_OWN_WARNINGS

TEXTS = {page_name(page): page.read_text() for page in pages()}
RUNNABLE = {"console", "pycon", "python"}
BLOCKS = [(name, block) for name, text in TEXTS.items() for block in blocks_of(text)]
COMMANDS = [
    pytest.param(command, id=f"{name}: {command}")
    for name, block in BLOCKS
    if block.language == "console"
    for command, *_ in commands_of(block)
]


def _in(language: str) -> pytest.MarkDecorator:
    """Run the test for each block in the language."""
    found = [pytest.param(*each, id=f"{each[0]}:{each[1].start}") for each in BLOCKS if each[1].language == language]
    return pytest.mark.parametrize(("page", "block"), found)


@pytest.mark.long
@MLFLOWS_OWN_WARNINGS
@pytest.mark.parametrize(
    "page", dict.fromkeys(name for name, block in BLOCKS if block.language in RUNNABLE and not block.not_run)
)
def test_the_displayed_outputs_are_the_real_ones(page: str, tmp_path: Path) -> None:
    """After an intended change, `make docs-pages` writes the real outputs into the pages."""
    for shown in Session(tmp_path).run(TEXTS[page]):
        real = "\n".join(shown.real)
        assert shown.agrees, f"`{shown.source}` shows other output than the page. It is:\n{real}"


@pytest.mark.parametrize("page", TEXTS)
def test_all_fences_are_blocks_that_the_tests_see(page: str) -> None:
    text = TEXTS[page]
    fences = re.findall(r"^\s*```", text, re.MULTILINE)
    blocks = list(blocks_of(text))
    assert len(fences) == 2 * len(blocks)
    assert {block.language for block in blocks} <= {*RUNNABLE, "yaml", "toml", "text"}
    assert text.count("<!-- not run:") == sum(block.not_run is not None for block in blocks)


@_in("yaml")
def test_specs_are_valid_unless_the_page_shows_their_mistakes(page: str, block: Block) -> None:
    assert block.file, "the first line of a spec names its file"
    document = read_document(block.text, block.file)
    if f"mislabel: {block.file}\n" in TEXTS[page]:
        with pytest.raises(SpecError):
            checked_spec(document)
    else:
        checked_spec(document)


@pytest.mark.parametrize("page", sorted({*examples.numbers(), *json.loads(examples.FILE.read_text())}))
def test_numbers_of_examples_are_the_intended_ones(page: str) -> None:
    """After an intended change, `make docs-pages` writes them."""
    assert examples.numbers().get(page) == json.loads(examples.FILE.read_text()).get(page)


@_in("toml")
def test_toml_can_be_read(page: str, block: Block) -> None:
    assert tomllib.loads(block.text)


@_in("python")
def test_python_can_be_compiled(page: str, block: Block) -> None:
    """Also blocks that are not run."""
    compile(block.text, page, "exec")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists_with_its_options(command: str) -> None:
    """Also those that are not run: a renamed command or option fails here."""
    words = words_of(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif words[0] == "mislabel" and "did you mean" not in command:
        _parse(words[1 : words.index("|")] if "|" in words else words[1:])


def _parse(words: list[str]) -> None:
    """Parse a command line without running it."""
    group: click.Command = cli
    while isinstance(group, click.Group):
        found = group.get_command(click.Context(group), words[0])
        if found is None:
            assert words[0] == "reslts", f"no command {words[0]}"  # the mistake that troubleshooting shows
            return
        group, words = found, words[1:]
    group.make_parser(click.Context(group)).parse_args(list(words))
