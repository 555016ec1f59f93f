import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from mislabel.sweeps.spec.distribution import distribution
from mislabel.sweeps.spec.model import Axis


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
