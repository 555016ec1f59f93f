"""Clean-priority learning. Claims on angles at initialization, and on what is learned when.

Late curves are spiky, so that all but the start is read off running means over a sixth of the frames, three at least.
The *turn* of a run is where the residual of its noisy segment is largest. A run that was not trained to the end has no
story, so that a claim on it stays undecided.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from mislabel.analysis.claims.claim import Claim, Region, at_least, at_most, near
from mislabel.analysis.statistics.estimate import Estimate, at_end, mean_of
from mislabel.analysis.sweep import Sweep

_DEGREES = 180 / math.pi
# Running means are over such a part of the frames.
_WINDOW = 1 / 6


def _at_512(sweep: Sweep, activation: str) -> Estimate:
    """Largest deviation from the closed form at width 512, in degrees: the worst number of layers."""
    runs = sweep.read("runs", ["hidden_layers", "max_deviation"], {"width": 512, "activation": activation})
    by_depth = (mean_of(rows * _DEGREES) for _, rows in runs.groupby("hidden_layers")["max_deviation"])
    return max(by_depth, key=lambda estimate: estimate.mean)


def _shrinks(sweep: Sweep) -> Estimate:
    """Deviation of ReLU networks at the largest width over that at the smallest, by seed."""
    widths = sorted(set(sweep.read("runs", ["width"])["width"]))
    wide, narrow = (
        at_end(sweep, "max_deviation", {"width": width, "activation": "relu"}) for width in (widths[-1], widths[0])
    )
    return mean_of(wide / narrow)


def _expected_ratio(sweep: Sweep) -> float:
    """Deviations of sums over m neurons are of order 1/√m."""
    widths = sorted(set(sweep.read("runs", ["width"])["width"]))
    return float((widths[0] / widths[-1]) ** 0.5)


def _told(sweep: Sweep, name: str) -> pd.DataFrame:
    """A number of each run's story, by cell and seed."""
    needed = ["run_id", "cell_id", "seed", "step", *_NEEDED]
    curves = sweep.read("curves", needed).sort_values("step")
    runs = sweep.read("runs", ["run_id", "status"])
    done = set(runs.loc[runs["status"] == "done", "run_id"])
    rows = [
        {
            "cell_id": run["cell_id"].iloc[0],
            "seed": run["seed"].iloc[0],
            "value": _STORY[name](_Run(run)) if run_id in done else math.nan,
        }
        for run_id, run in curves.groupby("run_id")
    ]
    return pd.DataFrame(rows)


class _Run:
    """A run's curves: as measured at the start, as running means later on."""

    def __init__(self, curves: pd.DataFrame) -> None:
        self.first: pd.Series = curves.iloc[0]
        later = curves[_NEEDED].iloc[1:]
        window = max(3, round(_WINDOW * len(later)) | 1)  # odd, as it is centred
        self.smooth: pd.DataFrame = later.rolling(window, center=True, min_periods=1).mean()
        self.turn: pd.Series = self.smooth.iloc[int(np.argmax(self.smooth["noisy_residual"]))]
        self.last: pd.Series = self.smooth.iloc[-1]

    def rise(self, metric: str) -> float:
        """From the start to the turn."""
        return float(self.turn[metric] - self.first[metric])

    def fall(self, metric: str) -> float:
        """From the turn to the end."""
        return float(self.turn[metric] - self.last[metric])

    def missed(self) -> float:
        """By how much test error at the turn is over its minimum, as a share of how much it rises until the end.

        Where it never rises, the minimum is missed wholly.
        """
        best = self.smooth["test_error"].min()
        rise = self.last["test_error"] - best
        return float((self.turn["test_error"] - best) / rise) if rise > 0 else 1.0


_NEEDED = [
    "clean_error",
    "noisy_error",
    "clean_residual",
    "noisy_residual",
    "clean_loss",
    "noisy_loss",
    "test_error",
    "alpha",
    "mean_angle",
]
_STORY: dict[str, Callable[[_Run], float]] = {
    "clean error falls": lambda run: -run.rise("clean_error"),
    "clean residual falls": lambda run: -run.rise("clean_residual"),
    "clean loss falls": lambda run: -run.rise("clean_loss"),
    "noisy error rises": lambda run: run.rise("noisy_error"),
    "noisy residual rises": lambda run: run.rise("noisy_residual"),
    "noisy loss rises": lambda run: run.rise("noisy_loss"),
    "noisy error falls": lambda run: run.fall("noisy_error"),
    "noisy loss falls": lambda run: run.fall("noisy_loss"),
    "alpha at the turn": lambda run: float(run.turn["alpha"]),
    "alpha grows": lambda run: float(run.turn["alpha"] / run.first["alpha"]),
    "angle at the turn": lambda run: float(run.turn["mean_angle"] * _DEGREES),
    "missed": _Run.missed,
}


