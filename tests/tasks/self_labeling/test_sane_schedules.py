"""Schedules at their ends and in the middle, compared with torch's cosine."""

import math

import pytest
import torch

from mislabel.tasks.self_labeling.sane import annealed, confidence


def test_confidence_goes_from_m1_to_m2_by_the_papers_formula() -> None:
    m1, m2 = torch.tensor([0.0, 0.5]), torch.tensor([1.0, 10.0])
    torch.testing.assert_close(confidence(m1, m2, 0, 100), m1)
    torch.testing.assert_close(confidence(m1, m2, 100, 100), m2)
    torch.testing.assert_close(confidence(m1, m2, 50, 100), (m1 + m2) / 2)
    at_30 = [10 - (10 - 0.5) * (math.cos(math.pi * 0.3) + 1) / 2]
    assert confidence(m1, m2, 30, 100)[1].item() == pytest.approx(at_30[0])


def test_the_rate_is_that_of_torchs_cosine() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.03)
    torchs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    for step in range(20):
        assert annealed(torch.tensor([0.03]), step, 20).item() == pytest.approx(torchs.get_last_lr()[0], abs=1e-8)
        optimizer.step()
        torchs.step()
