"""Two-layer ReLU networks, N(x) = a·ReLU(Wx + b) + c, trained by SGD with batch size 1, all lanes at once.

The samples of a block of steps are known in advance. The steps of a block update only the preactivations of these
samples, by a column of the samples' Gram matrix. W is updated once per block, by a matrix product. This is the same
iteration, without a pass over W at every step. If neurons have biases, inputs end with a 1 and b is a part of W.
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.noisy_loss import LOSS_HELP, NoisyLoss, pull_of
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State

# Inputs are processed in parts, because their preactivations are by far the largest tensors.
_PART = 128
_gated = torch.ops.aten.threshold_backward.grad_input


@dataclass(frozen=True, kw_only=True)
class TwoLayers(NoisyLoss):
    """Parameters that the tasks with two-layer networks share. Tasks set their own defaults."""

    dim: int = shape(30, at_least=1, help="input dimension d")
    width: int = shape(120, at_least=1, help="neurons m; 4d in the paper")
    loss: str = shape("logistic", choices=("hinge", "logistic"), help=LOSS_HELP)
    trained: str = shape("both", choices=("both", "first"), help="which layers are trained, each with its biases")
    biases: str = shape("both", choices=("both", "hidden", "none"), help="which layers have biases")
    learning_rate: float = knob(1 / 900, above=0, help="learning rate h of SGD")
    init_scale: float = knob(1.0, at_least=0, help="initial first-layer weights are U[−√3, √3] times this")
    output_scale: float = knob(1.0, at_least=0, help="initial output weights are U[−√3, √3] times this")
    bias_scale: float = knob(0.0, at_least=0, help="initial biases are U[−√3, √3] times this")


P = TypeVar("P", bound=TwoLayers)

METRICS = {
    "first_norm": Metric("Frobenius norm of the first layer's weights, without biases"),
    "output_norm": Metric("norm of the output weights"),
    "bias_norm": Metric("norm of the vector of hidden biases"),
    "mean_bias": Metric("mean hidden bias"),
    "max_bias": Metric("largest hidden bias"),
    "output_bias": Metric("output bias"),
    "neuron_norm": Metric("norm of each neuron's weights, without bias", per="neuron"),
    "neuron_bias": Metric("bias of each neuron", per="neuron"),
    "neuron_output_weight": Metric("output weight of each neuron", per="neuron"),
}


@dataclass(frozen=True)
class Response:
    """Outputs and activity of a network on some inputs."""

    outputs: Tensor  # l n
    firing: Tensor  # l m: share of the inputs on which each neuron fires

    def error(self, y: Tensor) -> Tensor:
        """Share of inputs whose output does not have the sign of the label y (l n). An output of 0 is an error."""
        return (~(self.outputs * y > 0)).to(y.dtype).mean(dim=1)


def initial_layers(lanes: Lanes[P]) -> dict[str, Tensor]:
    p = lanes.shape
    w = uniform(lanes, "w", p.dim, p.width) * lanes.column("init_scale")
    b = uniform(lanes, "b", 1, p.width) * lanes.column("bias_scale")
    c = uniform(lanes, "c") * lanes["bias_scale"]
    return {
        "w": w if p.biases == "none" else torch.cat([w, b], dim=1),  # l d m: a column per neuron
        "a": uniform(lanes, "a", p.width) * lanes.column("output_scale", 1),  # l m
        "c": c if p.biases == "both" else torch.zeros_like(c),  # l
    }


def evaluate(s: State, x: Tensor) -> Response:
    """Outputs and firing rates on the inputs x (l n d)."""
    outputs, fired = [], torch.zeros_like(s["a"])
    for part in torch.split(x, _PART, dim=1):
        r = torch.bmm(part, s["w"]).relu_()
        outputs.append(_outputs(s, r))
        fired += r.sign_().sum(dim=1)
    return Response(torch.cat(outputs, dim=1), fired / x.shape[1])


def all_correct(s: State, x: Tensor, y: Tensor) -> Tensor:
    """Whether all of a few inputs x (l n d) have outputs with the sign of y (l n); (l,). Faster than `evaluate`."""
    return (_outputs(s, torch.bmm(x, s["w"]).relu_()) * y > 0).all(dim=1)


def layer_metrics(lanes: Lanes[P], s: State) -> dict[str, Tensor]:
    """The metrics of the weights and biases."""
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
    """Trains the layers of a state in place, one block of samples at a time."""

    def __init__(self, lanes: Lanes[P], s: State) -> None:
        self._w, self._a, self._c = s["w"], s["a"], s["c"]
        self._pull = pull_of(lanes)
        self._both = lanes.shape.trained == "both"
        self._output_bias = lanes.shape.biases == "both"
        self._buffers: dict[int, _Buffers] = {}

    def train(self, x: Tensor, up: tuple[Tensor, ...], down: tuple[Tensor, ...]) -> None:
        """Take one step for each of the samples x (l t d), in order; for `up` and `down` see `strengths`."""
        w, a, c, pull = self._w, self._a, self._c, self._pull
        buffers = _filled(self._buffers, x, w)
        for (r, move, _, later, gram), up_t, down_t in zip(buffers.steps, up, down, strict=True):
            r.relu_()
            f = torch.mul(a, r, out=buffers.row).sum(dim=1)
            g = pull(f.add_(c) if self._output_bias else f, up_t, down_t)
            column = g[:, None]
            pulled = torch.mul(a, column, out=buffers.row)
            if self._both:
                a.addcmul_(r, column)
                if self._output_bias:
                    c.add_(g)
            _gated(pulled, r, 0, grad_input=r)  # g·a_i where neuron i fires, else 0
            later.addcmul_(gram, move)
        w.baddbmm_(x.mT, buffers.h)


class ManyOutputsSgd:
    """Trains a copy of a network with many outputs: W (l d m), b (l m), A (l m k) and c (l k); otherwise like `Sgd`."""

    # Steps are short: without inference mode, bookkeeping for autograd takes a large part of their time.
    @torch.inference_mode()
    def __init__(self, w: Tensor, b: Tensor, a: Tensor, c: Tensor, loss: str, *, both: bool = True) -> None:
        self._w = torch.cat([w, b[:, None]], dim=1)  # for inputs that end with a 1
        self._a = a.mT.clone(memory_format=torch.contiguous_format)  # l k m
        self._c = c[:, :, None].clone()
        self._logistic = loss == "logistic"
        self._both = both
        self._buffers: dict[int, _Buffers] = {}

    @torch.inference_mode()
    def train(self, x: Tensor, targets: Tensor, rates: Tensor) -> None:
        """Take one step for each of the samples x (l t d), in order.

        `targets` (l t k) are the probabilities of the classes in the labels, `rates` (l t) the learning rates.
        """
        w, a, c = self._w, self._a, self._c
        x = functional.pad(x, (0, 1), value=1.0)
        buffers = _filled(self._buffers, x, w)
        g, row = torch.empty_like(c), buffers.row[:, None]
        rates = rates.T[:, :, None, None].contiguous()  # t l 1 1
        up = targets.transpose(0, 1)[..., None] * rates  # t l k 1
        each = zip(buffers.steps, up.unbind(), rates.neg_().unbind(), strict=True)
        for (_, r, column, later, gram), up_t, down_t in each:
            r.relu_()
            f = torch.baddbmm(c, a, column, out=g)
            # The pull on each output: rate·(target - predicted probability).
            torch.addcmul(up_t, f.sigmoid_() if self._logistic else f.softmax(dim=1), down_t, out=g)
            torch.bmm(g.mT, a, out=row)
            if self._both:
                a.baddbmm_(g, r)
                c.add_(g)
            _gated(row, r, 0, grad_input=r)  # the update of each neuron that fires, else 0
            later.addcmul_(gram, r)
        w.baddbmm_(x.mT, buffers.h)

    def layers(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The current W, b, A and c."""
        # Tensors created in inference mode can't be used by autograd; copies can.
        return self._w[:, :-1].clone(), self._w[:, -1].clone(), self._a.mT.contiguous(), self._c[:, :, 0].clone()


