"""One neuron under label noise: the norm of its weights falls linearly, then levels off near zero (Figure 2).

Cornacchia, Hazła, Nachum, Yehudayoff, Figure 2 and Theorem 2. N(x) = w·x, without an activation, is trained by SGD
with batch size 1. Every step draws a new input from N(0, I). At `noise_rate` 1 (pure label noise) labels are random.
The true label of an input is the sign of its first entry. Under pure noise and at a large norm, the norm falls by
h/√(2π) per step.

Readings: weights start as U[-√3, √3]. The neuron has no bias by default; the text's proof in expectation has one
(`bias`). The norm levels off where the increase by noise in a step, h²d·E[L'²], equals the decrease by
misclassification: at √(2π)/4·d·h for the hinge loss with β = 0, and at √(d·h/2) for the logistic loss. The text says
d·h for both in Section 6, and d·√h for the latter in Theorem 2.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mislabel.tasks.blocks import BLOCK, blocks, stretches
from mislabel.tasks.lanes import Lanes, once
from mislabel.tasks.misclassification import noisy_loss
from mislabel.tasks.misclassification.gaussian import gaussian_inputs
from mislabel.tasks.misclassification.noisy_loss import NoisyLoss, Pull, pull_of
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task


@dataclass(frozen=True, kw_only=True)
class Params(NoisyLoss):
    steps: int = shape(30_000, at_least=1, help="SGD steps, one new input each")
    spacing: str = shape("linear", choices=("linear", "log"), help="spacing of the measured steps")
    dim: int = shape(30, at_least=1, help="input dimension d")
    test_samples: int = shape(1000, at_least=1, help="test inputs, on which losses and errors are measured")
    bias: bool = shape(False, help="whether the neuron has a bias")
    learning_rate: float = knob(1 / 900, above=0, help="learning rate h of SGD; 1/d² in the paper")
    init_scale: float = knob(1.0, at_least=0, help="initial weights (and bias) are U[−√3, √3] times this")


METRICS = {
    "weight_norm": Metric("norm of the weights, without the bias"),
    "bias_weight": Metric("the bias; 0 if the neuron has none"),
    "relative_level": Metric("weight_norm/(d·h) for the hinge loss, weight_norm/√(d·h) for the logistic loss"),
    "noisy_loss": Metric("expected loss on the noisy labels, the objective of SGD, on the test inputs"),
    "test_loss": Metric("mean loss on the true labels of the test inputs"),
    "test_error": Metric("share of test inputs whose output does not have the sign of the true label"),
    "positive_share": Metric("share of test inputs with a positive output"),
    "weights": Metric("each weight", per="input"),
}


def init(lanes: Lanes[Params]) -> State:
    p = lanes.shape
    _test_inputs(lanes)
    w = (2 * lanes.uniform("w", p.dim + p.bias) - 1) * math.sqrt(3)
    return {"w": w * lanes.column("init_scale", 1)}  # l d, and the bias


# Steps are short: without inference mode, bookkeeping for autograd takes a third of their time.
@torch.inference_mode()
def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    w, pull = s["w"].clone(), pull_of(lanes)
    for stretch in stretches(start, stop, numbers=len(lanes) * lanes.shape.dim // 2):
        x = gaussian_inputs(lanes, "x", stretch, lanes.shape.bias)
        up, down = noisy_loss.strengths(lanes, noisy_loss.label_chances(lanes, x[:, :, 0].sign(), stretch))
        for _, at in blocks(stretch):
            _train(w, x[:, at], up[at], down[at], pull)
    return {"w": w}


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    p, x = lanes.shape, _test_inputs(lanes)
    y, f = x[:, :, 0].sign(), torch.bmm(s["w"][:, None], x.mT)[:, 0]
    weights = s["w"][:, : p.dim]
    norm, level = weights.norm(dim=1), p.dim * lanes["learning_rate"]
    return {
        "weight_norm": norm,
        "bias_weight": s["w"][:, p.dim :].sum(dim=1),
        "relative_level": norm / (level if p.loss == "hinge" else level.sqrt()),
        "noisy_loss": noisy_loss.loss_of(lanes, f, noisy_loss.mean_chances(lanes, y)),
        "test_loss": noisy_loss.loss_of(lanes, f, (1 + y) / 2),
        "test_error": (~(f * y > 0)).to(f.dtype).mean(dim=1),
        "positive_share": (f > 0).to(f.dtype).mean(dim=1),
        "weights": weights,
    }


def _train(w: Tensor, x: Tensor, up: tuple[Tensor, ...], down: tuple[Tensor, ...], pull: Pull) -> None:
    """Take one step for each of the samples x (l t d), in order; changes w (l d) in place.

    A step changes the outputs of the later samples by a row of the Gram matrix. w is updated once, at the end.
    """
    gram = torch.bmm(x, x.mT).permute(1, 2, 0).contiguous()  # t t l
    f = torch.bmm(w[:, None], x.mT)[:, 0].T.contiguous()  # t l
    pulls = []
    for t, (f_t, up_t, down_t) in enumerate(zip(f.unbind(), up, down, strict=True)):
        pulls.append(pull(f_t, up_t, down_t))
        f[t + 1 :].addcmul_(gram[t, t + 1 :], pulls[t])
    w += torch.bmm(torch.stack(pulls, dim=1)[:, None], x)[:, 0]


@once
def _test_inputs(lanes: Lanes[Params]) -> Tensor:
    return gaussian_inputs(lanes, "test", range(lanes.shape.test_samples), lanes.shape.bias)


_SMALL = {"dim": 4, "test_samples": 30}
task = Task("misclassification.neuron", Params, METRICS, init, advance, measure, block=BLOCK, small=_SMALL)
