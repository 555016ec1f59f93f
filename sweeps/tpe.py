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
from scipy.special import log_ndtr, logsumexp, ndtr


class BatchTPESampler(TPESampler):
    """For one batch of proposals: nothing may be told in between."""

    def __init__(self, seed: int, startup: int) -> None:
        super().__init__(seed=seed, n_startup_trials=startup, multivariate=True, group=True, constant_liar=True)
        self._parzen_estimator_cls = Estimator
        self._inferred: dict[str, BaseDistribution] | None = None
        self._models: dict[tuple[str, ...], tuple[Estimator, dict[str, np.ndarray], np.ndarray]] = {}
        """For each group of axes: the density of good trials, and the others' values and numbers."""

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        if self._inferred is None:
            self._inferred = super().infer_relative_search_space(study, trial)
        return self._inferred

    def _sample(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        good, others, numbers = self._model(study, search_space)
        running = [t for t in _trials(study, TrialState.RUNNING) if t.number != trial.number]
        running = [t for t in running if search_space.keys() <= self._get_params(t, study).keys()]
        beside = self._get_internal_repr(running, search_space, study)
        order = np.argsort([*numbers, *(t.number for t in running)], kind="stable")
        observed = {name: np.concatenate([others[name], beside[name]])[order] for name in search_space}
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
    return study.get_trials(deepcopy=False, states=states)


class Estimator(_ParzenEstimator):
    """A mixture of kernels, one for each trial."""

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
    below, above = log_ndtr(low), log_ndtr(high)
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = above + np.log1p(-np.exp(below - above))
        mass: np.ndarray = np.where(high > 0, np.log1p(-ndtr(low) - ndtr(-high)), tail)
    return mass
