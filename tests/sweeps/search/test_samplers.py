import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import create_trial

from mislabel.sweeps.search.samplers import distribution, quietly, sampler_of, window_size
from mislabel.sweeps.spec.model import Axis, Method

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


@pytest.mark.parametrize(
    ("axis", "integer", "expected"),
    [
        (Axis(values=["a", "b"]), False, CategoricalDistribution(["a", "b"])),
        (Axis(values=[1, 10]), True, CategoricalDistribution([1, 10])),
        (Axis(min=0.0, max=1.0), False, FloatDistribution(0, 1)),
        (Axis(min=0.1, max=1.0, scale="log"), False, FloatDistribution(0.1, 1, log=True)),
        (Axis(min=1.0, max=8.0), True, IntDistribution(1, 8)),
        (Axis(min=1.0, max=8.0, scale="log"), True, IntDistribution(1, 8, log=True)),
        (Axis(min=0.0, max=1.0, step=0.1), False, FloatDistribution(0, 1, step=0.1)),
        (Axis(min=0.0, max=10.0, step=5.0), True, IntDistribution(0, 10, step=5)),
    ],
)
def test_an_axis_is_converted_to_its_distribution(axis: Axis, integer: bool, expected: BaseDistribution) -> None:
    assert distribution(axis, integer) == expected


@pytest.mark.parametrize("integer", [False, True])
def test_a_range_that_steps_do_not_fill_ends_at_the_last_step(integer: bool) -> None:
    found = distribution(Axis(min=0.0, max=10.0, step=3.0), integer)
    assert isinstance(found, FloatDistribution | IntDistribution)
    assert (found.low, found.high, found.step) == (0, 9, 3)