def _worst(sweep: Sweep, name: str, holds: Region) -> Estimate:
    """The estimate of the cell in which the statement holds least."""
    cells = [mean_of(rows["value"]) for _, rows in _told(sweep, name).groupby("cell_id")]
    return min(cells, key=lambda estimate: min(estimate.low - holds.low, holds.high - estimate.high))


def _story(
    experiment: str,
    figure: str,
    bounds: dict[str, Region],
    *,
    losses: bool = False,
    where: str = "",
    large_only: Sequence[str] = (),
) -> tuple[Claim, ...]:
    """The claims that are made of every setting, with bounds that suit it; some not of its small version."""

    def claim(paper: str, quantity: str, name: str) -> Claim:
        holds = bounds.get(name, _BOUNDS[name])
        return Claim(
            experiment,
            f"{figure}: {paper}",
            quantity + where,
            holds,
            lambda sweep: _worst(sweep, name, holds),
            at_any_size=name not in large_only,
        )

    early = "from the start to the turn"
    told = [
        claim("in the early stage clean error falls", f"fall of clean error {early}", "clean error falls"),
        claim("in the early stage noisy error rises", f"rise of noisy error {early}", "noisy error rises"),
        claim(
            "in the early stage the clean residual falls",
            f"fall of E|f - y| on clean samples {early}",
            "clean residual falls",
        ),
        claim("in the early stage the noisy residual rises", f"rise of E|f - y| {early}", "noisy residual rises"),
        claim(
            "later noisy labels are learned too", "fall of noisy error from the turn to the end", "noisy error falls"
        ),
        claim("α grows in the early stage (Theorem 4.5)", "α at the turn over that at the start", "alpha grows"),
        claim("the early stage ends where α reaches 1", "α at the turn", "alpha at the turn"),
        claim(
            "until then the noisy gradient of a class is opposite to the clean one",
            "angle between them at the turn in degrees, mean over classes",
            "angle at the turn",
        ),
        claim(
            "test error has its minimum near the turn",
            "test error at the turn minus its minimum, over its rise from there to the end",
            "missed",
        ),
    ]
    if losses:
        told += [
            claim("the clean loss falls in the early stage (Figure 10)", f"its fall {early}", "clean loss falls"),
            claim("the noisy loss rises in the early stage (Figure 10)", f"its rise {early}", "noisy loss rises"),
            claim("the noisy loss falls later (Figure 10)", "its fall from the turn to the end", "noisy loss falls"),
        ]
    return tuple(told)


_BOUNDS = {
    "clean error falls": at_least(0.2),
    "noisy error rises": at_least(0.2),
    "clean residual falls": at_least(0.05),
    "noisy residual rises": at_least(0.05),
    "noisy error falls": at_least(0.1),
    "alpha grows": at_least(1.2),
    "alpha at the turn": Region(0.8, 1.25),
    "angle at the turn": at_least(120.0),
    "missed": at_most(0.3),
    "clean loss falls": at_least(0.1),
    "noisy loss rises": at_least(0.1),
    "noisy loss falls": at_least(0.1),
}
# A noisy label is one of nine: before training, nine tenths are missed already.
_OF_TEN = {"noisy error rises": at_least(0.02)}
# MNIST's 60,000 images are then learned slowly: ten epochs see the beginning.
_OF_TEN_EPOCHS = {**_OF_TEN, "noisy error falls": at_least(0.01)}
# With few images of ten classes, α reaches 1 in some classes, and in their sum long after the turn.
_NOT_OF_FEW = ("alpha at the turn",)


def _classes(text: str) -> int:
    return len(text.split(",")) if text else 10


def _start_ratio_error(sweep: Sweep) -> Estimate:
    """α_0 over what the theory has, in the cell that is farthest off."""
    runs = sweep.read("runs", ["run_id", "noise_rate", "classes"])
    curves = sweep.read("curves", ["run_id", "cell_id", "step", "alpha"]).merge(runs, on="run_id")
    start = curves[curves["step"] == 0]
    others = start["classes"].map(_classes) - 1
    ratio = start["alpha"] / (start["noise_rate"] / (1 - start["noise_rate"]) / others)
    cells = [mean_of(rows) for _, rows in ratio.groupby(start["cell_id"])]
    return max(cells, key=lambda estimate: max(abs(estimate.low - 1), abs(estimate.high - 1)))


