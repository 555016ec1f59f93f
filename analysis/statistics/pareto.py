"""The Pareto front: cells than which no other is better in one objective and at least as good in all."""

from collections.abc import Sequence

import numpy as np

from mislabel.sweeps.spec.model import Objective


def on_front(values: np.ndarray, objectives: Sequence[Objective]) -> np.ndarray:
    """Of each row whether it is on the front; there is a column per objective.

    A row with a nan is not, and keeps no other off it. Of rows that are equal in every objective all are, or none is.
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
