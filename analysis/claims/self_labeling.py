"""Zhou, Xiong, Yuan, Hoi: A Theory-Driven Self-Labeling Refinement Method. Claims of Theorem 2's setting."""

from analysis.claim import Claim, at_least, at_most
from analysis.estimate import Estimate, at_end, mean_of, share_of
from analysis.sweep import Sweep
from analysis.theory import recoverable_corruption


def _closer(sweep: Sweep) -> Estimate:
    """Distance of refined labels from the truth over that of the given ones, ρ = 0.2, by seed."""
    where = {"alpha": 0.8, "corruption": 0.2}
    return mean_of(at_end(sweep, "label_error", where) / at_end(sweep, "given_label_error", where))


def _all_recovered(sweep: Sweep, corruption: float) -> Estimate:
    runs = sweep.read("runs", ["recovered_share"], {"alpha": 0.8, "corruption": corruption})
    return share_of(runs["recovered_share"] == 1)


def _gain(sweep: Sweep) -> Estimate:
    """Test accuracy of refined labels minus that of given ones, ρ = 0.3, by seed."""
    refined, given = (
        at_end(sweep, "test_accuracy", {"alpha": alpha, "corruption": 0.3}) for alpha in (0.8, 0.0)
    )  # fmt: skip
    return mean_of(refined - given)


def _lost_above(sweep: Sweep) -> Estimate:
    """Share of wrong labels that stay wrong at a corruption above the level of the theory."""
    return mean_of(1 - at_end(sweep, "wrong_recovered_share", {"alpha": 0.8, "corruption": 0.4}))


def _fall(sweep: Sweep) -> Estimate:
    """Share recovered at ρ = 0.05 minus that at ρ = 0.4, the mean over widths, scales and steps."""
    low, high = (at_end(sweep, "recovered_share", {"corruption": rho}) for rho in (0.05, 0.4))
    return mean_of(low - high)


CLAIMS = (
    Claim(
        "self-labeling/theorem2",
        "Theorem 2: refined labels are closer to the truth than the given ones",
        "‖ỹ − y*‖ over ‖y − y*‖, ρ = 0.2",
        at_most(0.9),
        _closer,
        # Alike crops: a label is (1 − α)·given + α·mean of its sample's, which is off by ρ.
        theory=lambda sweep: ((1 - 0.8) ** 2 + (1 - (1 - 0.8) ** 2) * 0.2) ** 0.5,
    ),
    Claim(
        "self-labeling/theorem2",
        "Theorem 2: below a level of corruption all labels are recovered",
        "share of runs in which all are, ρ = 0.1",
        at_least(0.6),
        lambda sweep: _all_recovered(sweep, 0.1),
        theory=lambda sweep: 1.0,
    ),
    Claim(
        "self-labeling/theorem2",
        f"Above a level they are not: alike crops allow ρ < 1 − 1/(2α) = {float(recoverable_corruption(0.8)):.3f}",
        "share of wrong labels that stay wrong, ρ = 0.4",
        at_least(0.1),
        _lost_above,
    ),
    Claim(
        "self-labeling/theorem2",
        "Theorem 2: the network predicts the truth for unseen augmentations",
        "test accuracy on unseen crops, ρ = 0.2",
        at_least(0.95),
        lambda sweep: mean_of(at_end(sweep, "test_accuracy", {"alpha": 0.8, "corruption": 0.2})),
        theory=lambda sweep: 1.0,
    ),
    Claim(
        "self-labeling/theorem2",
        "Training on refined labels beats training on the given ones",
        "test accuracy on unseen crops, refined minus given, ρ = 0.3",
        at_least(0.05),
        _gain,
    ),
    Claim(
        "self-labeling/beyond",
        "Recovery needs small corruption, at any width, scale and step",
        "share of labels recovered at ρ = 0.05 minus that at ρ = 0.4",
        at_least(0.02),
        _fall,
    ),
)
