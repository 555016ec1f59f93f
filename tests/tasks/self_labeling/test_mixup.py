"""Mixup, compared with loops, and its Beta draws, compared with scipy's distribution."""

import numpy as np
import pytest
import torch
from scipy import stats

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.self_labeling.mixup import beta, mixed, partners
from mislabel.tasks.training import Training


def lanes_of(count: int, precision: str = "float32") -> Lanes[Training]:
    return Lanes([Training(precision=precision)] * count, range(count))


@pytest.mark.parametrize("kappa", [0.1, 0.5, 1.0, 2.0, 30.0])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_shares_are_beta_distributed(kappa: float, precision: str) -> None:
    found = beta(lanes_of(1, precision), "share", torch.tensor([kappa]), 20_000, step=3)[0].double().numpy()
    assert np.isfinite(found).all()
    assert ((found >= 0) & (found <= 1)).all()
    # At κ = 0.1 single precision rounds many to 0 or 1; scipy's distribution has the same mass beyond the rounding.
    cut = np.clip(found, 1e-7, 1 - 1e-7)
    inner = stats.kstest(cut[(cut > 1e-6) & (cut < 1 - 1e-6)], lambda x: _within(x, kappa, 1e-6))
    assert inner.pvalue > 1e-3
    tail = stats.beta(kappa, kappa).cdf(1e-6)
    assert stats.binomtest(int((cut <= 1e-6).sum()), len(cut), tail).pvalue > 1e-3


def _within(x: np.ndarray, kappa: float, edge: float) -> np.ndarray:
    """The distribution function given that the value is between the edges."""
    law = stats.beta(kappa, kappa)
    low, high = law.cdf(edge), law.cdf(1 - edge)
    found: np.ndarray = (law.cdf(x) - low) / (high - low)
    return found


def test_each_lane_has_its_own_kappa_and_each_step_its_own_shares() -> None:
    lanes = lanes_of(2)
    found = beta(lanes, "share", torch.tensor([0.1, 50.0]), 1000, step=0)
    assert found[0].std() > 3 * found[1].std()
    assert not torch.equal(found, beta(lanes, "share", torch.tensor([0.1, 50.0]), 1000, step=1))


def test_partners_are_uniform_over_the_batch() -> None:
    found = torch.stack([partners(lanes_of(2), "partner", 16, step) for step in range(200)])  # steps l s
    assert found.shape == (200, 2, 16)
    assert stats.chisquare(torch.bincount(found.flatten(), minlength=16).numpy()).pvalue > 1e-3


def test_images_and_labels_are_mixed_as_in_equation_8() -> None:
    generator = torch.Generator().manual_seed(0)
    x, x_tilde = (torch.randn(2, 3, 1, 4, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    labels = torch.rand(2, 3, 7, generator=generator, dtype=torch.float64)
    share = torch.rand(2, 3, generator=generator, dtype=torch.float64)
    partner = torch.tensor([[2, 2, 0], [1, 0, 2]])
    images, mixed_labels = mixed(x, x_tilde, share, partner), mixed(labels, labels, share, partner)
    for lane in range(2):
        for i in range(3):
            theta, k = share[lane, i], partner[lane, i]
            torch.testing.assert_close(images[lane, i], theta * x[lane, i] + (1 - theta) * x_tilde[lane, k])
            torch.testing.assert_close(mixed_labels[lane, i], theta * labels[lane, i] + (1 - theta) * labels[lane, k])
