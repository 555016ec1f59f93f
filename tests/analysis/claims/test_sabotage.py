"""A task that is sabotaged contradicts the claims that depend on what was sabotaged."""

import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from click.testing import CliRunner

from mislabel.analysis.claims.claim import claims_of, paper, papers
from mislabel.sweeps.checks.reader import read_spec
from mislabel.sweeps.commands.main import cli
from mislabel.sweeps.papers.bundled import experiments, spec_path
from mislabel.tasks.registry import GROUP

Sabotage = Callable[[], AbstractContextManager[None]]


def sabotages(name: str) -> dict[str, Sabotage]:
    """Ways to sabotage the tasks of a paper: context managers that change a task in this process."""
    module = importlib.import_module(f"tests.analysis.claims.sabotage.{name.replace('-', '_')}")
    found: dict[str, Sabotage] = module.SABOTAGES
    return found


def cases() -> Iterator[tuple[str, str]]:
    """Each sabotage with an experiment whose claims it contradicts."""
    for experiment in experiments():
        names = {name for claim in claims_of(experiment).values() if claim.quick for name in claim.sabotage}
        yield from ((name, experiment) for name in sorted(names))


@pytest.mark.slow
@pytest.mark.claims
@pytest.mark.parametrize(
    ("sabotage", "experiment"),
    [pytest.param(*case, marks=pytest.mark.xdist_group("-".join(case))) for case in cases()],
)
def test_a_sabotaged_task_contradicts_its_claims(sabotage: str, experiment: str, tmp_path: Path) -> None:
    words = ["reproduce", experiment, "--quick", "--inline", "--no-mlflow", "--json", "--store", str(tmp_path)]
    with sabotages(experiment.partition("/")[0])[sabotage]():
        result = CliRunner().invoke(cli, words, standalone_mode=False)
    assert result.exception is None, result.output
    verdicts = {
        found["claim"]: (found["verdict"], found["reason"], found["mean"]) for found in json.loads(result.stdout)
    }
    depend = [name for name, claim in claims_of(experiment).items() if sabotage in claim.sabotage and claim.quick]
    assert {name: verdicts[name] for name in depend if verdicts[name][0] != "contradicted"} == {}


def test_every_sabotage_that_a_claim_names_exists_and_is_used() -> None:
    for name in papers():
        named = {sabotage for claim in paper(name).claims.values() for sabotage in claim.sabotage}
        assert named == set(sabotages(name))


@pytest.mark.long
def test_every_task_has_a_sabotage() -> None:
    covered = {read_spec(spec_path(experiment), (), True)[0].task for _, experiment in cases()}
    assert covered == {point.name for point in entry_points(group=GROUP) if point.value.startswith("mislabel.")}
