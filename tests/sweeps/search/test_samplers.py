import importlib
import os
import pickle

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import create_trial

from mislabel.sweeps.search.samplers import is_trusted, pinned, sampler_of, shown
from mislabel.sweeps.spec.model import Method

CLASSES = {
    "tpe": optuna.samplers.TPESampler,
    "gp": optuna.samplers.GPSampler,
    "cmaes": optuna.samplers.CmaEsSampler,
    "nsga2": optuna.samplers.NSGAIISampler,
    "nsga3": optuna.samplers.NSGAIIISampler,
}


@pytest.mark.parametrize("name", CLASSES)
def test_each_method_has_optunas_sampler_of_that_name(name: str) -> None:
    method = Method(name=name, population=200)  # type: ignore[arg-type]
    assert isinstance(sampler_of(method, 0), CLASSES[name])
    assert shown(method) >= 100


def test_generations_are_shown_whole() -> None:
    assert shown(Method(name="nsga2", population=200)) >= 3 * 200


def test_parents_of_the_last_generations_are_pinned() -> None:
    nsga = sampler_of(Method(name="nsga2"), 0)
    notes = {"NSGAIISampler:parent:1": [1, 2], "NSGAIISampler:parent:2": [2, 5], "NSGAIISampler:parent:3": [5, 9]}
    assert pinned(nsga, notes) == {2, 5, 9}
    assert pinned(sampler_of(Method(name="tpe"), 0), notes) == set()


def test_cmaes_starts_from_the_numbers_of_earlier_trials() -> None:
    distributions = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1), "kind": CategoricalDistribution("ab")}
    earlier = [
        create_trial(
            params={"x": 0.9 + i / 1000, "y": 0.1 + i / 2000, "kind": "a"}, distributions=distributions, value=i
        )
        for i in range(40)
    ]
    study = optuna.create_study(sampler=sampler_of(Method(name="cmaes", startup=1), 0, earlier))
    study.add_trials(earlier)
    found = [study.ask(distributions).params for _ in range(20)]
    assert np.mean([p["x"] for p in found]) > 0.8
    assert np.mean([p["y"] for p in found]) < 0.2


def notes_of(value: object) -> dict[str, str]:
    text = pickle.dumps(value).hex()
    return {"cma:optimizer:0": text[:100], "cma:optimizer:1": text[100:], "cma:generation": "1"}


def test_an_optimizer_is_read_from_a_store_and_nothing_else() -> None:
    optimizer = importlib.import_module("cmaes").CMA(mean=np.zeros(3), sigma=0.1, seed=1)
    optimizer.tell([(optimizer.ask(), float(i)) for i in range(optimizer.population_size)])
    assert is_trusted({})
    assert is_trusted({"tpe:relative_params:0": "{}"})
    assert is_trusted(notes_of(optimizer))
    assert not is_trusted(notes_of(os.system))
    assert not is_trusted({"cma:optimizer:0": "no pickle"})
    assert not is_trusted({"cma:optimizer:1": "00"})
