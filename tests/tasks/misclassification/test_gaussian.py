"""New Gaussian inputs: standard, independent, and the same for every split of the steps."""

import math

import pytest
import torch
from scipy import stats

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.gaussian import gaussian_inputs
from mislabel.tasks.misclassification.neuron import Params


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("dim", [1, 5, 6])
def test_inputs_are_standard_normal_and_independent(precision: str, dim: int) -> None:
    lanes = Lanes([Params(precision=precision, dim=dim)] * 2, [0, 1])
    x = gaussian_inputs(lanes, "x", range(20_000), ending=False)
    assert x.shape == (2, 20_000, dim)
    assert x.dtype == lanes.dtype
    assert stats.kstest(x.flatten().double().numpy(), "norm").pvalue > 0.001
    columns = torch.cat(
        [x[0], x[1], x[0].square() - 1], dim=1
    ).double()  # pairs share a radius, but squares must be uncorrelated
    products = columns.T @ columns / len(columns)
    wanted = torch.diag(torch.tensor([1.0] * 2 * dim + [2.0] * dim).double())
    torch.testing.assert_close(products, wanted, rtol=0.1, atol=6 / math.sqrt(20_000))


def test_inputs_end_with_a_one_for_biases_and_are_otherwise_the_same() -> None:
    lanes = Lanes([Params(dim=5)], [3])
    with_end, without = (gaussian_inputs(lanes, "x", range(10), ending=ending) for ending in (True, False))
    assert (with_end[:, :, 5] == 1).all()
    assert torch.equal(with_end[:, :, :5], without)


@pytest.mark.parametrize("dim", [5, 6])
def test_inputs_are_the_same_bits_for_every_split_of_the_steps(dim: int) -> None:
    lanes = Lanes([Params(dim=dim)] * 3, [0, 1, 2])
    whole = gaussian_inputs(lanes, "x", range(100), ending=True)
    for length in (1, 7, 16, 64):
        parts = [
            gaussian_inputs(lanes, "x", range(first, min(100, first + length)), ending=True)
            for first in range(0, 100, length)
        ]
        assert torch.equal(torch.cat(parts, dim=1), whole)
