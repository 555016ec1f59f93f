"""The Optuna sampler of each learning method, made anew for every batch of proposals from the search's seed.

Nothing that a proposal depends on is kept in a sampler: what was told, and what samplers note on trials, is in the
study. Hence a search that was killed and resumed proposes what an undisturbed one would have.
"""

import io
import pickle
import warnings
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.samplers import BaseGASampler, BaseSampler
from optuna.trial import FrozenTrial, create_trial

from mislabel.sweeps.search.tpe import BatchTPESampler
from mislabel.sweeps.spec.model import Method, Spec

# How many ended trials a sampler is shown. The cost of gp grows with their cube.
_SHOWN = {"tpe": 300, "gp": 120, "cmaes": 300}
_GENERATIONS_SHOWN = 4
# What a pickled optimizer of CMA-ES is made of; a store is not trusted with more.
_OPTIMIZER_PARTS = {
    ("cmaes._cma", "CMA"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.multiarray", "_reconstruct"),
}


def sampler_of(method: Method, seed: int, earlier: Sequence[FrozenTrial] = ()) -> BaseSampler:
    """The sampler of the method; `earlier` are trials of other sweeps that CMA-ES starts from."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match method.name:
            case "tpe":
                return BatchTPESampler(seed, method.startup)
            case "gp":
                return optuna.samplers.GPSampler(
                    seed=seed, n_startup_trials=method.startup, warn_independent_sampling=False,
                    independent_sampler=_chance(seed),
                )  # fmt: skip
            case "cmaes":
                return optuna.samplers.CmaEsSampler(
                    seed=seed, n_startup_trials=method.startup, warn_independent_sampling=False,
                    independent_sampler=_chance(seed), source_trials=[*map(_numbers_of, earlier)] or None,
                )  # fmt: skip
            case "nsga2":
                nsga = optuna.samplers.NSGAIISampler(seed=seed, population_size=method.population)
            case "nsga3":
                nsga = optuna.samplers.NSGAIIISampler(seed=seed, population_size=method.population)
            case _:
                raise AssertionError(f"{method.name} does not learn")
    nsga._random_sampler = _chance(seed)
    return nsga


def _chance(seed: int) -> BaseSampler:
    """Values at random, by other numbers than the sampler decides by: Optuna would take the same ones for both."""
    return optuna.samplers.RandomSampler(seed=seed ^ 1)


def _numbers_of(trial: FrozenTrial) -> FrozenTrial:
    """The trial as CMA-ES knows it: without parameters that are not numbers, or that can't vary."""
    known = {
        name: d
        for name, d in trial.distributions.items()
        if not isinstance(d, CategoricalDistribution) and not d.single()
    }
    params = {name: trial.params[name] for name in known}
    return create_trial(params=params, distributions=known, values=trial.values)


def shown(method: Method) -> int:
    """How many ended trials the method's sampler is shown."""
    return _SHOWN.get(method.name) or max(300, _GENERATIONS_SHOWN * method.population)


def knows_conditions(method: Method) -> bool:
    """Whether the sampler takes it that an axis is not there in some trials.

    The others would draw such an axis at random for ever. They are given all axes; where one does not apply, its value
    lies dormant and the cell has the default.
    """
    return method.name == "tpe"


def ranks_pruned(spec: Spec) -> bool:
    """Whether the sampler knows of pruned trials, and takes them for worse than all others."""
    return spec.method.name == "tpe" and len(spec.metric) == 1


def pinned(sampler: BaseSampler, attributes: dict[str, Any]) -> set[int]:
    """Ids of trials that the sampler must be shown however old they are: the parents of the last two generations."""
    if not isinstance(sampler, BaseGASampler):
        return set()
    parents = [ids for key, ids in attributes.items() if ":parent:" in key]
    return {trial_id for ids in parents[-2:] for trial_id in ids}


def is_trusted(attributes: dict[str, Any]) -> bool:
    """Whether what was kept of a trial holds no more than a sampler would have noted on it."""
    parts = [key for key in attributes if "cma" in key and ":optimizer:" in key]
    if not parts:
        return True
    try:
        text = "".join(attributes[f"{parts[0].rpartition(':')[0]}:{i}"] for i in range(len(parts)))
        _OptimizerReader(io.BytesIO(bytes.fromhex(text))).load()
    except Exception:
        return False
    return True


class _OptimizerReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _OPTIMIZER_PARTS:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of an optimizer")
        return super().find_class(module, name)