class _Buffers:
    """Buffers for the preactivations of some steps, with views for each step. Creating a view takes as long as a sum.

    A step overwrites its preactivations with its updates. Separate buffers would not stay in cache.
    """

    def __init__(self, w: Tensor, steps: int) -> None:
        lanes, _, neurons = w.shape
        self.h = h = w.new_empty(lanes, steps, neurons)
        self.gram = gram = w.new_empty(lanes, steps, steps)
        self.row = w.new_empty(lanes, neurons)
        rows = [h[:, t : t + 1] for t in range(steps)]
        self.steps = [(h[:, t], r, r.mT, h[:, t + 1 :], gram[:, t + 1 :, t : t + 1]) for t, r in enumerate(rows)]


def _filled(buffers: dict[int, _Buffers], x: Tensor, w: Tensor) -> _Buffers:
    """The buffers for as many steps as there are samples x (l t d), with their preactivations and Gram matrix."""
    steps = x.shape[1]
    if steps not in buffers:
        buffers[steps] = _Buffers(w, steps)
    torch.bmm(x, w, out=buffers[steps].h)
    torch.bmm(x, x.mT, out=buffers[steps].gram)
    return buffers[steps]


def _outputs(s: State, r: Tensor) -> Tensor:
    """The outputs (l n) from the hidden activations r (l n m)."""
    return torch.baddbmm(s["c"][:, None, None], s["a"][:, None], r.mT)[:, 0]


def uniform(lanes: Lanes[P], name: str, *size: int) -> Tensor:
    """Uniform numbers with mean 0 and variance 1."""
    return (2 * lanes.uniform(name, *size) - 1) * math.sqrt(3)
