"""Frei, Chatterji, Bartlett: Random Feature Amplification. Claims about XOR clusters.

T is the step at which Theorem 1 stops early, 1 + 1/(4·step size).
"""

import numpy as np

from mislabel.analysis.claims.claim import Claim, at_least, near
from mislabel.analysis.claims.measures import difference, final, trained_runs
from mislabel.analysis.statistics.estimate import Estimate, at_end, at_step, mean_of, share_of
from mislabel.analysis.sweep import Sweep

_LOW, _HIGH, _SMALL_START = {"dim": 20}, {"dim": 2000}, {"init_scale": 0.001}
_QUARTER = {"noise_rate": 0.25, "init_scale": 0.1, "step_size": 0.1, "width": 256}


def _theorem_holds(sweep: Sweep) -> Estimate:
    """Share of runs in which, at T, every clean point is right and every flipped one wrong."""
    runs = trained_runs(sweep, ["early_clean_accuracy", "early_noisy_accuracy"], [])
    return share_of((runs["early_clean_accuracy"] == 1) & (runs["early_noisy_accuracy"] == 0))


def _drop(sweep: Sweep) -> Estimate:
    """Test accuracy at the early stop minus that at the end, in low dimension.

    The best accuracy over training can't replace that at the early stop: it is never below the accuracy at the end, so
    the claim could not fail.
    """
    return mean_of(at_end(sweep, "early_test_accuracy", _LOW) - at_end(sweep, "test_accuracy", _LOW))


def _boundary(sweep: Sweep) -> Estimate:
    """Share of the plane of the means on which the network has the sign of |u| − |v| at the last step."""
    arrays = sweep.read("arrays", ["seed", "step", "values"], {"metric": "plane_output"})
    outputs = arrays[arrays["step"] == arrays["step"].max()].set_index("seed")["values"]
    side = round(len(outputs.iloc[0]) ** 0.5)
    distance = np.abs(np.linspace(-1, 1, side))
    simple = np.sign(distance[:, None] - distance).ravel()
    off_edge = simple != 0
    return mean_of([float((np.sign(values) == simple)[off_edge].mean()) for values in outputs])


def _relative_correlation(sweep: Sweep) -> Estimate:
    return mean_of(at_step(sweep, "mean_correlation", 0, _SMALL_START) * 200**0.5)


CLAIMS = {
    "xor-clusters/fig1": {
        "Figure 1: at T the network acts like the simple classifier sgn(|⟨μ₁, x⟩| − |⟨μ₂, x⟩|)": Claim(
            "share of the plane of the means on which the two signs agree", at_least(0.9, _boundary, theory=1.0)
        )
    },
    "xor-clusters/theorem1": {
        "Theorem 1: at T every clean point is right and every noisy point is wrong": Claim(
            "share of runs in which both hold for all points", at_least(0.9, _theorem_holds, theory=1.0)
        ),
        "Theorem 1: at T the test error is near the noise rate of 15 %": Claim(
            "test error at T, on noisy labels",
            near(0.15, 0.01, lambda sweep: mean_of(1 - at_end(sweep, "early_test_accuracy")), theory=0.15),
        ),
        "Section 1: linear classifiers are no better than random guessing": Claim(
            "test accuracy of the least-squares linear classifier",
            near(0.5, 0.02, final("linear_test_accuracy"), theory=0.5),
        ),
    },
    "xor-clusters/amplification": {
        "Lemma 4: at initialization the neurons' correlations with the means are of order 1/√d": Claim(
            "mean |cosine| of neurons with their mean at step 0, times √d, init scale 0.001",
            near(1.0, 0.5, _relative_correlation, theory=0.798),  # E|z| of a standard normal z, √(2/π)
        ),
        "Lemma 12: one gradient step amplifies these correlations to order 1": Claim(
            "share of neurons with |cosine| above ½ after one step, init scale 0.001",
            at_least(0.5, lambda sweep: mean_of(at_step(sweep, "captured_share", 1, _SMALL_START))),
        ),
        "Proposition 2: the smaller the initialization, the larger the relative change of the features": Claim(
            "relative change of the features at T, init scale 0.01 minus 0.1",
            at_least(0.0, difference("mean_feature_change", {"init_scale": 0.01}, {"init_scale": 0.1})),
        ),
    },
    "xor-clusters/fig2": {
        "Figure 2, d ≫ n: the network interpolates the noisy labels": Claim(
            "share of runs that interpolate, d = 2000, n = 80",
            at_least(0.6, lambda sweep: share_of(at_end(sweep, "interpolation_step", _HIGH).notna())),
        ),
        "Figure 2, d ≫ n: test accuracy stays at the optimal 85 %": Claim(
            "test accuracy at the end, d = 2000, n = 80", near(0.85, 0.01, final("test_accuracy", _HIGH), theory=0.85)
        ),
        "Figure 2, n ≫ d: test accuracy decreases when the network overfits": Claim(
            "test accuracy at T minus that at the end, d = 20, n = 400", at_least(0.0, _drop)
        ),
    },
    "xor-clusters/beyond": {
        "Beyond the paper: at T the network ignores the noise in up to a quarter of the labels (Theorem 1)": Claim(
            "clean test accuracy at T, noise rate 0.25, init scale 0.1, step size 0.1, width 256",
            at_least(0.99, final("early_clean_test_accuracy", _QUARTER)),
        ),
        "Beyond the paper: wider networks are at least as good at T (Assumption A5)": Claim(
            "clean test accuracy at T, width 256 minus width 16, noise rate 0.15",
            at_least(0.0, difference("early_clean_test_accuracy", {"width": 256}, {"width": 16}, noise_rate=0.15)),
        ),
        "Beyond the paper: the noise rate must be small (Assumption A4)": Claim(
            "clean test accuracy at T, noise rate 0.05 minus 0.45",
            at_least(0.02, difference("early_clean_test_accuracy", {"noise_rate": 0.05}, {"noise_rate": 0.45})),
        ),
    },
}
