"""Zhou, Xiong, Yuan, Hoi: A Theory-Driven Self-Labeling Refinement Method. Theorem 2's setting, and SANE's tables."""

from mislabel.analysis.claims.claim import Claim, at_least, at_most, near
from mislabel.analysis.claims.theory import recoverable_corruption
from mislabel.analysis.statistics.estimate import Estimate, at_end, mean_of, share_of
from mislabel.analysis.sweep import Sweep, Where


def _closer(sweep: Sweep) -> Estimate:
    """Distance of refined labels from the truth over that of the given ones, ρ = 0.2, by seed."""
    where = {"alpha": 0.8, "corruption": 0.2}
    return mean_of(at_end(sweep, "label_error", where) / at_end(sweep, "given_label_error", where))


def _all_recovered(sweep: Sweep, corruption: float) -> Estimate:
    runs = sweep.read("runs", ["recovered_share"], {"alpha": 0.8, "corruption": corruption})
    return share_of(runs["recovered_share"] == 1)


def _gain(sweep: Sweep) -> Estimate:
    """Test accuracy of refined labels minus that of given ones, ρ = 0.3, by seed."""
    refined, given = (at_end(sweep, "test_accuracy", {"alpha": alpha, "corruption": 0.3}) for alpha in (0.8, 0.0))
    return mean_of(refined - given)


def _lost_above(sweep: Sweep) -> Estimate:
    """Share of wrong labels that stay wrong at a corruption above the level of the theory."""
    return mean_of(1 - at_end(sweep, "wrong_recovered_share", {"alpha": 0.8, "corruption": 0.4}))


def _fall(sweep: Sweep) -> Estimate:
    """Share recovered at ρ = 0.05 minus that at ρ = 0.4, the mean over widths, scales and steps."""
    low, high = (at_end(sweep, "recovered_share", {"corruption": rho}) for rho in (0.05, 0.4))
    return mean_of(low - high)


_MOCO = {"refinery": "none", "mixup": "none"}
_SANE = {"refinery": "both", "mixup": "momentum"}
_STRONG = {**_SANE, "mixup_views": "strong"}
_WEAK = {**_SANE, "mixup_views": "same"}
_SINGLE, _MULTI = {"crops": "96", "steps": 1000800}, {"crops": "224, 192, 160, 128, 96", "steps": 1000800}
_LONG = {"steps": 4003200}


def _more(sweep: Sweep, metric: str, first: Where, second: Where | None) -> Estimate:
    """The metric of the first at the end minus that of the second, by the seeds that both have."""
    one, other = at_end(sweep, metric, first).align(at_end(sweep, metric, second), join="inner")
    return mean_of(one - other)


def _ordering(
    experiment: str,
    paper: str,
    words: str,
    first: Where,
    second: Where,
    metric: str = "probe_accuracy",
    at_any_size: bool = True,
) -> Claim:
    measured = "KNN accuracy" if metric == "knn_accuracy" else "accuracy of the linear probe"
    return Claim(
        f"self-labeling/{experiment}",
        paper,
        f"{measured}, {words}",
        at_least(0.0),
        lambda sweep: _more(sweep, metric, first, second),
        at_any_size=at_any_size,
    )


def _number(experiment: str, paper: str, value: float, where: Where, metric: str = "probe_accuracy") -> Claim:
    """A number of the paper, met within a percent: it gives no spread."""
    measured = "KNN accuracy" if metric == "knn_accuracy" else "accuracy of the linear probe"
    return Claim(
        f"self-labeling/{experiment}",
        paper,
        f"{measured} at the end",
        near(value, 0.01),
        lambda sweep: mean_of(at_end(sweep, metric, where)),
        at_any_size=False,
    )


def _refined_distance(sweep: Sweep) -> Estimate:
    """Distance of refined labels from the ideal over that of one-hot ones, SANE with weak views, by seed."""
    return mean_of(at_end(sweep, "label_distance", _WEAK) / at_end(sweep, "one_hot_distance", _WEAK))


