"""The Optuna distribution of an axis, for searches and for studies of stored sweeps."""

import math
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from mislabel.sweeps.spec.model import Axis


def distribution(axis: Axis, integer: bool) -> BaseDistribution:
    """The values of the axis; `integer` means that its parameter is a whole number."""
    if axis.values is not None:
        return CategoricalDistribution(axis.values)
    assert axis.min is not None
    assert axis.max is not None
    low, high, log = axis.min, axis.max, axis.scale == "log"
    if axis.step is not None:
        # If steps do not fill the range, end it at the last step. Optuna would do the same, with a warning.
        high = low + math.floor((high - low) / axis.step + 1e-9) * axis.step
    if integer:
        return IntDistribution(int(low), int(high), log=log, step=int(axis.step or 1))
    return FloatDistribution(low, min(high, axis.max), log=log, step=axis.step)


def contains(d: BaseDistribution, value: Any) -> bool:
    try:  # Optuna's only public check
        create_trial(state=TrialState.RUNNING, params={"value": value}, distributions={"value": d})
    except ValueError:
        return False
    return True
