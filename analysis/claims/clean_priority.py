"""Clean-priority learning. Claims on angles at initialization."""

from analysis.claim import Claim, at_least, at_most
from analysis.estimate import Estimate, at_end, mean_of
from analysis.sweep import Sweep


def _at_512(sweep: Sweep, activation: str) -> Estimate:
    """Largest deviation from the closed form at width 512, in degrees: the worst number of layers."""
    runs = sweep.read("runs", ["hidden_layers", "max_deviation"], {"width": 512, "activation": activation})
    by_depth = (mean_of(rows * 57.29578) for _, rows in runs.groupby("hidden_layers")["max_deviation"])
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
        lambda sweep: mean_of((at_end(sweep, "between_angle") - at_end(sweep, "within_angle")) * 57.29578),
    ),
    Claim(
        "clean-priority/fig3",
        "Figure 3: the two histograms are apart",
        "share of pairs (within, between) of which the one within has the smaller angle",
        at_least(0.95),
        lambda sweep: mean_of(at_end(sweep, "separated_share")),
    ),
)
