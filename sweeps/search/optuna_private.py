"""Everything that depends on private parts of Optuna: a fast TPE for batches, and the notes that samplers leave.

`TESTED` lists the versions for which the tests pass. With another version, such as 4.x, TPE is Optuna's own sampler: it
proposes the same cells, only slower.

The fast TPE splits the ended trials into good and others once per batch, because they do not change within a batch;
only the running trials are read again for each proposal. It evaluates densities with scipy. Optuna computes them one
by one in Python. That is slowest for integers and steps, which need every kernel's mass around every candidate. The
tests compare each number with Optuna's own.
"""

import io
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from scipy.special import erfcx, log_ndtr, logsumexp, ndtr, ndtri_exp

TESTED = ("5.0",)
_ROOT = np.sqrt(2)
# The classes in a pickled CMA-ES optimizer. No other class is loaded from a store.
_OPTIMIZER_CLASSES = {
    "cmaes._cma": ("CMA",),
    "numpy": ("dtype", "ndarray"),
    "numpy._core.multiarray": ("scalar", "_reconstruct"),
}


def tpe_sampler(seed: int, startup: int, optuna_version: str = optuna.__version__) -> TPESampler:
    """A sampler for one batch of proposals. No trial may end within the batch."""
    kind = BatchTPESampler if optuna_version.rpartition(".")[0] in TESTED else TPESampler
    return kind(seed=seed, n_startup_trials=startup, multivariate=True, group=True, constant_liar=True)


def draw_values_with(nsga: BaseSampler, random: BaseSampler) -> None:
    """Let NSGA draw random values with this sampler."""
    nsga._random_sampler = random


def last_parents(notes: Mapping[str, Any]) -> set[int]:
    """Ids of the trials that NSGA chose as parents of its last two generations, from its notes on the study."""
    parents = [ids for key, ids in notes.items() if ":parent:" in key]
    return {trial_id for ids in parents[-2:] for trial_id in ids}


def is_trusted(notes: Mapping[str, Any]) -> bool:
    """Whether stored notes are safe. CMA-ES notes a pickle, which could run code: it may only contain an optimizer."""
    parts = [key for key in notes if "cma" in key and ":optimizer:" in key]
    if not parts:
        return True
    try:
        text = "".join(notes[f"{parts[0].rpartition(':')[0]}:{i}"] for i in range(len(parts)))
        _OptimizerReader(io.BytesIO(bytes.fromhex(text))).load()
    except Exception:
        return False
    return True


class _OptimizerReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in _OPTIMIZER_CLASSES.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} is not part of an optimizer")
        return super().find_class(module, name)


