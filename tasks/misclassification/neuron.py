"""One neuron under label noise: the norm of its weights falls steadily, then levels off near zero.

Cornacchia, Hazła, Nachum, Yehudayoff, Figure 2 and Theorem 2. N(x) = w·x, without an activation, trained by SGD on one
sample per step, fresh from N(0, I). At `noise_rate` 1 (pure label noise) labels are random; below it, the true label of
an input is the sign of its first entry. Under pure noise and from far away, the norm falls by h/√(2π) per step.

Readings: weights start as U[-√3, √3]; the neuron has no bias, but may (as in the text's proof in expectation). Where
what noise adds in a step, h²d·E[L'²], equals what misclassification takes, the level is √(2π)/4·d·h for the hinge with
β = 0 and √(d·h/2) for the logistic loss; the text says d·h for both in Section 6 and d·√h for the latter in Theorem 2.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.blocks import BLOCK, blocks, stretches
from mislabel.tasks.misclassification.gaussian import gaussian_inputs
from mislabel.tasks.misclassification.noisy_loss import (
    LOSSES,
    Pull,
    label_chances,
    loss_of,
    mean_chances,
    pull_of,
    strengths,
)
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task
from mislabel.tasks.training import Training


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    steps: int = shape(30_000, at_least=1, help="training steps, one sample each")
    spacing: str = shape("linear", choices=("linear", "log"), help="how the measured steps are spaced")
    dim: int = shape(30, at_least=1, help="input dimension d")
    test_samples: int = shape(1000, at_least=1, help="inputs on which losses and errors are measured")
    loss: str = shape("hinge", choices=LOSSES, help="logistic loss (cross entropy), or hinge loss with hinge_offset")
    bias: bool = shape(False, help="whether the neuron has a bias")
    noise_rate: float = knob(1.0, between=(0, 1), help="chance p that a step's label is replaced by a random one")
    smoothing: float = knob(0.0, between=(0, 1), help="label smoothing: the same in expectation")
    learning_rate: float = knob(1 / 900, above=0, help="learning rate h; 1/d² in the paper")
    hinge_offset: float = knob(0.0, at_least=0, help="offset β of the hinge loss")
    init_scale: float = knob(1.0, at_least=0, help="initial weights, and bias, are U[-√3, √3] times this")


METRICS = {
    "weight_norm": Metric("norm of the weights, without the bias"),
    "bias_weight": Metric("the bias; 0 where there is none"),
    "relative_level": Metric("weight_norm over d·h for the hinge, over √(d·h) for the logistic loss"),
    "noisy_loss": Metric("mean loss over all noise: what SGD descends on"),
    "test_loss": Metric("mean loss on the true labels"),
    "test_error": Metric("share of inputs that are not on the side of their true label"),
    "positive_share": Metric("share of inputs on which the output is positive"),
    "weights": Metric("each weight", per="input"),
}


def init(lanes: Lanes[Params]) -> State:
    p = lanes.shape
    _test_inputs(lanes)
    w = (2 * lanes.uniform("w", p.dim + p.bias) - 1) * math.sqrt(3)
    return {"w": w * lanes.column("init_scale", 1)}  # l d, and the bias


# Steps are short: without inference mode, a third of their time goes into what autograd might need.
@torch.inference_mode()
def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    w, pull = s["w"].clone(), pull_of(lanes)
    for stretch in stretches(start, stop, numbers=len(lanes) * lanes.shape.dim // 2):
        x = _inputs(lanes, "x", stretch)
        up, down = strengths(lanes, label_chances(lanes, x[:, :, 0].sign(), stretch))
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
        "noisy_loss": loss_of(lanes, f, mean_chances(lanes, y)),
        "test_loss": loss_of(lanes, f, (1 + y) / 2),
        "test_error": (~(f * y > 0)).to(f.dtype).mean(dim=1),
        "positive_share": (f > 0).to(f.dtype).mean(dim=1),
        "weights": weights,
    }


def _train(w: Tensor, x: Tensor, up: tuple[Tensor, ...], down: tuple[Tensor, ...], pull: Pull) -> None:
    """One step for each of the samples x (l t d), in order; moves w (l d) in place.

    Steps work on the samples' outputs, which a step moves by a row of their Gram matrix; w is moved at the end.
    """
    gram = torch.bmm(x, x.mT).permute(1, 2, 0).contiguous()  # t t l
    f = torch.bmm(w[:, None], x.mT)[:, 0].T.contiguous()  # t l
    pulls = []
    for t, (f_t, up_t, down_t) in enumerate(zip(f.unbind(), up, down, strict=True)):
        pulls.append(pull(f_t, up_t, down_t))
        f[t + 1 :].addcmul_(gram[t, t + 1 :], pulls[t])
    w += torch.bmm(torch.stack(pulls, dim=1)[:, None], x)[:, 0]


def _test_inputs(lanes: Lanes[Params]) -> Tensor:
    made: Tensor = lanes.once("test", lambda: _inputs(lanes, "test", range(lanes.shape.test_samples)))
    return made


def _inputs(lanes: Lanes[Params], name: str, which: range) -> Tensor:
    return gaussian_inputs(lanes, name, lanes.shape.dim, which, ending=lanes.shape.bias)


task = Task(
    name="misclassification.neuron",
    version=1,
    params=Params,
    metrics=METRICS,
    init=init,
    advance=advance,
    measure=measure,
    block=BLOCK,
    small={"dim": 4, "test_samples": 30},
)
