"""Networks with one hidden ReLU layer and many outputs, trained by SGD with batch size 1, all lanes at once.

N(x) = ReLU(xW + b)A + c. The iteration is that of `two_layers`: the steps of a block update only the preactivations of
the block's samples, by a column of the samples' Gram matrix, and W is updated once per block. A pass over W at every
step would take most of the time.
"""

import torch
from torch import Tensor

LOSSES = ("logistic", "softmax")
BLOCK = 64
_gated = torch.ops.aten.threshold_backward.grad_input


class Sgd:
    """Trains a copy of the layers W (l d m), b (l m), A (l m k) and c (l k), a block of samples at a time."""

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
        w, a, c, count = self._w, self._a, self._c, x.shape[1]
        if count not in self._buffers:
            self._buffers[count] = _Buffers(w, a, count)
        buffers = self._buffers[count]
        buffers.x[:, :, :-1] = x
        x = buffers.x
        torch.bmm(x, w, out=buffers.h)
        torch.bmm(x, x.mT, out=buffers.gram)
        g, row, rates = buffers.g, buffers.row, rates.T[:, :, None, None].contiguous()  # t l 1 1
        up = targets.transpose(0, 1)[..., None] * rates  # t l k 1
        each = zip(buffers.steps, up.unbind(), rates.neg_().unbind(), strict=True)
        for (r, column, later, gram), up_t, down_t in each:
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
    """Buffers for the preactivations of some steps, which steps overwrite with their updates; views for each step."""

    def __init__(self, w: Tensor, a: Tensor, steps: int) -> None:
        lanes, outputs, neurons = a.shape
        self.x = w.new_ones(lanes, steps, w.shape[1])
        self.h = h = w.new_empty(lanes, steps, neurons)
        self.gram = gram = w.new_empty(lanes, steps, steps)
        self.row = w.new_empty(lanes, 1, neurons)
        self.g = w.new_empty(lanes, outputs, 1)
        rows = [h[:, t : t + 1] for t in range(steps)]
        self.steps = [(r, r.mT, h[:, t + 1 :], gram[:, t + 1 :, t : t + 1]) for t, r in enumerate(rows)]
