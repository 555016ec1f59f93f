"""Blocks of steps on two layers, compared with autograd one sample at a time; Theorem 1 of the paper."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.noisy_loss import strengths
from mislabel.tasks.misclassification.two_layers import Sgd, TwoLayers, all_correct, evaluate, initial_layers


def two_layers(**settings: object) -> TwoLayers:
    return TwoLayers(**{"dim": 5, "width": 7, "precision": "float64", "bias_scale": 0.5, **settings})  # type: ignore[arg-type]


def inputs(params: TwoLayers, lanes: int, count: int, seed: int = 0) -> Tensor:
    x = torch.randn(lanes, count, params.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x if params.biases == "none" else torch.cat([x, torch.ones_like(x[:, :, :1])], dim=2)


def output(w: Tensor, a: Tensor, c: Tensor, x: Tensor) -> Tensor:
    return a @ torch.relu(w.T @ x) + c


def plain_loss(params: TwoLayers, f: Tensor, chance: Tensor) -> Tensor:
    if params.loss == "logistic":
        up, down = torch.log(1 + torch.exp(-f)), torch.log(1 + torch.exp(f))
    else:
        up, down = torch.relu(params.hinge_offset - f), torch.relu(params.hinge_offset + f)
    return chance * up + (1 - chance) * down


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("trained", ["both", "first"])
@pytest.mark.parametrize("biases", ["both", "hidden", "none"])
def test_blocks_train_like_autograd_on_one_sample_at_a_time(loss: str, trained: str, biases: str) -> None:
    settings = [
        two_layers(loss=loss, trained=trained, biases=biases, learning_rate=rate, hinge_offset=offset)
        for rate, offset in ((0.02, 0.0), (0.1, 1.0), (0.05, 0.3))
    ]
    lanes, count = Lanes(settings, [0, 1, 2]), 45
    s = initial_layers(lanes)
    x = inputs(settings[0], 3, count)
    chances = torch.rand(3, count, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = []
    for lane, params in enumerate(settings):
        w, a, c = (s[name][lane].clone() for name in ("w", "a", "c"))
        for x_t, chance in zip(x[lane], chances[lane], strict=True):
            leaves = (w.requires_grad_(), a.requires_grad_(), c.requires_grad_())
            gradients = torch.autograd.grad(plain_loss(params, output(*leaves, x_t), chance), leaves)
            moves = [params.learning_rate * gradient for gradient in gradients]
            w = (w - moves[0]).detach()
            a = (a - moves[1]).detach() if trained == "both" else a.detach()
            c = (c - moves[2]).detach() if trained == biases == "both" else c.detach()
        expected.append((w, a, c))
    sgd, (up, down) = Sgd(lanes, s), strengths(lanes, chances)
    for first in range(0, count, 16):
        sgd.train(x[:, first : first + 16], up[first : first + 16], down[first : first + 16])
    for lane, layers in enumerate(expected):
        for name, tensor in zip(("w", "a", "c"), layers, strict=True):
            torch.testing.assert_close(s[name][lane], tensor, rtol=1e-9, atol=1e-12, msg=f"{name} of lane {lane}")


def test_evaluation_gives_outputs_and_firing_rates() -> None:
    params = two_layers()
    lanes = Lanes([params] * 2, [0, 1])
    s, x = initial_layers(lanes), inputs(params, 2, 300)
    seen = evaluate(s, x)
    y = torch.ones(2, 300, dtype=torch.float64)
    for lane in range(2):
        w, a, c = (s[name][lane] for name in ("w", "a", "c"))
        outputs = torch.stack([output(w, a, c, x_n) for x_n in x[lane]])
        torch.testing.assert_close(seen.outputs[lane], outputs)
        firing = [sum(bool(w[:, i] @ x_n > 0) for x_n in x[lane]) / 300 for i in range(params.width)]
        torch.testing.assert_close(seen.firing[lane], torch.tensor(firing).double())
        assert seen.error(y)[lane].item() == pytest.approx(sum(f <= 0 for f in outputs.tolist()) / 300)


def test_all_correct_agrees_with_the_error_of_evaluate() -> None:
    params = two_layers()
    lanes = Lanes([params] * 64, range(64))
    s, x = initial_layers(lanes), inputs(params, 64, 3)
    y = torch.ones(64, 3, dtype=torch.float64)
    found = all_correct(s, x, y)
    assert found.tolist() == (evaluate(s, x).error(y) == 0).tolist()
    assert 0 < found.sum() < 64


def test_outputs_of_0_or_nan_are_errors_for_both_labels() -> None:
    params = two_layers(output_scale=0.0, bias_scale=0.0)
    lanes = Lanes([params], [0])
    s, x = initial_layers(lanes), inputs(params, 1, 4)
    broken = {**s, "a": torch.full_like(s["a"], torch.nan)}
    for side in (-1.0, 1.0):
        y = torch.full((1, 4), side, dtype=torch.float64)
        for layers in (s, broken):
            assert evaluate(layers, x).error(y).item() == 1
            assert not all_correct(layers, x, y)


def test_initial_layers_have_the_declared_spread() -> None:
    params = two_layers(dim=60, width=240, init_scale=0.5, output_scale=2.0, bias_scale=3.0)
    s = initial_layers(Lanes([params], [0]))
    weights, biases = s["w"][0, :60], s["w"][0, 60]
    for tensor, scale in ((weights, 0.5), (s["a"], 2.0), (biases, 3.0)):
        assert tensor.std().item() == pytest.approx(scale, rel=0.1)
        assert tensor.abs().max().item() <= 3**0.5 * scale


@pytest.mark.claims
@given(
    seed=st.integers(0, 10**6),
    dim=st.integers(1, 8),
    width=st.integers(1, 12),
    loss=st.sampled_from(["hinge", "logistic"]),
    biases=st.sampled_from(["hidden", "none"]),
    share=st.floats(0.001, 0.999),
)
def test_a_small_step_on_a_misclassified_sample_lowers_the_norm_of_every_layer(
    seed: int, dim: int, width: int, loss: str, biases: str, share: float
) -> None:
    params = two_layers(dim=dim, width=width, loss=loss, biases=biases)
    s, x = initial_layers(Lanes([params], [seed])), inputs(params, 1, 1, seed)
    f = evaluate(s, x).outputs
    # The proof's bound on the rate: a step changes squared norms by -2h|N|L' and at most (h·L')² times these; L' ≤ 1.
    squares = max((s["a"].square().sum() * x.square().sum()).item(), torch.bmm(x, s["w"]).relu().square().sum().item())
    assume(abs(f.item()) > 1e-4 * squares)
    rate = share * 2 * abs(f.item()) / squares
    lanes = Lanes([two_layers(dim=dim, width=width, loss=loss, biases=biases, learning_rate=rate)], [seed])
    before = {name: tensor.clone() for name, tensor in s.items()}
    Sgd(lanes, s).train(x, *strengths(lanes, (f < 0).double()))
    assert s["w"].norm() < before["w"].norm()
    assert s["a"].norm() < before["a"].norm()
