"""Standard basis inputs, pure label noise: large steps kill all neurons, small ones leave half active (Theorems 3, 4).

Cornacchia, Hazła, Nachum, Yehudayoff, Theorems 3 and 4. N(x) = V·ReLU(Wx) without biases; half of V is 1 and half -1.
Only W is trained, from U[-1, 1], by SGD with batch size 1 on the hinge loss with β = 0. The inputs are e_1, …, e_d.
Every |N(e_i)| falls below m·h and stays there (Theorem 3). At h ≥ 1 no neuron fires on any input in the end; at
h ≤ 2/m about half of them still fire on each input (Theorem 4; m = 2k). At `noise_rate` 1 labels are random. The true
label of each input is a random sign, fixed before training.

A step changes only the column of W that belongs to its input.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from mislabel.tasks.blocks import stretches
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification import noisy_loss
from mislabel.tasks.misclassification.noisy_loss import NoisyLoss, pull_of
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task

_gated = torch.ops.aten.threshold_backward


@dataclass(frozen=True, kw_only=True)
class Params(NoisyLoss):
    steps: int = shape(20_000, at_least=1, help="SGD steps, one sample each, drawn with replacement")
    dim: int = shape(30, at_least=1, help="input dimension d; the inputs are the d standard basis vectors")
    width: int = shape(200, at_least=2, help="neurons m = 2k; output weights are fixed, half 1 and half −1")
    learning_rate: float = knob(0.01, above=0, help="learning rate h of SGD; Theorem 4 has h ≥ 1 and h ≤ 1/k")
    init_scale: float = knob(1.0, at_least=0, help="initial first-layer weights are U[−1, 1] times this")


def conflicts(params: Params) -> Iterable[str]:
    if params.width % 2:
        yield f"width: {params.width} neurons can't be split into two equal halves; make it even"


METRICS = {
    "max_output": Metric("largest |N(e_i)| over the inputs"),
    "mean_output": Metric("mean |N(e_i)| over the inputs"),
    "output_bound": Metric("m·h, the bound of Theorem 3 on every |N(e_i)|"),
    "bounded_share": Metric("share of inputs with |N(e_i)| below output_bound"),
    "active_neurons": Metric("mean number of neurons that fire on an input"),
    "active_share": Metric("active_neurons/m"),
    "min_active_neurons": Metric("smallest number of neurons that fire on an input"),
    "max_active_neurons": Metric("largest number of neurons that fire on an input"),
    "dead_neurons": Metric("neurons that fire on no input"),
    "first_norm": Metric("Frobenius norm of the first layer"),
    "noisy_loss": Metric("expected loss on the noisy labels, the objective of SGD, mean over the inputs"),
    "train_error": Metric("share of inputs whose output does not have the sign of the true label"),
    "input_active_neurons": Metric("number of neurons that fire on each input", per="input"),
    "input_output": Metric("N(e_i) of each input", per="input"),
    "neuron_norm": Metric("norm of each neuron's weights", per="neuron"),
    "neuron_firing": Metric("share of inputs on which each neuron fires", per="neuron"),
}


def init(lanes: Lanes[Params]) -> State:
    w = 2 * lanes.uniform("w", lanes.shape.dim, lanes.shape.width) - 1
    return {"w": w * lanes.column("init_scale")}  # l d m: a row per input


# Steps are short: without inference mode, bookkeeping for autograd takes a third of their time.
@torch.inference_mode()
def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    d, m = lanes.shape.dim, lanes.shape.width
    w, pull, y = s["w"].clone(), pull_of(lanes), _labels(lanes)
    rows, v = w.view(-1, m), _output_weights(lanes).repeat(len(lanes), 1)
    first = torch.arange(len(lanes), device=w.device)[:, None] * d
    for stretch in stretches(start, stop, numbers=len(lanes)):
        chosen = lanes.integers("input", d, steps=stretch)  # l t
        up, down = noisy_loss.strengths(lanes, noisy_loss.label_chances(lanes, y.gather(1, chosen), stretch))
        for own, up_t, down_t in zip((chosen + first).T.contiguous(), up, down, strict=True):
            h = rows.index_select(0, own)  # l m
            live = _gated(v, h, 0)  # v_i where neuron i fires, else 0
            g = pull(torch.linalg.vecdot(live, h), up_t, down_t)
            rows.index_copy_(0, own, h.addcmul_(live, g[:, None]))
    return {"w": w}


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    w, y = s["w"], _labels(lanes)
    f = torch.linalg.vecdot(w.relu(), _output_weights(lanes))  # l d
    fires = (w > 0).to(w.dtype)
    active, bound = fires.sum(dim=2), lanes.shape.width * lanes["learning_rate"]
    return {
        "max_output": f.abs().amax(dim=1),
        "mean_output": f.abs().mean(dim=1),
        "output_bound": bound,
        "bounded_share": (f.abs() < bound[:, None]).to(f.dtype).mean(dim=1),
        "active_neurons": active.mean(dim=1),
        "active_share": active.mean(dim=1) / lanes.shape.width,
        "min_active_neurons": active.amin(dim=1),
        "max_active_neurons": active.amax(dim=1),
        "dead_neurons": (fires.sum(dim=1) == 0).sum(dim=1),
        "first_norm": w.flatten(1).norm(dim=1),
        "noisy_loss": noisy_loss.loss_of(lanes, f, noisy_loss.mean_chances(lanes, y)),
        "train_error": (~(f * y > 0)).to(f.dtype).mean(dim=1),
        "input_active_neurons": active,
        "input_output": f,
        "neuron_norm": w.norm(dim=1),
        "neuron_firing": fires.mean(dim=1),
    }


def _labels(lanes: Lanes[Params]) -> Tensor:
    return lanes.sign("label", lanes.shape.dim)


def _output_weights(lanes: Lanes[Params]) -> Tensor:
    half = torch.ones(lanes.shape.width // 2, dtype=lanes.dtype, device=lanes.device)
    return torch.cat([half, -half])


_SMALL = {"dim": 4, "width": 8}
task = Task("misclassification.basis", Params, METRICS, init, advance, measure, conflicts=conflicts, small=_SMALL)
