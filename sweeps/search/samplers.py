"""The Optuna sampler of each learning method, and the Optuna distribution of an axis.

Every batch has a new sampler, created from the search's seed. It keeps nothing that a proposal depends on: results and
notes are in the study. So a search that was killed and resumed proposes the same cells as one that was never
interrupted.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from mislabel.sweeps.search.optuna_private import draw_values_with, tpe_sampler
from mislabel.sweeps.spec.model import Axis, Method

# The most ended trials that a sampler reads. The cost of gp grows with their cube.
_WINDOW_SIZES = {"tpe": 300, "gp": 120, "cmaes": 300}
_GENERATIONS = 4


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress Optuna's log messages and its warnings about experimental features."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)


@quietly()
def sampler_of(method: Method, seed: int, earlier: Sequence[FrozenTrial] = ()) -> BaseSampler:
    """The sampler of the method. CMA-ES starts from `earlier`, the trials of other sweeps."""
    # The seeds differ: otherwise both samplers would use the same random numbers.
    random = optuna.samplers.RandomSampler(seed=seed ^ 1)
    model: Any = {"seed": seed, "n_startup_trials": method.startup, "independent_sampler": random}
    model["warn_independent_sampling"] = False
    match method.name:
        case "tpe":
            return tpe_sampler(seed, method.startup)
        case "gp":
            return optuna.samplers.GPSampler(**model)
        case "cmaes":
            return optuna.samplers.CmaEsSampler(**model, source_trials=[*map(_numeric_part, earlier)] or None)
    kinds = {"nsga2": optuna.samplers.NSGAIISampler, "nsga3": optuna.samplers.NSGAIIISampler}
    nsga: BaseSampler = kinds[method.name](seed=seed, population_size=method.population)
    draw_values_with(nsga, random)
    return nsga


def _numeric_part(trial: FrozenTrial) -> FrozenTrial:
    """The trial with the parameters that CMA-ES can use: numbers that vary."""
    axes = trial.distributions.items()
    known = {name: d for name, d in axes if not isinstance(d, CategoricalDistribution) and not d.single()}
    return create_trial(params={n: trial.params[n] for n in known}, distributions=known, values=trial.values)


def window_size(method: Method) -> int:
    return _WINDOW_SIZES.get(method.name) or max(300, _GENERATIONS * method.population)


def distribution(axis: Axis, integer: bool) -> BaseDistribution:
    """The values of the axis; `integer` means that its parameter is a whole number."""
    if axis.values is not None:
        return CategoricalDistribution(axis.values)
    (low, high), log = axis.ends, axis.scale == "log"
    if axis.step is not None:
        # If steps do not fill the range, end it at the last step. Optuna would do the same, with a warning.
        high = low + math.floor((high - low) / axis.step + 1e-9) * axis.step
    if integer:
        return IntDistribution(int(low), int(high), log=log, step=int(axis.step or 1))
    return FloatDistribution(low, min(high, axis.ends[1]), log=log, step=axis.step)


def contains(d: BaseDistribution, value: Any) -> bool:
    try:  # Optuna's only public check
        create_trial(state=TrialState.RUNNING, params={"value": value}, distributions={"value": d})
    except ValueError:
        return False
    return True
