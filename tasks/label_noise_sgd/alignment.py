"""Phase II alone: from small weights, gradient descent aligns a linear network's neurons with θ*, then fits θ*.

Zhang, Zhou, Wang, Han, Huang, Suzuki, Yan, section 3.3. f(x) = aᵀWx. Both layers are trained by full-batch gradient
descent without label noise, from the beginning of phase II: every ‖w_i‖ and |a_i| is √η. Neurons align with θ*
(Lemma 3.4), and θ = Wᵀa converges to θ* (Lemma 3.5).

Readings: alignment is |cosine|. Neurons start in random directions, with output weights of random signs. Lemma 3.5
alone assumes perfect alignment, w_i = a_i·θ*/‖θ*‖ (`start: aligned`). The lemmas' T₂ = ln(1/η)/‖θ*‖ is a slip: weights
grow by a factor 1 + η‖θ*‖ per step, so they hardly change in T₂ steps. The lemmas hold with T₂/η, when the weights have
grown by 1/η or reached θ*; t₃ is counted from there. The components orthogonal to θ* neither grow nor fall. So neurons
stay less aligned if their initial weights are larger (init_scale) or if more neurons share θ*.

Two exact reformulations make a step cheap. The inputs are represented along their principal axes. The neurons (the rows
(a_i, w_i)) are rotated, so that only the d + 1 directions that they span are trained.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.label_noise_sgd.inputs import SAMPLES_HELP, Inputs, drawn_inputs
from mislabel.tasks.lanes import Lanes, once
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task
from mislabel.tasks.training import Training

BLOCK = 64
ALIGNED = 0.9


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    steps: int = shape(5000, at_least=1, help="steps of full-batch gradient descent")
    samples: int = shape(0, at_least=0, help=SAMPLES_HELP)
    dim: int = shape(20, at_least=1, help="input dimension d")
    width: int = shape(20, at_least=1, help="neurons m; the theory assumes at least 1/√η")
    start: str = shape("random", choices=("random", "aligned"), help="initial directions of neurons: random, or ±θ*")
    step_size: float = knob(0.01, above=0, below=1, help="learning rate η of gradient descent, for both layers")
    target_norm: float = knob(0.5, above=0, help="norm of the interpolator θ*")
    init_scale: float = knob(1.0, above=0, help="every initial ‖w_i‖ and |a_i| is this times √η")


METRICS = {
    "train_loss": Metric("mean of ½(f − y)² over the inputs"),
    "target_distance": Metric("‖θ − θ*‖, θ = Wᵀa"),
    "mean_alignment": Metric("mean over the neurons of |cosine| between w_i and θ*"),
    "min_alignment": Metric("smallest |cosine| of a neuron"),
    "large_alignment": Metric("smallest |cosine| of neurons with norm at least √η; absent without", may_be_absent=True),
    "mean_norm": Metric("mean norm of the neurons w_i"),
    "max_norm": Metric("largest norm of a neuron"),
    "mean_output_weight": Metric("mean |a_i|"),
    "aligned_step": Metric(
        f"first step at which mean_alignment exceeds {ALIGNED}; checked every {BLOCK} steps, and after step 1024 "
        "at intervals of 1/16 to 1/8 of the steps so far",
        may_be_absent=True,
    ),
    "printed_step": Metric("T₂ = ln(1/η)/‖θ*‖, as printed in Lemma 3.4"),
    "growth_step": Metric("T₂/η, the step for which Lemma 3.4 is tested; 0 if neurons start aligned"),
    "convergence_step": Metric("t₃ = growth_step + ln(1/η)/(η‖θ*‖²), the step for which Lemma 3.5 is tested"),
    "printed_alignment": Metric("mean_alignment at printed_step, rounded up; absent before", may_be_absent=True),
    "growth_alignment": Metric("min_alignment at growth_step, rounded up; absent before", may_be_absent=True),
    "converged_alignment": Metric("large_alignment at convergence_step, rounded up; absent before", may_be_absent=True),
    "converged_distance": Metric("target_distance at convergence_step, rounded up; absent before", may_be_absent=True),
    "neuron_norm": Metric("norm of each neuron w_i", per="neuron"),
    "neuron_alignment": Metric("|cosine| between each neuron w_i and θ*", per="neuron"),
    "neuron_output_weight": Metric("output weight a_i of each neuron", per="neuron"),
}

# Metrics that are recorded once, at a step of the theory: which metric, at which step.
_NOTED = {
    "printed_alignment": ("mean_alignment", "printed_step"),
    "growth_alignment": ("min_alignment", "growth_step"),
    "converged_alignment": ("large_alignment", "convergence_step"),
    "converged_distance": ("target_distance", "convergence_step"),
}


@dataclass(frozen=True)
class Data:
    variance: Tensor  # l d: variances of the inputs along their principal axes
    target: Tensor  # l d: θ* in these coordinates
    turn: Tensor  # l m k: rotation from the k trained neurons to the network's neurons, k = min(m, d + 1)
    start_a: Tensor  # l k: trained output weights at step 0
    start_w: Tensor  # l k d: trained neurons at step 0


def init(lanes: Lanes[Params]) -> State:
    data = _data(lanes)
    state = {"a": data.start_a, "w": data.start_w, **dict.fromkeys(["aligned_step", *_NOTED], lanes.absent())}
    return state | _events(lanes, state, 0)


# Steps are short: without inference mode, bookkeeping for autograd takes a third of their time.
@torch.inference_mode()
def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    data, state = _data(lanes), dict(s)
    # The lane axis is last here: sums over neurons are then sums of long rows, faster than batched products.
    a, w = s["a"].T[:, None].contiguous(), s["w"].permute(1, 2, 0).contiguous()  # k 1 l, k d l
    pull = (lanes["step_size"][:, None] * data.variance).T.contiguous()  # d l
    goal = pull * data.target.T
    noted = {int(step) for times in _times(lanes).values() for step in times.ceil().tolist() if start < step <= stop}
    checked = {step for step in range(start - start % BLOCK + BLOCK, stop + 1, BLOCK) if _is_checked(step)}
    for begin, end in pairwise(sorted({start, stop} | noted | checked)):
        _train(a, w, pull, goal, end - begin)
        state |= {"a": a[:, 0].T.contiguous(), "w": w.permute(2, 0, 1).contiguous()}
        if end in noted | checked:
            state |= _events(lanes, state, end)
    return state


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    data = _data(lanes)
    a, w = _neurons(data, s)
    missing = (s["a"][:, :, None] * s["w"]).sum(dim=1) - data.target
    norm = w.norm(dim=2)
    alignment = (torch.bmm(data.target[:, None], w.mT)[:, 0] / (norm * data.target.norm(dim=1, keepdim=True))).abs()
    large = torch.where(norm >= lanes.column("step_size", 1).sqrt(), alignment, torch.inf).amin(dim=1)
    return {
        "train_loss": (data.variance * missing.square()).sum(dim=1) / 2,
        "target_distance": missing.norm(dim=1),
        "mean_alignment": alignment.mean(dim=1),
        "min_alignment": alignment.amin(dim=1),
        "large_alignment": torch.where(large.isfinite(), large, torch.nan),
        "mean_norm": norm.mean(dim=1),
        "max_norm": norm.amax(dim=1),
        "mean_output_weight": a.abs().mean(dim=1),
        **_times(lanes),
        **{name: s[name] for name in ("aligned_step", *_NOTED)},
        "neuron_norm": norm,
        "neuron_alignment": alignment,
        "neuron_output_weight": a,
    }


def _train(a: Tensor, w: Tensor, pull: Tensor, goal: Tensor, steps: int) -> None:
    """Take `steps` steps; changes a (k 1 l) and w (k d l) in place."""
    product, turned = torch.empty_like(w), torch.empty_like(a)
    theta, move = torch.empty_like(pull), torch.empty_like(pull)  # move: -η times the gradient by θ
    for _ in range(steps):
        torch.mul(w, a, out=product)
        torch.sum(product, 0, out=theta)
        torch.addcmul(goal, theta, pull, value=-1, out=move)
        torch.mul(w, move, out=product)
        torch.sum(product, 1, keepdim=True, out=turned)
        w.addcmul_(a, move)
        a.add_(turned)


def _is_checked(step: int) -> bool:
    return step % max(BLOCK, (1 << step.bit_length()) // 16) == 0


def _events(lanes: Lanes[Params], s: State, step: int) -> dict[str, Tensor]:
    """The recorded metrics after this step, with those recorded before."""
    metrics, times = measure(lanes, s), _times(lanes)
    noted = {
        name: torch.where(times[time].ceil() == step, metrics[metric].double(), s[name])
        for name, (metric, time) in _NOTED.items()
    }
    now = (metrics["mean_alignment"] > ALIGNED) & s["aligned_step"].isnan() & _is_checked(step)
    return {**noted, "aligned_step": torch.where(now, step, s["aligned_step"])}


def _times(lanes: Lanes[Params]) -> dict[str, Tensor]:
    rate, norm = lanes["step_size"].double(), lanes["target_norm"].double()
    printed = -rate.log() / norm
    growth = printed / rate if lanes.shape.start == "random" else torch.zeros_like(printed)
    return {"printed_step": printed, "growth_step": growth, "convergence_step": growth + printed / (rate * norm)}


def _neurons(data: Data, s: State) -> tuple[Tensor, Tensor]:
    """The network's layers in the coordinates of the inputs' principal axes: a (l m) and w (l m d)."""
    return torch.bmm(s["a"][:, None], data.turn.mT)[:, 0], torch.bmm(data.turn, s["w"])


@once
def _data(lanes: Lanes[Params]) -> Data:
    p = lanes.shape
    inputs: Inputs = drawn_inputs(lanes, p.samples, p.dim)
    target = functional.normalize(lanes.normal("target", 1, p.dim) @ inputs.axes, dim=2)  # l 1 d
    size = lanes.column("init_scale") * lanes.column("step_size").sqrt()
    a = lanes.sign("a", p.width, 1) * size  # l m 1
    if p.start == "random":
        w = functional.normalize(lanes.normal("w", p.width, p.dim) @ inputs.axes, dim=2) * size
    else:
        w = a * target
    turn, rows = torch.linalg.qr(torch.cat([a, w], dim=2))  # l m k, l k d+1
    return Data(
        variance=inputs.variance,
        target=target[:, 0] * lanes.column("target_norm", 1),
        turn=turn.contiguous(),
        start_a=rows[:, :, 0].contiguous(),
        start_w=rows[:, :, 1:].contiguous(),
    )


_SMALL = {"samples": 12, "dim": 4, "width": 8, "step_size": 0.05}
task = Task("label_noise_sgd.alignment", Params, METRICS, init, advance, measure, block=BLOCK, small=_SMALL)
