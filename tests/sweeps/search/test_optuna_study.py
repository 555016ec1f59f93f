from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.search.journal import StoredTrial
from mislabel.sweeps.search.optuna_study import CellStudy
from mislabel.sweeps.store.cell_means import Mean
from tests.bowls import BOWL, bowl_spec


def study_of(method: str = "tpe", **parameters: Any) -> CellStudy:
    axes = {"x": {"min": -10, "max": 10}, "rate": {"min": 0.01, "max": 1, "scale": "log"}, **parameters}
    options = {"name": method, "startup": 3, "population": 4}
    study = CellStudy(Space(bowl_spec(method=options, budget={"cells": 20}, parameters=axes), BOWL))
    study.begin_batch(0)
    return study


def test_given_values_are_kept_and_the_sampler_chooses_the_others() -> None:
    study = study_of()
    number, values = study.suggest({"x": 2.5, "level": 1})
    assert (number, values["x"], values["level"]) == (0, 2.5, 1)
    assert 0.01 <= float(values["rate"]) <= 1
    assert study.suggest()[0] == 1


def test_a_trial_ends_with_its_mean_or_ranks_below_all_others() -> None:
    study = study_of()
    for mean in (Mean((0.5,)), Mean((0.7,), stopped_at=3), Mean((float("nan"),))):
        study.finish(study.suggest()[0], mean)
    study.reject(study.suggest()[0])
    found = [(trial.state, trial.value) for trial in (study.trial(i) for i in range(4))]
    states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.PRUNED, TrialState.FAIL)
    assert [state for state, _ in found] == list(states)
    assert found[0][1] == 0.5
    assert study.trial(1).intermediate_values == {3: 0.7}


def test_cells_outside_the_space_are_not_added() -> None:
    study = study_of()
    assert study.add({"x": 1.0, "rate": 0.5}) == 0
    assert study.add({"x": 11.0, "rate": 0.5}) is None
    assert study.add({"x": 1.0}) is None
    study.add_earlier({"x": 11.0, "rate": 0.5}, Mean((1.0,)))
    study.add_earlier({"x": 2.0, "rate": 0.5}, Mean((1.0,)))
    assert [(trial.params["x"], trial.state) for trial in study._study.trials] == [
        (1.0, TrialState.RUNNING),
        (2.0, TrialState.COMPLETE),
    ]


@pytest.mark.parametrize("same_axes", [True, False])
def test_a_stored_trial_keeps_its_number(same_axes: bool) -> None:
    study = study_of()
    stored = StoredTrial({"x": 1.0, "rate": 0.5}, 3, {"x": 1.0, "rate": 0.5}, {"note": 1})
    assert study.add_stored(stored, same_axes) == 3
    assert study.trial(3).params == stored.parameters
    assert study.trial(3).system_attrs == ({"note": 1} if same_axes else {})
    assert study.add_stored(StoredTrial({"x": 11.0, "rate": 0.5}, 4, {"x": 11.0, "rate": 0.5}), same_axes) is None


def test_notes_on_the_study_are_new_once() -> None:
    study = study_of("nsga2")
    study.restore_notes({"NSGAIISampler:parent:1": [0]})
    assert study.new_notes() == {"NSGAIISampler:parent:1": [0]}
    assert study.new_notes() == {}


def test_optunas_log_level_is_left_as_it_was() -> None:
    before = optuna.logging.get_verbosity()
    study_of().suggest()
    assert optuna.logging.get_verbosity() == before
