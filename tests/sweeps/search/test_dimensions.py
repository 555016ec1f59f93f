from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.search.optuna_study import Dimensions
from tests.bowls import BOWL, bowl_spec

PARAMETERS: dict[str, Any] = {
    "x": {"min": 0, "max": 0.9, "step": 0.1},
    "level": {"min": 0, "max": 20, "step": 5, "when": "x > 0.45"},
    "width": {"values": [1, 2, 4]},
    "surface": {"values": ["smooth", "rough", "rough"]},
}


def dimensions_of(conditional: bool, **changes: Any) -> Dimensions:
    spec = bowl_spec(
        method={"name": "tpe", "startup": 5}, budget={"cells": 9}, parameters={**PARAMETERS, **changes},
        zip=[["width", "surface"]],
    )  # fmt: skip
    return Dimensions(Space(spec, BOWL), conditional)


def test_each_axis_and_each_group_of_zipped_axes_is_a_dimension() -> None:
    assert dimensions_of(True).distributions == {
        "width+surface": CategoricalDistribution(range(3)),
        "x": FloatDistribution(0, 0.9, step=0.1),
        "level": IntDistribution(0, 20, step=5),
    }


def test_the_digest_depends_only_on_the_axes() -> None:
    assert dimensions_of(True).digest == dimensions_of(False).digest
    assert dimensions_of(True).digest != dimensions_of(True, x={"min": 0, "max": 0.8, "step": 0.1}).digest


@pytest.mark.parametrize("conditional", [True, False])
def test_a_suggestion_and_its_cell_are_converted_both_ways(conditional: bool) -> None:
    dimensions = dimensions_of(conditional)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(30):
        trial = study.ask()
        cell = dimensions.suggested(trial)
        active = float(cell["x"]) > 0.45
        assert ("level" in trial.params) == (active or not conditional)
        assert active or cell["level"] == 1
        assert cell["x"] == float(f"{cell['x']:.12g}")
        assert (cell["width"], cell["surface"]) in [(1, "smooth"), (2, "rough"), (4, "rough")]
        found = dimensions.parameters({name: cell[name] for name in PARAMETERS}, dormant=True)
        assert found.keys() == trial.params.keys()
        for name, value in found.items():
            if name != "level" or active:
                assert value == pytest.approx(trial.params[name])


def test_a_partial_cell_has_partial_parameters() -> None:
    dimensions = dimensions_of(True)
    assert dimensions.parameters({"surface": "rough"}) == {"width+surface": 1}
    assert dimensions.parameters({"x": 0.5, "level": 10}) == {"x": 0.5, "level": 10}
    assert dimensions.parameters({"x": 0.1, "level": 10}) == {"x": 0.1}


@pytest.mark.parametrize("cell", [{"x": 1.5}, {"x": 0.15}, {"x": 0.5, "level": 3}, {"width": 1, "surface": "rough"}])
def test_cells_outside_the_space_are_refused(cell: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not"):
        dimensions_of(True).parameters(cell)
