"""Principal axes of inputs, compared with the inputs."""

import pytest
import torch

from mislabel.tasks.label_noise_sgd.inputs import drawn_inputs
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.training import Training


@pytest.mark.parametrize("samples", [3, 40, 2500])
def test_variances_and_axes_are_those_of_the_inputs(samples: int) -> None:
    lanes = Lanes([Training(precision="float64")] * 2, [0, 1])
    inputs = drawn_inputs(lanes, samples, 5)
    x = lanes.normal("x", 5, steps=range(samples))
    rebuilt = inputs.axes @ torch.diag_embed(inputs.variance) @ inputs.axes.mT
    torch.testing.assert_close(rebuilt, x.mT @ x / samples)
    torch.testing.assert_close(inputs.axes @ inputs.axes.mT, torch.eye(5, dtype=torch.float64).expand(2, 5, 5))
    assert (inputs.variance >= 0).all()


def test_infinitely_many_inputs_are_the_limit_of_many() -> None:
    lanes = Lanes([Training(precision="float64")], [0])
    limit = drawn_inputs(lanes, 0, 3)
    torch.testing.assert_close(limit.variance, drawn_inputs(lanes, 100_000, 3).variance, rtol=0, atol=0.02)
    torch.testing.assert_close(limit.axes[0], torch.eye(3, dtype=torch.float64))
