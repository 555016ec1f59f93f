"""SGD with label noise on a two-layer linear network: neurons shrink (phase I), then align with θ* (phase II).

Zhang, Zhou, Wang, Han, Huang, Suzuki, Yan. f(x) = aᵀWx. Both layers are trained by SGD with batch size 1; samples are
drawn with replacement. The label is y + σ or y - σ, with a new sign at every step. The loss is ½(f − y)² (Equation 2),
so the gradient is the residual times ∂f. In phase I the norms fall (Theorem 3.2); in phase II the neurons align with θ*
(Lemma 3.4).

Readings: alignment is |cosine|, because neurons align with -θ* as well. In the text, phase II begins when every ‖w_i‖
and |a_i| is at most √η (`all_small_step`). At feasible sizes this does not happen, because some neurons must represent
θ*. Here phase II begins when the mean alignment exceeds one half. `escape_step` follows Definition 3.1: the first
neuron that leaves. The theorem speaks of all neurons (`full_escape_step`).

Two exact reformulations make a step cheap. A rotation of the neurons (of the rows (a_i, w_i)) changes neither f nor the
iteration, so only the d + 1 directions that they span are trained. And the samples of a block of steps are known in
advance: the steps of a block update only the preactivations of these samples, by a row of the samples' Gram matrix, and
W is updated once per block, by a matrix product.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mislabel.tasks.blocks import blocks, cut, lane_rows
from mislabel.tasks.corruption import signed
from mislabel.tasks.lanes import Lanes, once
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task
from mislabel.tasks.training import Training

BLOCK = 16
# A draw has a fixed cost per call, so numbers are drawn for this many steps at once.
_DRAWN = 64 * BLOCK
# Each point takes as much memory as all neurons have output weights.
_PROBED = 200
_PROBES = f"over the first {_PROBED} training points and both signs of the noise"
_CHECKS = "checked every 16 steps, and after step 512 at intervals of 1/32 to 1/16 of the steps so far"


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    steps: int = shape(200_000, at_least=1, help="SGD steps, one sample each, drawn with replacement")
    samples: int = shape(500, at_least=1, help="training points n")
    dim: int = shape(50, at_least=1, help="input dimension d")
    width: int = shape(100, at_least=2, help="neurons m")
    sigma: float = knob(1.0, at_least=0, help="σ: at every step, +σ or −σ (equally likely) is added to the label")
    step_size: float = knob(0.01, above=0, help="learning rate η of SGD, for both layers")
    target_norm: float = knob(0.3, above=0, help="norm of the interpolator θ*; the theory assumes at most m^(−1/4)")
    init_scale: float = knob(1.0, above=0, help="factor on the NTK initialization: w_i ~ N(0, 1/d), a_i ~ N(0, 1/m)")


METRICS = {
    "train_loss": Metric("mean of ½(f − y)² over the training points, with clean labels"),
    "test_loss": Metric("½‖θ − θ*‖², the expected loss over inputs N(0, I), with clean labels"),
    "target_distance": Metric("‖θ − θ*‖, θ = Wᵀa"),
    "mean_norm": Metric("mean norm of the neurons w_i"),
    "max_norm": Metric("largest norm of a neuron w_i"),
    "mean_alignment": Metric("mean over the neurons of |cosine| between w_i and θ*"),
    "mean_output_weight": Metric("mean |a_i|"),
    "max_output_weight": Metric("largest |a_i|"),
    "max_distance": Metric("largest distance ‖w_i(t) − w_i(0)‖ of a neuron from initialization"),
    "lazy": Metric("1 while every neuron is within 1/√m of its initial value (Definition 3.1), else 0"),
    "escaped_share": Metric("share of neurons further than 1/√m from their initial value"),
    "escape_step": Metric(f"first step with a neuron further than 1/√m from its start; {_CHECKS}", may_be_absent=True),
    "full_escape_step": Metric(f"first step at which all neurons are (Theorem 3.2); {_CHECKS}", may_be_absent=True),
    "theory_escape_step": Metric("T₁ = 384·√(log m)/(σ²η²√m) of Theorem 3.2; absent if σ = 0", may_be_absent=True),
    "all_small_step": Metric(f"first step at which every ‖w_i‖ and |a_i| is at most √η; {_CHECKS}", may_be_absent=True),
    "phase_two_step": Metric(f"first step at which mean_alignment exceeds 1/2; {_CHECKS}", may_be_absent=True),
    "min_diminishing_share": Metric(
        f"probability of ΔW_i ≤ −(σ/4)² in the next step (Lemma C.3), smallest over the neurons; {_PROBES}"
    ),
    "neuron_norm": Metric("norm of each neuron w_i", per="neuron"),
    "neuron_alignment": Metric("|cosine| between each neuron w_i and θ*", per="neuron"),
    "neuron_output_weight": Metric("output weight a_i of each neuron", per="neuron"),
}
_EVENTS = ("escape_step", "full_escape_step", "all_small_step", "phase_two_step")


@dataclass(frozen=True)
class Data:
    x: Tensor  # l n d
    y: Tensor  # l n
    target: Tensor  # l d
    turn: Tensor  # l m k: rotation from the k trained neurons to the network's neurons, k = min(m, d + 1)
    start_a: Tensor  # l k: trained output weights at step 0
    start_w: Tensor  # l k d: trained neurons at step 0
    start: Tensor  # l m d: the network's neurons at step 0


def init(lanes: Lanes[Params]) -> State:
    data = _data(lanes)
    return {"a": data.start_a, "w": data.start_w, **dict.fromkeys(_EVENTS, lanes.absent())}


# Steps are short: without inference mode, bookkeeping for autograd takes a third of their time.
@torch.inference_mode()
def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    data = _data(lanes)
    s = {name: tensor.clone() for name, tensor in s.items()}
    for drawn in cut(start, stop, _DRAWN):
        chosen = lanes.integers("sample", lanes.shape.samples, steps=drawn)  # l t
        labels = data.y.gather(1, chosen) + signed(lanes, "noise", lanes["sigma"], steps=drawn)
        for block, at in blocks(drawn, BLOCK):
            _train(s["a"], s["w"], lane_rows(data.x, chosen[:, at]), labels[:, at], lanes["step_size"])
            if _is_checked(block.stop):
                _note_events(lanes, data, s, block.stop)
    return s


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    data = _data(lanes)
    a, w = _neurons(data, s)
    theta = _combined(s["a"], s["w"])
    missing = theta - data.target
    norm = w.norm(dim=2)
    alignment = _alignment(data, w, norm)
    distance = (w - data.start).norm(dim=2)
    escaped = (distance > lanes.shape.width**-0.5).to(lanes.dtype)
    return {
        "train_loss": (_combined(theta, data.x.mT) - data.y).square().mean(dim=1) / 2,
        "test_loss": missing.square().sum(dim=1) / 2,
        "target_distance": missing.norm(dim=1),
        "mean_norm": norm.mean(dim=1),
        "max_norm": norm.amax(dim=1),
        "mean_alignment": alignment.mean(dim=1),
        "mean_output_weight": a.abs().mean(dim=1),
        "max_output_weight": a.abs().amax(dim=1),
        "max_distance": distance.amax(dim=1),
        "lazy": 1 - escaped.amax(dim=1),
        "escaped_share": escaped.mean(dim=1),
        **{name: s[name] for name in _EVENTS},
        "theory_escape_step": _theory_escape_step(lanes),
        "min_diminishing_share": _diminishing_share(lanes, data, a, w),
        "neuron_norm": norm,
        "neuron_alignment": alignment,
        "neuron_output_weight": a,
    }


def _train(a: Tensor, w: Tensor, x: Tensor, labels: Tensor, step_size: Tensor) -> None:
    """Take one SGD step for each sample x (l t d) of the block, in order; changes a (l k) and w (l k d) in place."""
    gram = (x @ x.mT).permute(1, 2, 0).contiguous()[..., None]  # t t l 1
    h = (x @ w.mT).transpose(0, 1).contiguous()  # t l k: preactivations; a sample's are up to date when its step comes
    moves = torch.empty_like(h)
    goals = (labels * step_size[:, None]).T.contiguous()  # t l
    for t, (h_t, move, gram_t, goal) in enumerate(zip(h, moves, gram, goals, strict=True)):
        # -η times the residual
        rate = torch.addcmul(goal, torch.linalg.vecdot(a, h_t), step_size, value=-1)[:, None]
        torch.mul(a, rate, out=move)
        h[t + 1 :].addcmul_(gram_t[t + 1 :], move)
        a.addcmul_(h_t, rate)
    w.baddbmm_(moves.permute(1, 2, 0), x)


def _is_checked(step: int) -> bool:
    return step % max(BLOCK, (1 << step.bit_length()) // 32) == 0


def _note_events(lanes: Lanes[Params], data: Data, s: dict[str, Tensor], step: int) -> None:
    a, w = _neurons(data, s)
    away = (w - data.start).norm(dim=2) > lanes.shape.width**-0.5
    norm, small = w.norm(dim=2), lanes["step_size"].sqrt()[:, None]
    for name, event in {
        "escape_step": away.any(dim=1),
        "full_escape_step": away.all(dim=1),
        "all_small_step": ((norm <= small) & (a.abs() <= small)).all(dim=1),
        "phase_two_step": _alignment(data, w, norm).mean(dim=1) > 0.5,
    }.items():
        s[name][event & s[name].isnan()] = step


@once
def _data(lanes: Lanes[Params]) -> Data:
    p = lanes.shape
    x = lanes.normal("x", p.samples, p.dim)
    direction = lanes.normal("target", p.dim)
    target = direction * (lanes["target_norm"] / direction.norm(dim=1))[:, None]
    a = lanes.normal("a", p.width, 1) * p.width**-0.5
    w = lanes.normal("w", p.width, p.dim) * p.dim**-0.5
    turn, rows = torch.linalg.qr(torch.cat([a, w], dim=2) * lanes.column("init_scale"))  # l m k, l k d+1
    turn, start_a, start_w = turn.contiguous(), rows[:, :, 0].contiguous(), rows[:, :, 1:].contiguous()
    return Data(x, _combined(target, x.mT), target, turn, start_a, start_w, start=torch.bmm(turn, start_w))


def _neurons(data: Data, s: State) -> tuple[Tensor, Tensor]:
    """The network's layers: a (l m) and w (l m d)."""
    return _combined(s["a"], data.turn.mT), torch.bmm(data.turn, s["w"])


