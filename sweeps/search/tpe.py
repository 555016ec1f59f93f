"""Optuna's TPE for batches: the same proposals, at a fraction of the cost.

What has ended does not change while a batch is proposed: so trials are split into good and others once for all of it,
and only what is running is taken in anew. Densities are evaluated by scipy. Optuna makes their numbers one by one in
Python, which costs most for whole numbers and steps, where the mass of every kernel around every candidate is needed.

This leans on inner parts of Optuna: tests compare with its own sampler, number by number.
"""

from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator
from optuna.samplers._tpe.sampler import _split_trials, default_gamma, default_gamma_multiobjective
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from scipy.special import erfcx, log_ndtr, logsumexp, ndtr, ndtri_exp

_ROOT = np.sqrt(2)


class BatchTPESampler(TPESampler):
    """For one batch of proposals: nothing may be told in between."""

    def __init__(self, seed: int, startup: int) -> None:
        super().__init__(seed=seed, n_startup_trials=startup, multivariate=True, group=True, constant_liar=True)
        self._parzen_estimator_cls = Estimator
        self._inferred: dict[str, BaseDistribution] | None = None
        self._models: dict[tuple[str, ...], tuple[Estimator, dict[str, np.ndarray], np.ndarray]] = {}
        """For each group of axes: the density of good trials, and the others' values and numbers."""
        self._running: dict[tuple[str, ...], dict[int, dict[str, float]]] = {}
        """For each group of axes: the values of running trials; none of a trial without some of the axes."""

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        if self._inferred is None:
            self._inferred = super().infer_relative_search_space(study, trial)
        return self._inferred

    def _sample(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        good, others, numbers = self._model(study, search_space)
        rows = self._running.setdefault(tuple(search_space), {})
        running = []
        for other in _trials(study, TrialState.RUNNING):
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
        rest = Estimator(observed, search_space, self._parzen_estimator_parameters)
        candidates = good.sample(self._rng.rng, self._n_ei_candidates)
        best = self._compare(candidates, good.log_pdf(candidates) - rest.log_pdf(candidates))
        return {name: d.to_external_repr(best[name]) for name, d in search_space.items()}

    def _model(
        self, study: Study, space: dict[str, BaseDistribution]
    ) -> tuple["Estimator", dict[str, np.ndarray], np.ndarray]:
        key = tuple(space)
        if key not in self._models:
            ended = _trials(study, TrialState.COMPLETE, TrialState.PRUNED)
            gamma = default_gamma if len(study.directions) == 1 else default_gamma_multiobjective
            good, others = _split_trials(study, ended, gamma(len(ended)))
            numbers = np.array([t.number for t in others if space.keys() <= t.params.keys()], dtype=int)
            density = self._build_parzen_estimator(study, space, good, handle_below=True)
            self._models[key] = density, self._get_internal_repr(others, space, study), numbers
        return self._models[key]


def _trials(study: Study, *states: TrialState) -> list[FrozenTrial]:
    trials: list[FrozenTrial] = study.get_trials(deepcopy=False, states=states)
    return trials


class Estimator(_ParzenEstimator):
    """A mixture of kernels, one for each trial."""

    def sample(self, rng: np.random.RandomState, size: int) -> dict[str, np.ndarray]:
        """Candidates drawn from the mixture, with the same random numbers as Optuna's own."""
        mixture = self._mixture_distribution
        kernel = rng.choice(len(mixture.weights), p=mixture.weights, size=size)
        named = dict(zip(self._search_space, mixture.distributions, strict=True))
        drawn = {n: _drawn_choices(k.weights[kernel], rng) for n, k in named.items() if hasattr(k, "weights")}
        numbers = [name for name in named if name not in drawn]
        if numbers:
            places = rng.uniform(size=(len(numbers), size))
            drawn |= {n: _drawn_numbers(named[n], kernel, at) for n, at in zip(numbers, places, strict=True)}
        return {name: drawn[name] for name in named}

    def log_pdf(self, samples_dict: dict[str, np.ndarray]) -> np.ndarray:
        """The logarithm of the density at each candidate."""
        mixture = self._mixture_distribution
        logs = np.log(mixture.weights)[None]  # candidate, kernel
        for name, kernels in zip(self._search_space, mixture.distributions, strict=True):
            x = np.asarray(samples_dict[name])
            logs = logs + (_of_choices(kernels, x) if hasattr(kernels, "weights") else _of_numbers(kernels, x))
        with np.errstate(divide="ignore"):
            density: np.ndarray = logsumexp(logs, axis=1)
        return density


def _drawn_choices(weights: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    at = rng.rand(len(weights))
    below = np.cumsum(weights, axis=1)
    below[:, -1] = 1
    found: np.ndarray = (below < at[:, None]).sum(axis=1).astype(float)
    return found


def _drawn_numbers(kernels: Any, kernel: np.ndarray, places: np.ndarray) -> np.ndarray:
    """At these places, between 0 and 1, of the mass that each one's kernel has inside the range."""
    mu, sigma = kernels.mu[kernel], kernels.sigma[kernel]
    a, b = (kernels.adapted_low - mu) / sigma, (kernels.adapted_high - mu) / sigma
    # From the side where the tail is exact.
    left = a < 0
    low, part = np.where(left, a, -b), np.where(left, places, 1 - places)
    at = ndtri_exp(np.logaddexp(log_ndtr(low), np.log(part) + _log_mass(a, b)))
    x = np.where(left, at, -at) * sigma + mu
    x = np.exp(x) if kernels.is_log else x
    if kernels.step:
        x = np.clip(kernels.low + np.round((x - kernels.low) / kernels.step) * kernels.step, kernels.low, kernels.high)
    found: np.ndarray = x
    return found


def _of_choices(kernels: Any, x: np.ndarray) -> np.ndarray:
    logs: np.ndarray = np.log(kernels.weights.T)[x.astype(int)]
    return logs


def _of_numbers(kernels: Any, x: np.ndarray) -> np.ndarray:
    mu, sigma = kernels.mu, kernels.sigma
    inside = _log_mass((kernels.adapted_low - mu) / sigma, (kernels.adapted_high - mu) / sigma)
    scaled = np.log if kernels.is_log else np.asarray
    if kernels.step == 0.0:
        at = (scaled(x)[:, None] - mu) / sigma
        logs: np.ndarray = -0.5 * at**2 - 0.5 * np.log(2 * np.pi) - np.log(sigma) - inside
        return logs
    distinct, where = np.unique(x, return_inverse=True)
    ends = [(scaled(distinct + side)[:, None] - mu) / sigma for side in (-kernels.step / 2, kernels.step / 2)]
    masses: np.ndarray = (_log_mass(*ends) - inside)[where]
    return masses


def _log_mass(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The logarithm of the normal distribution's mass between a and b; exact in both tails."""
    right = a > 0
    low, high = np.where(right, -b, a), np.where(right, -a, b)
    mass: np.ndarray = np.empty_like(low)
    around = high > 0
    mass[around] = np.log1p(-ndtr(low[around]) - ndtr(-high[around]))
    # With the common factor exp(-high²/2) taken out, nothing underflows.
    low, high = low[~around], high[~around]
    with np.errstate(divide="ignore", invalid="ignore"):
        left_out = np.exp((high - low) * (high + low) / 2) * erfcx(-low / _ROOT)
        mass[~around] = np.log((erfcx(-high / _ROOT) - left_out) / 2) - high**2 / 2
    return mass
