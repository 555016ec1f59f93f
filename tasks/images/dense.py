"""Fully connected networks with hand-written steps of gradient descent.

A step is a few matrix products, so all other work costs as much: recording operations, writing and reading gradients.
Here each product adds its gradient directly to the weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mislabel.tasks.images.layered import LayeredNetwork


class DenseNetwork(LayeredNetwork):
    @torch.no_grad()
    def step(
        self,
        state: Mapping[str, Tensor],
        x: Tensor,
        loss: Callable[[Tensor], Tensor],
        rate: Tensor,
        decay: Tensor | None = None,
        momentum: Tensor | None = None,
        velocity: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Update the weights in place, like `gradients` and `descend` together; inputs are (l b d).

        Inputs may have fewer features than the network if the first layer's weights in this state have fewer, too.
        """
        layers = [name.removesuffix(".weight") for name in self.weights if name.endswith(".weight")]
        inputs = [x]
        for name in layers:
            bias, w = state[f"{name}.bias"][:, None], state[f"{name}.weight"]
            h = torch.baddbmm(bias, inputs[-1], w, alpha=self._factors[name])
            inputs.append(h if name == layers[-1] else h.relu_())
        outputs = inputs.pop().requires_grad_()
        with torch.enable_grad():
            (g,) = torch.autograd.grad(loss(outputs).sum(), outputs)  # l b k
        descent = _Descent(state, rate, decay, momentum, velocity)
        g = descent.begun(g)
        for name, h in zip(reversed(layers), reversed(inputs), strict=True):
            factor, after = self._factors[name], g
            if h is not x:  # uses the weights before the step
                g = torch.bmm(g, state[f"{name}.weight"].mT)
                g = torch.ops.aten.threshold_backward(g if factor == 1 else g.mul_(factor), h, 0)
            descent.place(f"{name}.weight").baddbmm_(h.mT, after, alpha=factor)
            descent.place(f"{name}.bias").add_(after.sum(dim=1))
            descent.end(f"{name}.weight", f"{name}.bias")


@dataclass(frozen=True)
class _Descent:
    """The tensors to which a step adds its gradients: velocities, or the weights, with gradients times -rate."""

    state: Mapping[str, Tensor]
    rate: Tensor
    decay: Tensor | None
    momentum: Tensor | None
    velocity: Mapping[str, Tensor] | None

    def begun(self, g: Tensor) -> Tensor:
        """The derivatives with respect to the outputs, scaled for backpropagation."""
        return g if self.velocity is not None else g * -self.rate[:, None, None]

    def place(self, name: str) -> Tensor:
        w = self.state[name]
        if self.velocity is None:
            return w if self.decay is None else w.mul_(1 - _column(self.rate * self.decay, w))
        assert self.momentum is not None, "a velocity needs a momentum"
        v = self.velocity[name].mul_(_column(self.momentum, w))
        return v if self.decay is None else v.addcmul_(w, _column(self.decay, w))

    def end(self, *names: str) -> None:
        if self.velocity is not None:
            for name in names:
                w = self.state[name]
                w.addcmul_(self.velocity[name], _column(self.rate, w), value=-1)


def _column(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape([-1, *[1] * (like.dim() - 1)])
