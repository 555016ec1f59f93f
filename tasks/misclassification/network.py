"""Two-layer network under label noise: weights decay to 0, or, with biases, neurons stop firing (Figures 3, 4).

Cornacchia, Hazła, Nachum, Yehudayoff, Figures 3 and 4, and Theorem 1: a small step on a misclassified sample lowers the
norm of every layer of a homogeneous network. The network has two layers, or more (`depth`), and is trained by SGD with
batch size 1. Every step draws a new input from N(0, I). At `noise_rate` 1 (pure label noise) labels are random. The
true label of an input is the sign of its first entry.

Readings: weights start as U[-√3, √3] and biases at 0. The hinge loss has β = 0, as in the theorems. Only then can the
weights vanish; with β = 1 they level off far above 0. Figure 3 has no biases, Figure 4 has them in both layers.
Theorem 1 has them only in the first layer (`biases` "hidden": W acts on (x, 1)); the norm that falls is then
√(first_norm² + bias_norm²). `shrinking_share` tests Theorem 1 on every test input with an output other than 0: its
label is the one that the network does not predict. At the paper's rate 1/d² the effects of Figures 3 and 4 take tens of
millions of steps, at 1/d a million.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mislabel.tasks.blocks import BLOCK, blocks, stretches
from mislabel.tasks.lanes import Lanes, once
from mislabel.tasks.misclassification import two_layers
from mislabel.tasks.misclassification.gaussian import gaussian_inputs
from mislabel.tasks.misclassification.homogeneous import (
    DeepSgd,
    initial_deep_layers,
    layer_norms,
    respond,
    shrinking_share,
)
from mislabel.tasks.misclassification.noisy_loss import label_chances, loss_of, mean_chances, strengths
from mislabel.tasks.misclassification.two_layers import Sgd, TwoLayers, evaluate, layer_metrics
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task


@dataclass(frozen=True, kw_only=True)
class Params(TwoLayers):
    steps: int = shape(1_000_000, at_least=1, help="SGD steps, one new input each")
    depth: int = shape(2, at_least=2, earlier=2, help="layers of weights; more than 2 only without biases, all trained")
    test_samples: int = shape(1000, at_least=1, help="test inputs, on which the network is measured")
    learning_rate: float = knob(1 / 30, above=0, help="learning rate h of SGD; 1/d² in the paper: far more steps")


METRICS = {
    "noisy_loss": Metric("expected loss on the noisy labels, the objective of SGD, on the test inputs"),
    "test_loss": Metric("mean loss on the true labels of the test inputs"),
    "test_error": Metric("share of test inputs whose output does not have the sign of the true label"),
    "mean_output": Metric("mean |N(x)| over the test inputs"),
    "active_neurons": Metric("mean number of neurons that fire on a test input"),
    "active_share": Metric("active_neurons/m"),
    "dead_neurons": Metric("number of neurons that fire on no test input"),
    "shrinking_share": Metric(
        "share of the test inputs with an output other than 0 on which a step with the wrong label lowers the norm of "
        "every layer (Theorem 1)",
        may_be_absent=True,
    ),
    **two_layers.METRICS,
    "neuron_firing": Metric("share of test inputs on which each neuron fires", per="neuron"),
    "layer_norm": Metric("norm of each layer, from first (with its biases) to output", per="layer"),
}


def conflicts(params: Params) -> Iterator[str]:
    if params.depth > 2 and params.biases != "none":
        yield f"biases: a network with {params.depth} layers can't have biases here; set biases to none"
    if params.depth > 2 and params.trained != "both":
        yield f"trained: all layers of a network with {params.depth} layers are trained; set trained to both"


def init(lanes: Lanes[Params]) -> State:
    _test_inputs(lanes)
    return initial_deep_layers(lanes)


# Steps are short: without inference mode, bookkeeping for autograd takes a third of their time.
@torch.inference_mode()
def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    s = {name: tensor.clone() for name, tensor in s.items()}
    sgd = Sgd(lanes, s) if lanes.shape.depth == 2 else DeepSgd(lanes, s)
    for stretch in stretches(start, stop, numbers=len(lanes) * lanes.shape.dim // 2):
        x = gaussian_inputs(lanes, "x", stretch, lanes.shape.biases != "none")
        up, down = strengths(lanes, label_chances(lanes, x[:, :, 0].sign(), stretch))
        for _, at in blocks(stretch):
            sgd.train(x[:, at], up[at], down[at])
    return s


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    x = _test_inputs(lanes)
    y, seen = x[:, :, 0].sign(), evaluate(s, x) if lanes.shape.depth == 2 else respond(s, x)
    active = seen.firing.sum(dim=1)
    return {
        "noisy_loss": loss_of(lanes, seen.outputs, mean_chances(lanes, y)),
        "test_loss": loss_of(lanes, seen.outputs, (1 + y) / 2),
        "test_error": seen.error(y),
        "mean_output": seen.outputs.abs().mean(dim=1),
        "active_neurons": active,
        "active_share": active / lanes.shape.width,
        "dead_neurons": (seen.firing == 0).sum(dim=1),
        "shrinking_share": shrinking_share(lanes, s, x),
        **layer_metrics(lanes, s),
        "neuron_firing": seen.firing,
        "layer_norm": layer_norms(s),
    }


@once
def _test_inputs(lanes: Lanes[Params]) -> Tensor:
    return gaussian_inputs(lanes, "test", range(lanes.shape.test_samples), lanes.shape.biases != "none")


_SMALL = {"dim": 4, "width": 8, "test_samples": 30}
_NAME = "misclassification.network"
task = Task(_NAME, Params, METRICS, init, advance, measure, conflicts=conflicts, block=BLOCK, small=_SMALL)