class BatchTPESampler(TPESampler):
    """Optuna's TPE sampler, faster. Use a new one for each batch."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._inferred: dict[str, BaseDistribution] | None = None
        self._models: dict[tuple[str, ...], tuple[Density, dict[str, np.ndarray], np.ndarray]] = {}
        """For each group of axes: the density of good trials, and the other trials' values and numbers."""
        self._running: dict[tuple[str, ...], dict[int, dict[str, float]]] = {}
        """For each group of axes: the values of running trials; empty for a trial that lacks some of the axes."""

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        if self._inferred is None:
            self._inferred = super().infer_relative_search_space(study, trial)
        return self._inferred

    def _sample(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator

        good, others, numbers = self._model(study, search_space)
        rows = self._running.setdefault(tuple(search_space), {})
        running = []
        for other in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if other.number != trial.number:
                if other.number not in rows:
                    found = self._get_internal_repr([other], search_space, study)
                    rows[other.number] = {name: float(column[0]) for name, column in found.items() if len(column)}
                if rows[other.number]:
                    running.append(other.number)
        order = np.argsort([*numbers, *running], kind="stable")
        observed = {
            name: np.concatenate([others[name], [rows[number][name] for number in running]])[order]
            for name in search_space
        }
        rest = Density(_ParzenEstimator(observed, search_space, self._parzen_estimator_parameters))
        candidates = good.sample(self._rng.rng, self._n_ei_candidates)
        best = self._compare(candidates, good.log_pdf(candidates) - rest.log_pdf(candidates))
        return {name: d.to_external_repr(best[name]) for name, d in search_space.items()}

    def _model(
        self, study: Study, space: dict[str, BaseDistribution]
    ) -> tuple["Density", dict[str, np.ndarray], np.ndarray]:
        from optuna.samplers._tpe.sampler import _split_trials, default_gamma, default_gamma_multiobjective

        key = tuple(space)
        if key not in self._models:
            ended = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
            gamma = default_gamma if len(study.directions) == 1 else default_gamma_multiobjective
            good, others = _split_trials(study, ended, gamma(len(ended)))
            numbers = np.array([t.number for t in others if space.keys() <= t.params.keys()], dtype=int)
            density = Density(self._build_parzen_estimator(study, space, good, handle_below=True))
            self._models[key] = density, self._get_internal_repr(others, space, study), numbers
        return self._models[key]


class Density:
    """A mixture of kernels, one for each trial, as in Optuna's Parzen estimator."""

    def __init__(self, estimator: Any) -> None:
        self._weights: np.ndarray = estimator._mixture_distribution.weights
        self._kernels = dict(zip(estimator._search_space, estimator._mixture_distribution.distributions, strict=True))

    def sample(self, rng: np.random.RandomState, size: int) -> dict[str, np.ndarray]:
        """Draw candidates with the same random numbers as Optuna."""
        kernel = rng.choice(len(self._weights), p=self._weights, size=size)
        drawn = {n: _drawn_choices(k.weights[kernel], rng) for n, k in self._kernels.items() if hasattr(k, "weights")}
        numbers = [name for name in self._kernels if name not in drawn]
        if numbers:
            quantiles = rng.uniform(size=(len(numbers), size))
            drawn |= {n: _drawn_numbers(self._kernels[n], kernel, q) for n, q in zip(numbers, quantiles, strict=True)}
        return {name: drawn[name] for name in self._kernels}

    def log_pdf(self, samples: Mapping[str, np.ndarray]) -> np.ndarray:
        logs = np.log(self._weights)[None]  # candidate, kernel
        for name, kernels in self._kernels.items():
            logs = logs + _log_density(kernels, np.asarray(samples[name]))
        with np.errstate(divide="ignore"):
            return np.asarray(logsumexp(logs, axis=1))


def _drawn_choices(weights: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    quantiles = rng.rand(len(weights))
    below = np.cumsum(weights, axis=1)
    below[:, -1] = 1
    return np.asarray((below < quantiles[:, None]).sum(axis=1), dtype=float)


def _drawn_numbers(kernels: Any, kernel: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """The quantiles of the chosen kernels, each truncated to the axis' range."""
    mu, sigma = kernels.mu[kernel], kernels.sigma[kernel]
    a, b = (kernels.adapted_low - mu) / sigma, (kernels.adapted_high - mu) / sigma
    # Start from the side where the tail is exact.
    left = a < 0
    low, part = np.where(left, a, -b), np.where(left, quantiles, 1 - quantiles)
    at = ndtri_exp(np.logaddexp(log_ndtr(low), np.log(part) + _log_mass(a, b)))
    x = np.where(left, at, -at) * sigma + mu
    x = np.exp(x) if kernels.is_log else x
    if kernels.step:
        x = np.clip(kernels.low + np.round((x - kernels.low) / kernels.step) * kernels.step, kernels.low, kernels.high)
    return np.asarray(x)


def _log_density(kernels: Any, x: np.ndarray) -> np.ndarray:
    """The logarithm of each kernel's density, or mass around a step, at each value."""
    if hasattr(kernels, "weights"):
        return np.asarray(np.log(kernels.weights.T)[x.astype(int)])
    mu, sigma = kernels.mu, kernels.sigma
    inside = _log_mass((kernels.adapted_low - mu) / sigma, (kernels.adapted_high - mu) / sigma)
    scaled = np.log if kernels.is_log else np.asarray
    if kernels.step == 0.0:
        at = (scaled(x)[:, None] - mu) / sigma
        return np.asarray(-0.5 * at**2 - 0.5 * np.log(2 * np.pi) - np.log(sigma) - inside)
    distinct, where = np.unique(x, return_inverse=True)
    ends = [(scaled(distinct + side)[:, None] - mu) / sigma for side in (-kernels.step / 2, kernels.step / 2)]
    return np.asarray((_log_mass(*ends) - inside)[where])


def _log_mass(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The logarithm of the normal distribution's mass between a and b; exact in both tails."""
    right = a > 0
    low, high = np.where(right, -b, a), np.where(right, -a, b)
    mass: np.ndarray = np.empty_like(low)
    around = high > 0
    mass[around] = np.log1p(-ndtr(low[around]) - ndtr(-high[around]))
    # Without the common factor exp(-high²/2), nothing underflows.
    low, high = low[~around], high[~around]
    with np.errstate(divide="ignore", invalid="ignore"):
        left_out = np.exp((high - low) * (high + low) / 2) * erfcx(-low / _ROOT)
        mass[~around] = np.log((erfcx(-high / _ROOT) - left_out) / 2) - high**2 / 2
    return mass
