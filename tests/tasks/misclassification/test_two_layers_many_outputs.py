"""Blocks of steps with many outputs, compared with autograd one sample at a time; Theorem 1 per output."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from mislabel.tasks.misclassification.two_layers import ManyOutputsSgd

LANES, DIM, WIDTH, OUTPUTS = 3, 6, 9, 4


def drawn(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def plain_loss(loss: str, f: Tensor, target: Tensor) -> Tensor:
    if loss == "logistic":
        return (target * torch.log(1 + torch.exp(-f)) + (1 - target) * torch.log(1 + torch.exp(f))).sum()
    return -(target * torch.log(torch.exp(f) / torch.exp(f).sum())).sum()


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize("both", [True, False])
def test_blocks_train_like_autograd_on_one_sample_at_a_time(loss: str, both: bool) -> None:
    count = 45
    w, b = drawn(LANES, DIM, WIDTH), drawn(LANES, WIDTH, seed=6)
    a, c = drawn(LANES, WIDTH, OUTPUTS, seed=1), drawn(LANES, OUTPUTS, seed=2)
    x, targets = drawn(LANES, count, DIM, seed=3), drawn(LANES, count, OUTPUTS, seed=4).softmax(dim=2)
    rates = 0.1 * drawn(LANES, count, seed=5).sigmoid()
    sgd = ManyOutputsSgd(w, b, a, c, loss, both=both)
    for at in (slice(0, 16), slice(16, 17), slice(17, 33), slice(33, 45)):
        sgd.train(x[:, at], targets[:, at], rates[:, at])
    for lane in range(LANES):
        leaves = [tensor[lane].clone() for tensor in (w, b, a, c)]
        for x_t, target, rate in zip(x[lane], targets[lane], rates[lane], strict=True):
            for leaf in leaves:
                leaf.requires_grad_()
            f = torch.relu(x_t @ leaves[0] + leaves[1]) @ leaves[2] + leaves[3]
            gradients = torch.autograd.grad(plain_loss(loss, f, target), leaves)
            moved = zip(leaves, gradients, (True, True, both, both), strict=True)
            leaves = [(leaf - rate * gradient if moves else leaf).detach() for leaf, gradient, moves in moved]
        for name, found, expected in zip("wbac", sgd.layers(), leaves, strict=True):
            torch.testing.assert_close(found[lane], expected, rtol=1e-9, atol=1e-12, msg=f"{name} of lane {lane}")


def test_inputs_are_not_changed() -> None:
    w, b = drawn(1, DIM, WIDTH), drawn(1, WIDTH, seed=3)
    a, c = drawn(1, WIDTH, OUTPUTS, seed=1), drawn(1, OUTPUTS, seed=2)
    before = [tensor.clone() for tensor in (w, b, a, c)]
    sgd = ManyOutputsSgd(w, b, a, c, "logistic")
    sgd.train(drawn(1, 8, DIM), torch.full((1, 8, OUTPUTS), 0.25).double(), torch.full((1, 8), 0.1).double())
    for given_, kept, now in zip((w, b, a, c), before, sgd.layers(), strict=True):
        assert torch.equal(given_, kept)
        assert not torch.equal(now, kept)


@pytest.mark.claims
@given(seed=st.integers(0, 10**6), outputs=st.integers(1, 10), share=st.floats(0.001, 0.999))
def test_a_small_step_with_all_outputs_misclassified_lowers_the_norm_of_every_layer(
    seed: int, outputs: int, share: float
) -> None:
    w, a = drawn(1, DIM, WIDTH, seed=seed), drawn(1, WIDTH, outputs, seed=seed + 1)
    b, c = torch.zeros(1, WIDTH).double(), torch.zeros(1, outputs).double()
    x = drawn(1, 1, DIM, seed=seed + 2)
    r = torch.bmm(x, w).relu()
    f = torch.bmm(r, a)[:, 0]
    # A step changes squared norms by -2h·Σ|f_i|L'(|f_i|), and by at most h²·Σ L'(|f_i|)² times these; 1/2 ≤ L' ≤ 1.
    squares = outputs * max((a.square().sum() * x.square().sum()).item(), r.square().sum().item())
    assume(f.abs().sum().item() > 1e-4 * squares)
    rate = torch.full((1, 1), share * f.abs().sum().item() / squares, dtype=torch.float64)
    sgd = ManyOutputsSgd(w, b, a, c, "logistic")
    sgd.train(x, (f < 0).double()[:, None], rate)
    for after, before in zip(sgd.layers()[::2], (w, a), strict=True):
        assert after.norm() < before.norm()
