"""The Pareto front: cells that no other cell dominates."""

from collections.abc import Sequence

import numpy as np

from mislabel.sweeps.spec.model import Objective


def on_front(values: np.ndarray, objectives: Sequence[Objective]) -> np.ndarray:
    """Whether each row is on the front; there is a column per objective.

    A row dominates another if it is as good in all objectives and better in one. A row with a NaN is not on the front
    and dominates no other. Rows that are equal in every objective are all on the front, or none is.
    """
    signs = np.array([1.0 if objective.goal == "minimize" else -1.0 for objective in objectives])
    costs = np.asarray(values, dtype=float).reshape(-1, len(signs)) * signs
    front = np.zeros(len(costs), bool)
    candidates = np.flatnonzero(~np.isnan(costs).any(axis=1))
    # In this order no row can be dominated by a later one.
    order = candidates[np.lexsort(costs[candidates].T[::-1])]
    kept = np.empty((0, len(signs)))
    for i in order:
        at_least_as_good = (kept <= costs[i]).all(axis=1)
        if not (at_least_as_good & (kept < costs[i]).any(axis=1)).any():
            front[i] = True
            kept = np.vstack([kept, costs[i]])
    return front
