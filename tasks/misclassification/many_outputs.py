"""One hidden layer of ReLU neurons and many outputs, trained by SGD on one sample per step, all lanes at once.

N(x) = ReLU(xW + b)A + c. The iteration is that of `two_layers`: the steps of a block work on the preactivations of its
samples alone, which a step moves by a column of the samples' Gram matrix, and W is moved once per block. A pass over W
at every step would take most of the time.
"""

import torch
from torch import Tensor

LOSSES = ("logistic", "softmax")
BLOCK = 64
_gated = torch.ops.aten.threshold_backward.grad_input


class Sgd:
    """Trains a copy of the layers W (l d m), b (l m), A (l m k) and c (l k), a block of samples at a time."""

    # Steps are short: without inference mode, a good part of their time goes into what autograd might need.
    @torch.inference_mode()
    def __init__(self, w: Tensor, b: Tensor, a: Tensor, c: Tensor, loss: str, *, both: bool = True) -> None:
        self._w = torch.cat([w, b[:, None]], dim=1)  # of inputs that end with a 1
        self._a = a.mT.clone(memory_format=torch.contiguous_format)  # l k m
        self._c = c[:, :, None].clone()
        self._logistic = loss == "logistic"
        self._both = both
        self._rooms: dict[int, _Room] = {}

    @torch.inference_mode()
    def train(self, x: Tensor, targets: Tensor, rates: Tensor) -> None:
        """One step for each of the samples x (l t d), in order.

        Targets (l t k) are the chances of each label, learning rates are (l t).
        """
        w, a, c, count = self._w, self._a, self._c, x.shape[1]
        if count not in self._rooms:
            self._rooms[count] = _Room(w, a, count)
        room = self._rooms[count]
        room.x[:, :, :-1] = x
        x = room.x
        torch.bmm(x, w, out=room.h)
        torch.bmm(x, x.mT, out=room.gram)
        g, row, rates = room.g, room.row, rates.T[:, :, None, None].contiguous()  # t l 1 1
        up = targets.transpose(0, 1)[..., None] * rates  # t l k 1
        for (r, column, later, gram), up_t, down_t in zip(room.steps, up.unbind(), rates.neg_().unbind(), strict=True):
            r.relu_()
            f = torch.baddbmm(c, a, column, out=g)
            # The pull on each output: rate·(target - the chance that the network gives it).
            torch.addcmul(up_t, f.sigmoid_() if self._logistic else f.softmax(dim=1), down_t, out=g)
            torch.bmm(g.mT, a, out=row)
            if self._both:
                a.baddbmm_(g, r)
                c.add_(g)
            _gated(row, r, 0, grad_input=r)  # what moves each neuron that fires, else 0
            later.addcmul_(gram, r)
        w.baddbmm_(x.mT, room.h)

    def layers(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """W, b, A and c as they are now."""
        # What is made in inference mode can't be trained otherwise; its copies can.
        return self._w[:, :-1].clone(), self._w[:, -1].clone(), self._a.mT.contiguous(), self._c[:, :, 0].clone()


class _Room:
    """Room for some steps' preactivations, which give way to the steps' moves, with views for each step."""

    def __init__(self, w: Tensor, a: Tensor, steps: int) -> None:
        lanes, outputs, neurons = a.shape
        self.x = w.new_ones(lanes, steps, w.shape[1])
        self.h = h = w.new_empty(lanes, steps, neurons)
        self.gram = gram = w.new_empty(lanes, steps, steps)
        self.row = w.new_empty(lanes, 1, neurons)
        self.g = w.new_empty(lanes, outputs, 1)
        rows = [h[:, t : t + 1] for t in range(steps)]
        self.steps = [(r, r.mT, h[:, t + 1 :], gram[:, t + 1 :, t : t + 1]) for t, r in enumerate(rows)]
