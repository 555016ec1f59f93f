"""ReLU networks of any depth, N(x) = a·ReLU(… V·ReLU(Wx)), and how a step on a misclassified input changes their norms.

Theorem 1: N is linear in each layer's weights, so ⟨W, ∂N/∂W⟩ = N for every layer W. A small step on an input with the
wrong sign then lowers the norm of every layer. Networks with more than two layers are trained one sample at a time.
"""

from typing import Any

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.noisy_loss import pull_of
from mislabel.tasks.misclassification.two_layers import Response, initial_layers, uniform
from mislabel.tasks.task import State


def initial_deep_layers(lanes: Lanes[Any]) -> dict[str, Tensor]:
    """The layers of a network with two layers, and for deeper ones V, the layers between them; (l k m m)."""
    s, p = initial_layers(lanes), lanes.shape
    if p.depth > 2:
        s["v"] = uniform(lanes, "v", p.depth - 2, p.width, p.width) * lanes.column("init_scale", 3)
    return s


class DeepSgd:
    """Trains all layers of a state without biases in place."""

    def __init__(self, lanes: Lanes[Any], s: State) -> None:
        self._s, self._pull = s, pull_of(lanes)

    def train(self, x: Tensor, up: tuple[Tensor, ...], down: tuple[Tensor, ...]) -> None:
        """Take one step for each of the samples x (l t d), in order; for `up` and `down` see `strengths`."""
        for x_t, up_t, down_t in zip(x.unbind(dim=1), up, down, strict=True):
            hidden = _activations(self._s, x_t[:, None])
            slopes = _slopes(self._s, hidden)
            f = torch.linalg.vecdot(hidden[-1][:, 0], self._s["a"])
            g = self._pull(f, up_t, down_t)[:, None, None]
            self._s["a"].add_((g * hidden[-1])[:, 0])
            for layer, into, slope in zip(_matrices(self._s), hidden[:-1], slopes, strict=True):
                layer.baddbmm_(into.mT, g * slope)


def respond(s: State, x: Tensor) -> Response:
    """Outputs, and firing rates of the last hidden layer, on the inputs x (l n d)."""
    last = _activations(s, x)[-1]
    outputs = torch.bmm(last, s["a"][:, :, None])[:, :, 0] + s["c"][:, None]
    return Response(outputs, (last > 0).to(last.dtype).mean(dim=1))


def layer_norms(s: State) -> Tensor:
    """The norm of each layer from first to output, the first one with its biases; (l, depth)."""
    layers = [*_matrices(s), s["a"][:, :, None]]
    return torch.stack([layer.flatten(1).norm(dim=1) for layer in layers], dim=1)


def shrinking_share(lanes: Lanes[Any], s: State, x: Tensor) -> Tensor:
    """Share of the inputs x (l n d) on which a step lowers the norm of every layer if the label is wrong; (l,).

    Inputs with output 0 have no wrong label and are left out. Without other inputs the share is nan.
    """
    hidden = _activations(s, x)
    f = torch.bmm(hidden[-1], s["a"][:, :, None])[:, :, 0] + s["c"][:, None]  # l n
    up = (f < 0).T * lanes["learning_rate"]  # n l: the wrong label is the other sign
    g = pull_of(lanes)(f.T, up, up - lanes["learning_rate"]).T  # l n
    along = (s["a"][:, None] * hidden[-1]).sum(dim=2)
    shrinks = _shrinks(g, along, hidden[-1].square().sum(dim=2))
    for layer, into, slope in zip(_matrices(s), hidden[:-1], _slopes(s, hidden), strict=True):
        along = (torch.bmm(into, layer) * slope).sum(dim=2)
        shrinks &= _shrinks(g, along, into.square().sum(dim=2) * slope.square().sum(dim=2))
    wrong = (f != 0).to(f.dtype)
    return (shrinks * wrong).sum(dim=1) / wrong.sum(dim=1)


def _shrinks(g: Tensor, along: Tensor, square: Tensor) -> Tensor:
    """Whether W + g·∂N/∂W is smaller than W, from ⟨W, ∂N/∂W⟩ and ‖∂N/∂W‖²."""
    return 2 * g * along + g.square() * square < 0


def _matrices(s: State) -> list[Tensor]:
    """The layers before the output layer; (l d m), then (l m m)."""
    return [s["w"], *(s["v"].unbind(dim=1) if "v" in s else ())]


def _activations(s: State, x: Tensor) -> list[Tensor]:
    """The inputs of each layer, for the inputs x (l n d) of the network."""
    found = [x]
    for layer in _matrices(s):
        found.append(torch.bmm(found[-1], layer).relu_())
    return found


def _slopes(s: State, hidden: list[Tensor]) -> list[Tensor]:
    """The derivatives of the outputs with respect to the preactivations of each hidden layer; (l n m) each."""
    found = [s["a"][:, None] * (hidden[-1] > 0)]
    for layer, out in zip(_matrices(s)[:0:-1], hidden[-2:0:-1], strict=True):
        found.append(torch.bmm(found[-1], layer.mT) * (out > 0))
    return found[::-1]