def _start_angle(sweep: Sweep) -> Estimate:
    """The angle between noisy and clean gradient of a class at the start, in degrees; the cell where it is smallest."""
    curves = sweep.read("curves", ["cell_id", "step", "mean_angle"], {"step": 0})
    cells = [mean_of(rows * _DEGREES) for _, rows in curves.groupby("cell_id")["mean_angle"]]
    return min(cells, key=lambda estimate: estimate.low)


def _sample_angles(sweep: Sweep, kind: str) -> dict[int, np.ndarray]:
    """θ_g of samples at the start by seed, in degrees: a row per class."""
    arrays = sweep.read("arrays", ["seed", "step", "metric", "values"], {"metric": f"{kind}_angles", "step": 0})
    classes = _classes(str(sweep.read("runs", ["classes"])["classes"].iloc[0]))
    rows = zip(arrays["seed"], arrays["values"], strict=True)
    return {int(seed): np.asarray(values, dtype=float).reshape(classes, -1) * _DEGREES for seed, values in rows}


def _mean_angle(sweep: Sweep, kind: str) -> Estimate:
    """Mean θ_g of clean or noisy samples, in the class where they are the least near to what they should be."""
    worst = np.max if kind == "clean" else np.min
    return mean_of([float(worst(np.nanmean(angles, axis=1))) for angles in _sample_angles(sweep, kind).values()])


def _asymmetry(sweep: Sweep) -> Estimate:
    """By how much mean θ_g of noisy samples is off from 180° minus that of clean ones, in the worst class."""
    clean, noisy = _sample_angles(sweep, "clean"), _sample_angles(sweep, "noisy")
    sums = [np.nanmean(clean[seed], axis=1) + np.nanmean(noisy[seed], axis=1) for seed in clean]
    return mean_of([float(np.abs(each - 180).max()) for each in sums])


def _in_order(sweep: Sweep, low: str, high: str) -> Estimate:
    """Share of pairs of samples of which the first kind has the smaller θ_g, on the logit where that is smallest."""
    lower, higher = _sample_angles(sweep, low), _sample_angles(sweep, high)
    return mean_of([float((lower[seed][:, :, None] < higher[seed][:, None]).mean(axis=(1, 2)).min()) for seed in lower])


def _orthogonal_part(sweep: Sweep) -> Estimate:
    """sin θ_g of other classes' samples together, on the logit where it is smallest."""
    arrays = sweep.read("arrays", ["step", "metric", "values"], {"metric": "class_others_angle", "step": 0})
    return mean_of([float(np.sin(np.asarray(values, dtype=float)).min()) for values in arrays["values"]])


# With random weights outputs start near 1/k, and the more classes, the more they differ from it.
_TWO_CLASSES, _TEN_CLASSES = near(1.0, 0.3), Region(0.5, 2.0)


def _at_start(experiment: str, figure: str, ratio: Region) -> tuple[Claim, ...]:
    return (
        Claim(
            experiment,
            f"{figure}: at initialization the noisy gradient of a class is opposite to the clean one",
            "angle between them in degrees, mean over classes",
            at_least(150.0),
            _start_angle,
            theory=lambda sweep: 180.0,
        ),
        Claim(
            experiment,
            f"{figure}: at initialization α is near δ/(1-δ), over k-1 with k classes",
            "α over that",
            ratio,
            _start_ratio_error,
            theory=lambda sweep: 1.0,
        ),
    )


def _histograms(experiment: str, figure: str) -> tuple[Claim, ...]:
    return (
        Claim(
            experiment,
            f"{figure}: gradients of clean samples are concentrated at small angles",
            "mean θ_g of clean samples in degrees, worst class",
            at_most(60.0),
            lambda sweep: _mean_angle(sweep, "clean"),
        ),
        Claim(
            experiment,
            f"{figure}: gradients of noisy samples are concentrated at large angles",
            "mean θ_g of noisy samples in degrees, worst class",
            at_least(120.0),
            lambda sweep: _mean_angle(sweep, "noisy"),
        ),
        Claim(
            experiment,
            f"{figure}: noisy samples are symmetric to clean ones",
            "mean θ_g of clean and of noisy samples together, off from 180°, worst class",
            at_most(10.0),
            _asymmetry,
            theory=lambda sweep: 0.0,
        ),
    )


