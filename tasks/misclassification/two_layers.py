"""Two layers of ReLU neurons, N(x) = a·ReLU(Wx + b) + c, trained by SGD on one sample per step, all lanes at once.

The samples of a block of steps are known beforehand. Its steps work on the preactivations of these samples alone, which
a step moves by a column of the samples' Gram matrix, and W is moved once per block, by a product of matrices: the same
iteration without a pass over W at every step. Where neurons have biases, inputs end with a 1 and b is a part of W.
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.noisy_loss import LOSSES, pull_of
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State
from mislabel.tasks.training import Training

# Inputs are looked at in parts: their preactivations are by far the largest tensors.
_PART = 128
_gated = torch.ops.aten.threshold_backward.grad_input


@dataclass(frozen=True, kw_only=True)
class TwoLayers(Training):
    """Parameters that the tasks of two layers share; they give their own defaults."""

    dim: int = shape(30, at_least=1, help="input dimension d")
    width: int = shape(120, at_least=1, help="neurons m; 4d in the paper")
    loss: str = shape("logistic", choices=LOSSES, help="logistic loss (cross entropy), or hinge loss with hinge_offset")
    trained: str = shape("both", choices=("both", "first"), help="which layers train, each with its biases")
    biases: str = shape("both", choices=("both", "hidden", "none"), help="which layers have biases")
    noise_rate: float = knob(1.0, between=(0, 1), help="chance p that a step's label is replaced by a random one")
    smoothing: float = knob(0.0, between=(0, 1), help="label smoothing: the same in expectation")
    learning_rate: float = knob(1 / 900, above=0, help="learning rate h")
    hinge_offset: float = knob(0.0, at_least=0, help="offset β of the hinge loss")
    init_scale: float = knob(1.0, at_least=0, help="initial first layer is U[-√3, √3] times this")
    output_scale: float = knob(1.0, at_least=0, help="initial output weights are U[-√3, √3] times this")
    bias_scale: float = knob(0.0, at_least=0, help="initial biases are U[-√3, √3] times this")


P = TypeVar("P", bound=TwoLayers)

METRICS = {
    "first_norm": Metric("Frobenius norm of the first layer, without biases"),
    "output_norm": Metric("norm of the output weights"),
    "bias_norm": Metric("norm of the neurons' biases"),
    "mean_bias": Metric("mean of the neurons' biases"),
    "max_bias": Metric("largest bias of a neuron"),
    "output_bias": Metric("bias of the output"),
    "neuron_norm": Metric("norm of each neuron's weights, without bias", per="neuron"),
    "neuron_bias": Metric("bias of each neuron", per="neuron"),
    "neuron_output_weight": Metric("output weight of each neuron", per="neuron"),
}


@dataclass(frozen=True)
class Sight:
    """What a network makes of some inputs."""

    outputs: Tensor  # l n
    firing: Tensor  # l m: share of the inputs on which each neuron fires

    def error(self, y: Tensor) -> Tensor:
        """Share of the inputs that are not on the side of their label y (l n); an output of 0 is on none."""
        return (~(self.outputs * y > 0)).to(y.dtype).mean(dim=1)


def initial_layers(lanes: Lanes[P]) -> dict[str, Tensor]:
    p = lanes.shape
    w = _spread(lanes, "w", p.dim, p.width) * lanes.column("init_scale")
    b = _spread(lanes, "b", 1, p.width) * lanes.column("bias_scale")
    c = _spread(lanes, "c") * lanes["bias_scale"]
    return {
        "w": w if p.biases == "none" else torch.cat([w, b], dim=1),  # l d m: a column per neuron
        "a": _spread(lanes, "a", p.width) * lanes.column("output_scale", 1),  # l m
        "c": c if p.biases == "both" else torch.zeros_like(c),  # l
    }


def look(s: State, x: Tensor) -> Sight:
    """The outputs and firing neurons on the inputs x (l n d)."""
    outputs, fired = [], torch.zeros_like(s["a"])
    for part in torch.split(x, _PART, dim=1):
        r = torch.bmm(part, s["w"]).relu_()
        outputs.append(_outputs(s, r))
        fired += r.sign_().sum(dim=1)
    return Sight(torch.cat(outputs, dim=1), fired / x.shape[1])


def all_right(s: State, x: Tensor, y: Tensor) -> Tensor:
    """Whether all of a few inputs x (l n d) are on the side of their label y (l n), in less time than a look; (l,)."""
    return (_outputs(s, torch.bmm(x, s["w"]).relu_()) * y > 0).all(dim=1)


def sizes(lanes: Lanes[P], s: State) -> dict[str, Tensor]:
    """The metrics of the layers themselves."""
    d = lanes.shape.dim
    weights, biases = s["w"][:, :d], s["w"][:, d:].sum(dim=1)
    return {
        "first_norm": weights.flatten(1).norm(dim=1),
        "output_norm": s["a"].norm(dim=1),
        "bias_norm": biases.norm(dim=1),
        "mean_bias": biases.mean(dim=1),
        "max_bias": biases.amax(dim=1),
        "output_bias": s["c"],
        "neuron_norm": weights.norm(dim=1),
        "neuron_bias": biases,
        "neuron_output_weight": s["a"],
    }


class Sgd:
    """Trains a state's layers in place, a block of samples at a time."""

    def __init__(self, lanes: Lanes[P], s: State) -> None:
        self._w, self._a, self._c = s["w"], s["a"], s["c"]
        self._pull = pull_of(lanes)
        self._both = lanes.shape.trained == "both"
        self._output_bias = lanes.shape.biases == "both"
        self._rooms: dict[int, _Room] = {}

    def train(self, x: Tensor, up: tuple[Tensor, ...], down: tuple[Tensor, ...]) -> None:
        """One step for each of the samples x (l t d), in order, whose labels pull `up` and `down`."""
        w, a, c, pull = self._w, self._a, self._c, self._pull
        if len(up) not in self._rooms:
            self._rooms[len(up)] = _Room(w, len(up))
        room = self._rooms[len(up)]
        torch.bmm(x, w, out=room.h)
        torch.bmm(x, x.mT, out=room.gram)
        for (r, later, gram, move), up_t, down_t in zip(room.steps, up, down, strict=True):
            r.relu_()
            f = torch.mul(a, r, out=room.row).sum(dim=1)
            g = pull(f.add_(c) if self._output_bias else f, up_t, down_t)
            column = g[:, None]
            pulled = torch.mul(a, column, out=room.row)
            if self._both:
                a.addcmul_(r, column)
                if self._output_bias:
                    c.add_(g)
            _gated(pulled, r, 0, grad_input=r)  # g·a_i where neuron i fires, else 0
            later.addcmul_(gram, move)
        w.baddbmm_(x.mT, room.h)


class _Room:
    """Room for some steps' preactivations, with views for each step: making one takes as long as a sum.

    A step's preactivations give way to its moves. Rooms of their own for these would not stay in cache.
    """

    def __init__(self, w: Tensor, steps: int) -> None:
        lanes, _, neurons = w.shape
        self.h = h = w.new_empty(lanes, steps, neurons)
        self.gram = gram = w.new_empty(lanes, steps, steps)
        self.row = w.new_empty(lanes, neurons)
        self.steps = [(h[:, t], h[:, t + 1 :], gram[:, t + 1 :, t : t + 1], h[:, t : t + 1]) for t in range(steps)]


def _outputs(s: State, r: Tensor) -> Tensor:
    """The outputs (l n) of neurons that fire as much as r (l n m)."""
    return torch.baddbmm(s["c"][:, None, None], s["a"][:, None], r.mT)[:, 0]


def _spread(lanes: Lanes[P], name: str, *size: int) -> Tensor:
    """Uniform numbers of mean 0 and variance 1."""
    return (2 * lanes.uniform(name, *size) - 1) * math.sqrt(3)
