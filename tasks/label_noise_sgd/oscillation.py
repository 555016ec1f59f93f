"""Oscillation of the second layer: random output weights, independent of the data, shrink the neurons (Lemma 3.3).

Zhang, Zhou, Wang, Han, Huang, Suzuki, Yan, the simulation of section 3.2. f(x) = aᵀWx. Every a_i is a Markov chain on
{-η^¼, 0, η^¼}: from ±η^¼ it goes to 0, from 0 to either with equal probability (Equation 6). W is trained by gradient
descent with these a (Equation 5); labels have no noise. The mean squared norm of the neurons falls below √η within 1/η²
steps, if m = 1/√η (Lemma 3.3).

Reading: Equation 5 is full-batch gradient descent, as the text calls it "the gradient descent update rule". Then it
takes about ln(1/η)/(2·η^1.5) steps, and the expectation over the chains is known exactly, given initial weights and
data. We tried one input per step as well: without label noise the same holds for η up to 0.03 (d = 20); with it, norms
level off near η·d·σ²/2, which is above √η unless η is below 4/(dσ²)².

The chains don't depend on W. About half of the neurons move at even steps, the others at odd steps, and the two groups
don't interact. So two steps are computed at once, with random signs that are drawn for many steps in advance.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from mislabel.tasks.label_noise_sgd.inputs import SAMPLES_HELP, Inputs, drawn_inputs
from mislabel.tasks.lanes import Lanes, once
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task
from mislabel.tasks.training import Training

BLOCK = 64
# A random number has 52 bits: this many of them are signs.
_SIGNS = 32


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    steps: int = shape(10_000, at_least=1, help="steps of full-batch gradient descent on W; the lemma has 1/η²")
    samples: int = shape(0, at_least=0, help=SAMPLES_HELP)
    dim: int = shape(20, at_least=1, help="input dimension d")
    width: int = shape(10, at_least=1, help="neurons m; the lemma has 1/√η")
    step_size: float = knob(0.01, above=0, help="learning rate η of gradient descent; output weights are ±η^¼ or 0")
    target_norm: float = knob(0.3, at_least=0, help="norm of the interpolator θ*")
    init_scale: float = knob(1.0, above=0, help="factor on the NTK initialization: w_i entries N(0, 1/d)")


METRICS = {
    "mean_square_norm": Metric("mean squared norm of the neurons w_i"),
    "expected_square_norm": Metric("expectation of mean_square_norm over the chains, given initial weights and data"),
    "mean_norm": Metric("mean norm of the neurons"),
    "max_norm": Metric("largest norm of a neuron"),
    "train_loss": Metric("mean of ½(f − y)² over the inputs"),
    "target_distance": Metric("‖θ − θ*‖, θ = Wᵀa"),
    "small_step": Metric(f"first step with mean_square_norm ≤ √η; checked every {BLOCK} steps", may_be_absent=True),
    "theory_small_step": Metric("ln(1/η)/(2·η^1.5): step at which a squared norm of 1 has an expectation of √η"),
    "lemma_small_step": Metric("1/η², the bound of Lemma 3.3 on small_step"),
    "neuron_norm": Metric("norm of each neuron w_i", per="neuron"),
}


@dataclass(frozen=True)
class Data:
    variance: Tensor  # l d: variances of the inputs along their principal axes
    target: Tensor  # l d: θ* in these coordinates
    start: Tensor  # l m d: neurons at step 0 in these coordinates
    jumps: Tensor  # l 2 m: η^¼ for the neurons that move at even (odd) steps, else 0


def init(lanes: Lanes[Params]) -> State:
    step = torch.zeros(len(lanes), dtype=torch.int64, device=lanes.device)
    return {"w": _data(lanes).start.clone(), "step": step, "small_step": lanes.absent()}


# Steps are short: without inference mode, bookkeeping for autograd takes a third of their time.
@torch.inference_mode()
def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    data, rate, small = _data(lanes), lanes["step_size"], lanes["step_size"].sqrt()
    # The lane axis is last here: sums over neurons are then sums of long rows, twice as fast as batched products.
    w, jumps = s["w"].permute(1, 2, 0).contiguous(), data.jumps.permute(1, 2, 0).contiguous()
    pull = (rate[:, None] * data.variance).T.contiguous()  # d l
    goal = pull * data.target.T
    small_step = s["small_step"].clone()
    for begin, end in pairwise(sorted({start, stop, *range(start - start % BLOCK + BLOCK, stop, BLOCK)})):
        signs = _signs(lanes, range(begin // 2, (end + 1) // 2)).permute(1, 2, 0).contiguous()  # pairs m l
        a = signs[:, None] * jumps  # pairs 2 m l: even step, odd step
        if begin % 2:
            a[0, 0] = 0
        if end % 2:
            a[-1, 1] = 0
        _train(w, a, pull, goal)
        if end % BLOCK == 0:
            now = (w.square().sum(dim=(0, 1)) / len(w) <= small) & small_step.isnan()
            small_step[now] = end
    return {"w": w.permute(2, 0, 1).contiguous(), "step": torch.full_like(s["step"], stop), "small_step": small_step}


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    data, w, step = _data(lanes), s["w"], int(s["step"][0])
    a = _signs(lanes, range(step // 2, step // 2 + 1))[:, 0] * data.jumps[:, step % 2]
    missing = (a[:, :, None] * w).sum(dim=1) - data.target
    norm, rate = w.norm(dim=2), lanes["step_size"].double()
    return {
        "mean_square_norm": norm.square().mean(dim=1),
        "expected_square_norm": _expected_square_norm(data, rate, step),
        "mean_norm": norm.mean(dim=1),
        "max_norm": norm.amax(dim=1),
        "train_loss": (data.variance * missing.square()).sum(dim=1) / 2,
        "target_distance": missing.norm(dim=1),
        "small_step": s["small_step"],
        "theory_small_step": -rate.log() / (2 * rate**1.5),
        "lemma_small_step": rate**-2,
        "neuron_norm": norm,
    }


def _train(w: Tensor, a: Tensor, pull: Tensor, goal: Tensor) -> None:
    """Take pairs of steps with output weights a (pairs 2 m l); changes w (m d l) in place."""
    weighted = torch.empty(2, *w.shape, dtype=w.dtype, device=w.device)
    theta = torch.empty_like(weighted[:, 0])  # 2 d l
    move = torch.empty_like(theta)  # -η times the gradient by θ
    even, odd = move
    for weights in a[:, :, :, None]:  # 2 m 1 l
        torch.mul(w, weights, out=weighted)
        torch.sum(weighted, 1, out=theta)
        torch.addcmul(goal, theta, pull, value=-1, out=move)
        w.addcmul_(weights[0], even)
        w.addcmul_(weights[1], odd)


def _expected_square_norm(data: Data, rate: Tensor, step: int) -> Tensor:
    """The mean squared norm at this step, in expectation over the signs; (l,).

    Let q be the sum of squares along an axis of variance h over the k neurons that move at a step. As their signs are
    independent of each other and of W, q becomes q·(1 - 2ηc²h + η²c⁴h²k) + η²c²h²k·θ*², where c² = √η.
    """
    moved = data.jumps.double() > 0  # l 2 m
    square = moved.double() @ data.start.double().square()  # l 2 d
    h, neurons = data.variance.double()[:, None], moved.sum(dim=2, keepdim=True)
    pull = rate[:, None, None] ** 1.5 * h
    decay = 1 - 2 * pull + pull.square() * neurons
    gain = rate[:, None, None] * pull * h * neurons * data.target.double()[:, None].square()
    level = torch.where(decay == 1, square, gain / (1 - decay))
    times = torch.tensor([(step + 1) // 2, step // 2], device=rate.device)[:, None]
    return (level + (square - level) * decay**times).sum(dim=(1, 2)) / data.start.shape[1]


def _signs(lanes: Lanes[Params], pairs: range) -> Tensor:
    """For every neuron, the sign of its output weight at the step of each pair at which it is not 0; (l, pairs, m)."""
    m = lanes.shape.width
    words = lanes.integers("signs", 1 << _SIGNS, math.ceil(m / _SIGNS), steps=pairs)
    bits = (words[..., None] >> torch.arange(_SIGNS, device=lanes.device)) & 1
    return bits.flatten(2)[:, :, :m].to(lanes.dtype).mul_(2).sub_(1)


@once
def _data(lanes: Lanes[Params]) -> Data:
    p = lanes.shape
    inputs: Inputs = drawn_inputs(lanes, p.samples, p.dim)
    direction = lanes.normal("target", 1, p.dim)
    target = direction * lanes.column("target_norm") / direction.norm(dim=2, keepdim=True)
    w = lanes.normal("w", p.width, p.dim) * lanes.column("init_scale") * p.dim**-0.5
    even = lanes.uniform("even", p.width) < 0.5
    jumps = torch.stack([even, ~even], dim=1) * lanes.column("step_size") ** 0.25
    return Data(inputs.variance, torch.bmm(target, inputs.axes)[:, 0], torch.bmm(w, inputs.axes), jumps)


_SMALL = {"samples": 12, "dim": 4, "width": 5}
task = Task("label_noise_sgd.oscillation", Params, METRICS, init, advance, measure, block=BLOCK, small=_SMALL)