CLAIMS = (
    Claim(
        "clean-priority/fig2",
        "Figure 2: ReLU networks of width 512 follow the closed form of infinite width",
        "largest deviation of θ_h over the circle in degrees, worst depth",
        at_most(10.0),
        lambda sweep: _at_512(sweep, "relu"),
        theory=lambda sweep: 0.0,
    ),
    Claim(
        "clean-priority/fig2",
        "Figure 2: linear networks of width 512 have θ_h = θ_d",
        "largest deviation of θ_h over the circle in degrees, worst depth",
        at_most(10.0),
        lambda sweep: _at_512(sweep, "linear"),
        theory=lambda sweep: 0.0,
    ),
    Claim(
        "clean-priority/fig2",
        "Equations 13 and 14 hold in the limit of infinite width",
        "deviation at the largest width over that at the smallest, ReLU, mean over depths",
        at_most(0.7),
        _shrinks,
        theory=_expected_ratio,
    ),
    Claim(
        "clean-priority/fig2",
        "θ_h grows with θ_d (up to 90°)",
        "share of neighbouring angles in order, ReLU, width 512",
        at_least(0.95),
        lambda sweep: mean_of(at_end(sweep, "rising_share", {"width": 512, "activation": "relu"})),
    ),
    Claim(
        "clean-priority/fig3",
        "Figure 3: angles within a cluster are smaller than between clusters",
        "θ_h between minus within, in degrees",
        at_least(10.0),
        lambda sweep: mean_of((at_end(sweep, "between_angle") - at_end(sweep, "within_angle")) * _DEGREES),
    ),
    Claim(
        "clean-priority/fig3",
        "Figure 3: the two histograms are apart",
        "share of pairs (within, between) of which the one within has the smaller angle",
        at_least(0.95),
        lambda sweep: mean_of(at_end(sweep, "separated_share")),
    ),
    *_at_start("clean-priority/fig4", "Section 4", _TWO_CLASSES),
    *_histograms("clean-priority/fig4", "Figure 4"),
    *_at_start("clean-priority/fig5", "Figure 6", _TWO_CLASSES),
    *_story("clean-priority/fig5", "Figures 5, 6", {}),
    *_at_start("clean-priority/fig10", "Figure 10", _TWO_CLASSES),
    *_story("clean-priority/fig10", "Figure 10", {}, losses=True),
    *_at_start("clean-priority/fig7", "Figure 8", _TEN_CLASSES),
    *_story("clean-priority/fig7", "Figures 7, 8", _OF_TEN_EPOCHS, losses=True, large_only=_NOT_OF_FEW),
    *_at_start("clean-priority/fig7-cifar10", "Figure 8", _TEN_CLASSES),
    *_story("clean-priority/fig7-cifar10", "Figures 7, 8", _OF_TEN, losses=True, large_only=_NOT_OF_FEW),
    *_at_start("clean-priority/fig9", "Figure 9", _TEN_CLASSES),
    *_histograms("clean-priority/fig9", "Figure 9"),
    Claim(
        "clean-priority/fig9",
        "Figure 9: samples of other classes are apart from clean ones of the class",
        "share of pairs (clean, other) of which the clean one has the smaller θ_g, worst logit",
        at_least(0.9),
        lambda sweep: _in_order(sweep, "clean", "other"),
    ),
    Claim(
        "clean-priority/fig9",
        "Figure 9: samples of other classes are apart from noisy ones of the class",
        "share of pairs (other, noisy) of which the one of another class has the smaller θ_g, worst logit",
        at_least(0.9),
        lambda sweep: _in_order(sweep, "other", "noisy"),
    ),
    Claim(
        "clean-priority/fig9",
        "Figure 9: their gradient has a part of non-trivial size that is orthogonal to the clean one",
        "sin θ_g of clean samples of all other classes together, worst logit",
        at_least(0.2),
        _orthogonal_part,
    ),
    *_at_start("clean-priority/fig11", "Figure 11", _TWO_CLASSES),
    *_story("clean-priority/fig11", "Figure 11", {}, where=", worst width"),
    *_at_start("clean-priority/fig12", "Figure 12", _TEN_CLASSES),
    *_story(
        "clean-priority/fig12",
        "Figure 12",
        _OF_TEN_EPOCHS,
        where=", worst noise level",
        large_only=_NOT_OF_FEW,
    ),
)