def _alignment(data: Data, w: Tensor, norm: Tensor) -> Tensor:
    cosine: Tensor = _combined(data.target, w.mT) / (norm * data.target.norm(dim=1, keepdim=True))
    return cosine.abs()


def _combined(weights: Tensor, rows: Tensor) -> Tensor:
    """The sum of the rows (l k d), each times its weight (l k); (l, d)."""
    # A row times a matrix: a batched product of a matrix and a column takes ten times as long.
    return torch.bmm(weights[:, None], rows)[:, 0]


def _diminishing_share(lanes: Lanes[Params], data: Data, a: Tensor, w: Tensor) -> Tensor:
    """How often ΔW_i = −r²((xᵀw_i)² − a_i²‖x‖²) ≤ −(σ/4)² in the next step, smallest over the neurons; r: residual."""
    x, sigma = data.x[:, :_PROBED], lanes.column("sigma", 1)
    error = _combined(_combined(a, w), x.mT) - data.y[:, :_PROBED]  # l n
    squares = torch.stack([error - sigma, error + sigma]).square()[..., None]  # 2 l n 1: squared residuals
    gap = (x @ w.mT).square() - x.square().sum(dim=2, keepdim=True) * a.square()[:, None]  # l n m
    falls = torch.stack([square * gap >= (sigma[:, None] / 4).square() for square in squares])  # 2 l n m
    return falls.to(lanes.dtype).mean(dim=(0, 2)).amin(dim=1)


def _theory_escape_step(lanes: Lanes[Params]) -> Tensor:
    m = lanes.shape.width
    noise = (lanes["sigma"] * lanes["step_size"]).double().square()
    return torch.where(noise > 0, 384 * math.log(m) ** 0.5 / (noise * m**0.5), torch.nan)


_SMALL = {"samples": 20, "dim": 4, "width": 8}
task = Task("label_noise_sgd.linear", Params, METRICS, init, advance, measure, block=BLOCK, small=_SMALL)
