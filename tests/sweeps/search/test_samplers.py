import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import create_trial

from mislabel.sweeps.search.samplers import quietly, sampler_of, window_size
from mislabel.sweeps.spec.model import Method

CLASSES = {
    "tpe": optuna.samplers.TPESampler,
    "gp": optuna.samplers.GPSampler,
    "cmaes": optuna.samplers.CmaEsSampler,
    "nsga2": optuna.samplers.NSGAIISampler,
    "nsga3": optuna.samplers.NSGAIIISampler,
}


@pytest.mark.parametrize("name", CLASSES)
def test_each_method_uses_optunas_sampler_of_that_name(name: str) -> None:
    method = Method(name=name, population=200)  # type: ignore[arg-type]
    assert isinstance(sampler_of(method, 0), CLASSES[name])
    assert window_size(method) >= 100


def test_a_window_has_whole_generations() -> None:
    assert window_size(Method(name="nsga2", population=200)) >= 3 * 200


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


def test_optuna_is_silent_only_inside_quietly() -> None:
    before = optuna.logging.get_verbosity()
    with quietly():
        assert optuna.logging.get_verbosity() == optuna.logging.ERROR
    assert optuna.logging.get_verbosity() == before
