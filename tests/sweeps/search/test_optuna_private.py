"""The fast TPE gives the same numbers as Optuna's sampler. An Optuna that computes other numbers fails here."""

import importlib
import os
import pickle
import warnings
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator

from mislabel.sweeps.search.optuna_private import BatchTPESampler, Density, is_trusted, last_parents, tpe_sampler

SPACE: dict[str, BaseDistribution] = {
    "a": FloatDistribution(-1, 2),
    "b": FloatDistribution(1e-4, 1, log=True),
    "c": FloatDistribution(0, 1, step=0.25),
    "d": IntDistribution(0, 1000),
    "e": IntDistribution(1, 64, log=True),
    "f": CategoricalDistribution(["x", "y", "z"]),
}


@pytest.mark.parametrize("trials", [0, 1, 7, 200])
@pytest.mark.parametrize("names", ["a", "d", "f", "abcdef"])
def test_a_density_and_its_samples_equal_optunas(trials: int, names: str) -> None:
    rng = np.random.default_rng(trials)
    space = {name: SPACE[name] for name in names}
    parameters = TPESampler(multivariate=True)._parzen_estimator_parameters

    def drawn(count: int) -> dict[str, np.ndarray]:
        all_of = {
            "a": rng.uniform(-1, 2, count), "b": 10 ** rng.uniform(-4, 0, count), "c": rng.integers(0, 5, count) / 4,
            "d": rng.integers(0, 1001, count), "e": rng.integers(1, 65, count), "f": rng.integers(0, 3, count),
        }  # fmt: skip
        return {name: all_of[name].astype(float) for name in names}

    # Many trials at one point have narrow kernels, which are evaluated far out in their tails.
    observed = {name: np.concatenate([column[: trials // 2], np.repeat(column[:1], trials - trials // 2)])
                for name, column in drawn(max(1, trials)).items()} if trials else drawn(0)  # fmt: skip
    candidates = drawn(24)
    slow = _ParzenEstimator(observed, space, parameters)
    fast = Density(slow)
    np.testing.assert_allclose(fast.log_pdf(candidates), slow.log_pdf(candidates), rtol=1e-9, atol=1e-9)
    own, ours = (each.sample(np.random.RandomState(5), 500) for each in (slow, fast))
    assert own.keys() == ours.keys()
    for name in names:
        np.testing.assert_allclose(ours[name], own[name], rtol=1e-7, atol=1e-9)


def proposed(sampler: Any, objectives: int, pruned: bool) -> list[dict[str, Any]]:
    """Six proposals, while two trials of an earlier batch are still running."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1), directions=["minimize"] * objectives)
    rng = np.random.default_rng(0)
    for i in range(60):
        trial = study.ask()
        suggest_all(trial)
        if i in (10, 50):
            continue
        if pruned and i % 7 == 0:
            trial.report(rng.normal(), step=i)
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, rng.normal(size=objectives).tolist())
    study.sampler = sampler
    return [suggest_all(study.ask()) for _ in range(6)]


def suggest_all(trial: optuna.Trial) -> dict[str, Any]:
    trial.suggest_float("a", -1, 2)
    kind = trial.suggest_categorical("f", ["x", "y", "z"])
    trial.suggest_int("d", 0, 1000)
    if kind == "x":
        trial.suggest_float("b", 1e-4, 1, log=True)
        trial.suggest_float("c", 0, 1, step=0.25)
    return dict(trial.params)


@pytest.mark.parametrize(("objectives", "pruned"), [(1, False), (1, True), (2, False)])
def test_a_batch_equals_optunas_proposals(objectives: int, pruned: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        own = TPESampler(seed=3, n_startup_trials=5, multivariate=True, group=True, constant_liar=True)
        ours = tpe_sampler(seed=3, startup=5)
    assert isinstance(ours, BatchTPESampler)
    expected, found = proposed(own, objectives, pruned), proposed(ours, objectives, pruned)
    assert len({str(proposal) for proposal in expected}) == 6
    for one, other in zip(expected, found, strict=True):
        assert one.keys() == other.keys()
        assert {n: v for n, v in one.items() if n == "f"} == {n: v for n, v in other.items() if n == "f"}
        assert [one[n] for n in one if n != "f"] == pytest.approx([other[n] for n in one if n != "f"], rel=1e-7)


def test_an_untested_optuna_uses_its_own_sampler() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        assert type(tpe_sampler(seed=3, startup=5, optuna_version="5.9.1")) is TPESampler
        assert type(tpe_sampler(seed=3, startup=5, optuna_version="5.0.7")) is BatchTPESampler


def test_the_parents_of_the_last_two_generations_are_read_from_the_notes() -> None:
    notes = {"NSGAIISampler:parent:1": [1, 2], "NSGAIISampler:parent:2": [2, 5], "NSGAIISampler:parent:3": [5, 9]}
    assert last_parents(notes) == {2, 5, 9}
    assert last_parents({"cma:generation": 3}) == set()


def notes_of(value: object) -> dict[str, str]:
    text = pickle.dumps(value).hex()
    return {"cma:optimizer:0": text[:100], "cma:optimizer:1": text[100:], "cma:generation": "1"}


def test_only_an_optimizer_is_read_from_a_store() -> None:
    optimizer = importlib.import_module("cmaes").CMA(mean=np.zeros(3), sigma=0.1, seed=1)
    optimizer.tell([(optimizer.ask(), float(i)) for i in range(optimizer.population_size)])
    assert is_trusted({})
    assert is_trusted({"tpe:relative_params:0": "{}"})
    assert is_trusted(notes_of(optimizer))
    assert not is_trusted(notes_of(os.system))
    assert not is_trusted({"cma:optimizer:0": "no pickle"})
    assert not is_trusted({"cma:optimizer:1": "00"})
