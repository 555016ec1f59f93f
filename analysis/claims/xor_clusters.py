"""Frei, Chatterji, Bartlett: Random Feature Amplification. Claims on XOR clusters."""

import numpy as np

from mislabel.analysis.claims.claim import Claim, at_least, near
from mislabel.analysis.statistics.estimate import Estimate, at_end, at_step, mean_of, share_of
from mislabel.analysis.sweep import Sweep

_LOW = {"dim": 20}
_HIGH = {"dim": 2000}


def _theorem_holds(sweep: Sweep) -> Estimate:
    """Share of runs in which, at T, every clean point is right and every flipped one wrong."""
    runs = sweep.read("runs", ["early_clean_accuracy", "early_noisy_accuracy"])
    return share_of((runs["early_clean_accuracy"] == 1) & (runs["early_noisy_accuracy"] == 0))


def _drop(sweep: Sweep) -> Estimate:
    """How much test accuracy falls from the early stop to the end, in low dimension, by seed.

    Its best over training would not do: that is never below the end, whatever the network does.
    """
    return mean_of(at_end(sweep, "early_test_accuracy", _LOW) - at_end(sweep, "test_accuracy", _LOW))


def _interpolated(sweep: Sweep) -> Estimate:
    return share_of(at_end(sweep, "interpolation_step", _HIGH).notna())


def _feature_changes(sweep: Sweep) -> Estimate:
    """Difference in relative feature change at T between a small and a tenfold initialization."""
    small, large = (at_end(sweep, "mean_feature_change", {"init_scale": scale}) for scale in (0.01, 0.1))
    return mean_of(small - large)


def _boundary(sweep: Sweep) -> Estimate:
    """Share of the plane of the means on which the network has the sign of |u| − |v| at the last step, by seed."""
    arrays = sweep.read("arrays", ["seed", "step", "values"], {"metric": "plane_output"})
    outputs = arrays[arrays["step"] == arrays["step"].max()].set_index("seed")["values"]
    side = round(len(outputs.iloc[0]) ** 0.5)
    place = np.abs(np.linspace(-1, 1, side))
    simple = np.sign(place[:, None] - place).ravel()
    off_edge = simple != 0
    return mean_of([float((np.sign(values) == simple)[off_edge].mean()) for values in outputs])


CLAIMS = (
    Claim(
        "xor-clusters/fig1",
        "Figure 1: at T the network acts as the simple classifier sgn(|⟨μ₁, x⟩| − |⟨μ₂, x⟩|)",
        "share of the plane of the means on which their signs agree",
        at_least(0.9),
        _boundary,
        theory=lambda sweep: 1.0,
    ),
    Claim(
        "xor-clusters/theorem1",
        "Theorem 1: at T every clean point is right and every noisy point is wrong",
        "share of runs in which both hold for all points",
        at_least(0.9),
        _theorem_holds,
        theory=lambda sweep: 1.0,
    ),
    Claim(
        "xor-clusters/theorem1",
        "Theorem 1: test error at T is near the noise rate of 15 %",
        "test error at T against noisy labels",
        near(0.15, 0.01),
        lambda sweep: mean_of(1 - at_end(sweep, "early_test_accuracy")),
        theory=lambda sweep: 0.15,
    ),
    Claim(
        "xor-clusters/theorem1",
        "Linear classifiers are no better than random guessing",
        "test accuracy of the least-squares linear classifier",
        near(0.5, 0.02),
        lambda sweep: mean_of(at_end(sweep, "linear_test_accuracy")),
        theory=lambda sweep: 0.5,
    ),
    Claim(
        "xor-clusters/amplification",
        "Section 4.1: at initialization, correlations with the means are of order 1/√d",
        "mean |cosine| of neurons with their mean at step 0, times √d, init scale 0.001",
        near(1.0, 0.5),
        lambda sweep: mean_of(at_step(sweep, "mean_correlation", 0, {"init_scale": 0.001}) * 200**0.5),
        theory=lambda sweep: 0.798,  # E|z| of a standard normal z
    ),
    Claim(
        "xor-clusters/amplification",
        "Lemma 12: one step amplifies them to order 1",
        "share of neurons with |cosine| above ½ after one step, init scale 0.001",
        at_least(0.5),
        lambda sweep: mean_of(at_step(sweep, "captured_share", 1, {"init_scale": 0.001})),
    ),
    Claim(
        "xor-clusters/amplification",
        "Proposition 2: the smaller the initialization, the larger the relative change of the features",
        "relative feature change at T with init scale 0.01, minus that with 0.1",
        at_least(0.0),
        _feature_changes,
    ),
    Claim(
        "xor-clusters/fig2",
        "d ≫ n: the network interpolates the noisy labels",
        "share of runs that interpolate",
        at_least(0.6),
        _interpolated,
    ),
    Claim(
        "xor-clusters/fig2",
        "d ≫ n: test accuracy stays at the optimal 85 %",
        "test accuracy at the end, d = 2000, n = 80",
        near(0.85, 0.01),
        lambda sweep: mean_of(at_end(sweep, "test_accuracy", _HIGH)),
        theory=lambda sweep: 0.85,
    ),
    Claim(
        "xor-clusters/fig2",
        "n ≫ d: test accuracy decreases once the network overfits",
        "fall of test accuracy from the early stop to the end, d = 20, n = 400",
        at_least(0.0),
        _drop,
    ),
    Claim(
        "xor-clusters/beyond",
        "Theorem 1, beyond its settings: the early stop ignores noise up to a quarter of the labels",
        "clean test accuracy at T, noise rate 0.25, init scale 0.1, step 0.1, width 256",
        at_least(0.99),
        lambda sweep: mean_of(
            at_end(
                sweep,
                "early_clean_test_accuracy",
                {"noise_rate": 0.25, "init_scale": 0.1, "step_size": 0.1, "width": 256},
            )
        ),
    ),
    Claim(
        "xor-clusters/beyond",
        "(A5): wider networks do at least as well at the early stop",
        "clean test accuracy at T, width 256 minus width 16, noise rate 0.15",
        at_least(0.0),
        lambda sweep: mean_of(
            at_end(sweep, "early_clean_test_accuracy", {"noise_rate": 0.15, "width": 256})
            - at_end(sweep, "early_clean_test_accuracy", {"noise_rate": 0.15, "width": 16})
        ),
    ),
    Claim(
        "xor-clusters/beyond",
        "(A4): the noise rate must be small",
        "clean test accuracy at T, noise rate 0.05 minus 0.45",
        at_least(0.02),
        lambda sweep: mean_of(
            at_end(sweep, "early_clean_test_accuracy", {"noise_rate": 0.05})
            - at_end(sweep, "early_clean_test_accuracy", {"noise_rate": 0.45})
        ),
    ),
)
