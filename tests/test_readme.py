"""README and CONTRIBUTING are true: their specs, commands, claims and folders."""

import re
import shlex
from pathlib import Path
from typing import get_args

import click
import pytest

from mislabel.analysis.claims.registry import CLAIMS
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.commands.main import COMMANDS, cli
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.document import read_document
from mislabel.sweeps.spec.model import EarlyTerminate, Method
from mislabel.tasks.registry import task_names

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_specs_of_the_readme_are_valid() -> None:
    grid, search, images, sane = (checked_spec(read_document(text, "README.md")) for text in _blocks(README, "yaml"))
    assert sum(len(cells) for cells in Space(*grid).cells()) > 10
    assert search[0].method.learns
    assert images[0].keep == "weights"
    assert sane[1].name == "self_labeling.sane"


def test_the_readme_names_every_method_and_every_stopping_rule() -> None:
    first_columns = set(re.findall(r"^\| (`[^|]*`) \|", README, re.MULTILINE))
    named = {name for cell in first_columns for name in re.findall(r"`([^`]+)`", cell)}
    for section, field in ((Method, "name"), (EarlyTerminate, "type")):
        assert set(get_args(section.model_fields[field].annotation)) <= named


def test_the_mistakes_in_the_readme_are_reported_as_shown() -> None:
    text, *_ = _blocks(README, "yaml")
    broken = text.replace("noise_rate: {values", "nois_rate: {values").replace("{min: 0.01", "{min: -1")
    with pytest.raises(SpecError) as caught:
        checked_spec(read_document(broken, "noise.yaml"))
    shown = next(block for block in _blocks(README, "console") if "did you mean" in block)
    reported = [re.sub(r"line \d+, ", "", str(problem)) for problem in caught.value.problems]
    for line in re.findall(r"line \d+, (.*)", shown):
        assert line in reported


@pytest.mark.parametrize("line", re.findall(r"^\$ mislabel (.*)", README, re.MULTILINE))
def test_every_command_in_the_readme_exists_with_its_options(line: str) -> None:
    words = shlex.split(line, comments=True)
    command = cli.get_command(click.Context(cli), words[0])
    if isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words[1])
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known


def test_the_readme_names_every_task() -> None:
    assert set(re.findall(r"^\| `([a-z_.]+)` \|", README.split("## Tasks")[1], re.MULTILINE)) == {
        name for name in task_names() if not name.startswith("bowl")
    }
    assert "quickstart" in (ROOT / "Makefile").read_text()
    assert COMMANDS.keys() >= {"run", "plan", "results"}


def test_the_claims_in_the_readme_are_those_in_the_code() -> None:
    known = {
        (experiment, paper, claim.quantity, str(claim.rule.holds))
        for experiment, claims in CLAIMS.items()
        for paper, claim in claims.items()
    }
    shown = set()
    for line in re.findall(r"^\| `[a-z-]+/.*", README, re.MULTILINE):
        experiment, paper, quantity, _, holds, _ = (
            cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]
        )
        shown.add((experiment.strip("`"), paper, quantity, holds))
    assert len(shown) > 100
    assert shown <= known


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_files_and_folders_that_are_named_exist(text: str) -> None:
    linked = re.findall(r"\]\(([^)#:]+)\)", text)
    quoted = re.findall(r"`((?:src|tasks|sweeps|cluster|analysis|tests)/[A-Za-z0-9_/.-]+)`", text)
    assert linked or quoted
    for path in [*linked, *(each for each in quoted if "PAPER" not in each)]:
        assert (ROOT / path).exists(), path