def _middle_weights(sweep: Sweep) -> Estimate:
    """Accuracy where λ is in the middle half minus that where it is not, by seed."""
    runs = sweep.read("runs", ["seed", "mixup_weight", "knn_accuracy"])
    runs["middle"] = runs["mixup_weight"].between(0.25, 0.75)
    means = runs.groupby(["seed", "middle"])["knn_accuracy"].mean().unstack()
    return mean_of(means[True] - means[False])


_TABLES = (
    _number("table1", "Table 1: MoCo, KNN 92.5 %", 0.925, _MOCO, "knn_accuracy"),
    _number("table1", "Table 1: MoCo, linear 93.9 %", 0.939, _MOCO),
    _number("table1", "Table 1: SANE, KNN 95.2 %", 0.952, _WEAK, "knn_accuracy"),
    _number("table1", "Table 1: SANE, linear 96.1 %", 0.961, _WEAK),
    _number("table1", "Table 1: SANE with strong views, KNN 95.5 %", 0.955, _STRONG, "knn_accuracy"),
    _number("table1", "Table 1: SANE with strong views, linear 96.5 %", 0.965, _STRONG),
    _ordering(
        "table1", "Table 1: SANE surpasses MoCo (KNN)", "SANE minus MoCo, weak views", _WEAK, _MOCO, "knn_accuracy"
    ),
    _ordering("table1", "Table 1: SANE surpasses MoCo (linear)", "SANE minus MoCo, weak views", _WEAK, _MOCO),
    _ordering("table1", "Table 1: strong views improve SANE", "strong minus weak views", _STRONG, _WEAK),
    Claim(
        "self-labeling/table1",
        "Section 3.1: refined labels are closer to the true similarity than one-hot labels",
        "‖ỹ − y*‖ over ‖y − y*‖ at the end, weak views",
        at_most(1.0),
        _refined_distance,
    ),
    *(
        _number(
            "table2",
            f"Table 2: {word} crop, {epochs} epochs, {views}, {value:.1%}",
            value,
            {**crops, **steps, "mixup_views": views},
        )
        for crops, word, steps, epochs, views, value in (
            (_SINGLE, "single", {}, 200, "weak", 0.706),
            (_SINGLE, "single", {}, 200, "strong", 0.701),
            (_MULTI, "multi", {}, 200, "weak", 0.735),
            (_MULTI, "multi", {}, 200, "strong", 0.737),
            (_SINGLE, "single", _LONG, 800, "weak", 0.730),
            (_SINGLE, "single", _LONG, 800, "strong", 0.735),
            (_MULTI, "multi", _LONG, 800, "weak", 0.757),
            (_MULTI, "multi", _LONG, 800, "strong", 0.764),
        )
    ),
    _ordering(
        "table2",
        "Table 2: multi crop surpasses single crop",
        "multi minus single crop, 200 epochs",
        _MULTI,
        _SINGLE,
        at_any_size=False,
    ),
    _number("table4", "Table 4: p, q and momentum mixup together, 95.9 %", 0.959, _SANE),
    _number("table4", "Table 4: none of them, 93.7 %", 0.937, _MOCO),
    _ordering("table4", "Table 4: all together surpass none", "all minus none", _SANE, _MOCO),
    _ordering(
        "table4",
        "Table 4: the refinery helps, with momentum mixup",
        "p and q minus one-hot labels, with mixup",
        _SANE,
        {"refinery": "none", "mixup": "momentum"},
    ),
    _ordering(
        "table4",
        "Table 4: the refinery helps, without mixup",
        "p and q minus one-hot labels, without mixup",
        {"refinery": "both", "mixup": "none"},
        _MOCO,
    ),
    _ordering(
        "table4",
        "Table 4: momentum mixup helps, with one-hot labels",
        "momentum mixup minus none",
        {"refinery": "none", "mixup": "momentum"},
        _MOCO,
    ),
    *(
        _ordering(
            "table4",
            f"Table 4: {part} alone helps",
            f"{part} alone minus none of them",
            {"refinery": part, "mixup": "none"},
            _MOCO,
            at_any_size=False,
        )
        for part in ("p", "q")
    ),
    *(
        _number("table5", f"Table 5: λ = {weight:g}, {value:.1%}", value, {"mixup_weight": weight})
        for weight, value in ((0.0, 0.943), (0.25, 0.958), (0.5, 0.959), (0.75, 0.955), (1.0, 0.945))
    ),
    *(
        _ordering(
            "table5",
            f"Table 5: λ = 0.5 surpasses {end:g}",
            f"λ = 0.5 minus λ = {end:g}",
            {"mixup_weight": 0.5},
            {"mixup_weight": end},
        )
        for end in (0.0, 1.0)
    ),
    *(
        _number(
            "table6", f"Table 6: {mixup} mixup, {word} views, {value:.1%}", value, {"mixup": mixup, "mixup_views": view}
        )
        for mixup, word, view, value in (
            ("vanilla", "weak", "same", 0.937),
            ("momentum", "weak", "same", 0.942),
            ("vanilla", "strong", "strong", 0.933),
            ("momentum", "strong", "strong", 0.948),
        )
    ),
    *(
        _ordering(
            "table6",
            f"Table 6: momentum mixup surpasses vanilla mixup, {word} views",
            f"momentum minus vanilla, {word} views",
            {"mixup": "momentum", "mixup_views": view},
            {"mixup": "vanilla", "mixup_views": view},
            metric,
            at_any_size=view == "same",
        )
        for word, view, metric in (
            ("weak", "same", "probe_accuracy"),
            ("weak", "same", "knn_accuracy"),
            ("strong", "strong", "probe_accuracy"),
        )
    ),
    _ordering(
        "table6",
        "Table 6: strong views improve momentum mixup",
        "strong minus weak views, momentum mixup",
        {"mixup": "momentum", "mixup_views": "strong"},
        {"mixup": "momentum", "mixup_views": "same"},
        at_any_size=False,
    ),
    _ordering(
        "table6",
        "Table 6: strong views impair vanilla mixup",
        "weak minus strong views, vanilla mixup",
        {"mixup": "vanilla", "mixup_views": "same"},
        {"mixup": "vanilla", "mixup_views": "strong"},
        at_any_size=False,
    ),
    _number("table6-imagenet", "Table 6: ImageNet, vanilla mixup 68.4 %", 0.684, {"mixup": "vanilla"}),
    _number("table6-imagenet", "Table 6: ImageNet, momentum mixup 69.0 %", 0.690, {"mixup": "momentum"}),
    Claim(
        "self-labeling/sensitivity",
        "Table 5: λ near 0.5 is best; here, whatever the other hyperparameters are",
        "KNN accuracy, cells with λ from 0.25 to 0.75 minus the others",
        at_least(0.0),
        _middle_weights,
    ),
    Claim(
        "self-labeling/beyond-refinery",
        "The refinery helps beyond the paper's settings",
        "probe that learns partly wrong labels, m₂ = 1 minus m₂ = 0, mean over τ′, κ, noise and λ",
        at_least(0.0),
        lambda sweep: _more(sweep, "noisy_probe_accuracy", {"m2": 1.0}, {"m2": 0.0}),
    ),
    Claim(
        "self-labeling/beyond-sane",
        "SANE surpasses MoCo beyond the paper's settings",
        "probe that learns partly wrong labels, λ = 0.5 minus λ = 0, mean over noise, widths, scales and τ",
        at_least(0.0),
        lambda sweep: _more(sweep, "noisy_probe_accuracy", {"mixup_weight": 0.5}, {"mixup_weight": 0.0}),
    ),
)

CLAIMS = (
    *_TABLES,
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
