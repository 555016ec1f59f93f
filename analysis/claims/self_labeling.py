"""Zhou, Xiong, Yuan, Hoi: A Theory-Driven Self-Labeling Refinement Method. Theorem 2's setting, and SANE's tables."""

import math

from mislabel.analysis.claims.claim import Claim, at_least, at_most, full_size, near
from mislabel.analysis.claims.measures import difference, final, ratio, trained_runs
from mislabel.analysis.statistics.estimate import Estimate, at_end, by_seed, mean_of, share_of
from mislabel.analysis.statistics.tables import Where
from mislabel.analysis.sweep import Sweep

# Theorem 2's setting: the weight α of the network's own labels, and shares ρ of wrong labels.
_ALPHA = 0.8
_RHO = {rho: {"alpha": _ALPHA, "corruption": rho} for rho in (0.1, 0.2, 0.3, 0.4)}

_MOCO = {"refinery": "none", "mixup": "none"}
_MIXUP_ONLY = {"refinery": "none", "mixup": "momentum"}
_REFINERY_ONLY = {"refinery": "both", "mixup": "none"}
_SANE = {"refinery": "both", "mixup": "momentum"}
_STRONG = {**_SANE, "mixup_views": "strong"}
_WEAK = {**_SANE, "mixup_views": "same"}
_SINGLE, _MULTI = {"crops": "96"}, {"crops": "224, 192, 160, 128, 96"}
_STEPS = {200: {"steps": 1000800}, 800: {"steps": 4003200}}
_METRICS = {"KNN": ("knn_accuracy", "KNN accuracy"), "linear": ("probe_accuracy", "accuracy of the linear probe")}


def _better(words: str, first: Where, second: Where, method: str = "linear", small: bool = True) -> Claim:
    """The first runs have the higher accuracy."""
    metric, name = _METRICS[method]
    return Claim(f"{name}, {words}", at_least(0.0, difference(metric, first, second)), at_any_size=small)


def _number(value: float, where: Where, method: str = "linear") -> Claim:
    """A number of the paper, which gives no spread: we allow one percent."""
    metric, name = _METRICS[method]
    return full_size(f"{name} at the end", near(value, 0.01, final(metric, where)))


def _mixup(kind: str, views: str) -> dict[str, str]:
    return {"mixup": kind, "mixup_views": "same" if views == "weak" else views}


def _middle_weights(sweep: Sweep) -> Estimate:
    """Mean accuracy with λ from 0.25 to 0.75 minus that with other λ."""
    runs = trained_runs(sweep, ["knn_accuracy"], ["seed", "mixup_weight"])
    middle = runs["mixup_weight"].between(0.25, 0.75)
    inner, outer = (by_seed(runs[part], "knn_accuracy") for part in (middle, ~middle))
    return mean_of(inner - outer)


def recoverable_corruption(alpha: float, classes: int = 2) -> float:
    """Share ρ of wrong labels below which every refined label is nearest to the truth, if a sample's crops are equal.

    The network then predicts the mean label of a sample's crops, which is wrong by at most ρ·D, where D =
    (classes - 1)·δ is the largest distance of labels; (1 - α)·D + α·ρ·D < δ/2 gives ρ. It is exact for two classes.
    """
    allowed = 1 / (2 * (classes - 1)) - (1 - alpha)
    return allowed / alpha if allowed > 0 else 0.0


def refined_over_given_error(alpha: float, corruption: float) -> float:
    """‖ỹ − y*‖/‖y − y*‖ for two classes, if a sample's crops are equal.

    A refined label is (1 - α)·given + α·mean, where the mean label of the sample's crops is wrong by ρ.
    """
    own = (1 - alpha) ** 2
    return math.sqrt(own + (1 - own) * corruption)


_REFINED_ERROR = refined_over_given_error(_ALPHA, 0.2)


def _all_recovered(sweep: Sweep) -> Estimate:
    return share_of(trained_runs(sweep, ["recovered_share"], [], _RHO[0.1])["recovered_share"] == 1)


CLAIMS = {
    "self-labeling/table1": {
        **{
            f"Table 1: {name}, {method}, {value * 100:.1f} %": _number(value, where, method)
            for name, where, values in (
                ("MoCo", _MOCO, (0.925, 0.939)),
                ("SANE", _WEAK, (0.952, 0.961)),
                ("SANE with strong augmentation", _STRONG, (0.955, 0.965)),
            )
            for method, value in zip(_METRICS, values, strict=True)
        },
        **{
            f"Table 1: SANE surpasses MoCo ({name})": _better("SANE minus MoCo, weak augmentation", _WEAK, _MOCO, name)
            for name in _METRICS
        },
        "Table 1: strong augmentation improves SANE": _better("strong minus weak augmentation", _STRONG, _WEAK),
        "Section 3.1: refined labels are closer to the true similarity than one-hot labels": Claim(
            "‖ỹ − y*‖ over ‖y − y*‖ at the end, weak augmentation",
            at_most(1.0, ratio("label_distance", "one_hot_distance", _WEAK)),
        ),
    },
    "self-labeling/table2": {
        **{
            f"Table 2: {word} crop, {epochs} epochs, {views} augmentation, {value * 100:.1f} %": _number(
                value, {**crops, **_STEPS[epochs], "mixup_views": views}
            )
            for word, crops, epochs, values in (
                ("single", _SINGLE, 200, (0.706, 0.701)),
                ("multi", _MULTI, 200, (0.735, 0.737)),
                ("single", _SINGLE, 800, (0.730, 0.735)),
                ("multi", _MULTI, 800, (0.757, 0.764)),
            )
            for views, value in zip(("weak", "strong"), values, strict=True)
        },
        "Table 2: multi crop surpasses single crop": _better(
            "multi minus single crop, 200 epochs", {**_MULTI, **_STEPS[200]}, {**_SINGLE, **_STEPS[200]}, small=False
        ),
    },
    "self-labeling/table4": {
        "Table 4: p, q and momentum mixup together, 95.9 %": _number(0.959, _SANE),
        "Table 4: without p, q and momentum mixup, 93.7 %": _number(0.937, _MOCO),
        "Table 4: p, q and momentum mixup together help": _better("all three minus none", _SANE, _MOCO),
        "Table 4: the refinery (p and q) helps, with momentum mixup": _better(
            "p and q minus one-hot labels, with mixup", _SANE, _MIXUP_ONLY
        ),
        "Table 4: the refinery (p and q) helps, without mixup": _better(
            "p and q minus one-hot labels, without mixup", _REFINERY_ONLY, _MOCO
        ),
        "Table 4: momentum mixup helps, with one-hot labels": _better("momentum mixup minus none", _MIXUP_ONLY, _MOCO),
        **{
            f"Table 4: {part} alone helps": _better(
                f"{part} alone minus none of the three", {"refinery": part, "mixup": "none"}, _MOCO, small=False
            )
            for part in ("p", "q")
        },
    },
    "self-labeling/table5": {
        **{
            f"Table 5: λ = {weight:g}, {value * 100:.1f} %": _number(value, {"mixup_weight": weight})
            for weight, value in ((0.0, 0.943), (0.25, 0.958), (0.5, 0.959), (0.75, 0.955), (1.0, 0.945))
        },
        **{
            f"Table 5: λ = 0.5 surpasses λ = {end:g}": _better(
                f"λ = 0.5 minus λ = {end:g}", {"mixup_weight": 0.5}, {"mixup_weight": end}
            )
            for end in (0.0, 1.0)
        },
    },
    "self-labeling/table6": {
        **{
            f"Table 6: {kind} mixup, {views} augmentation, {value * 100:.1f} %": _number(value, _mixup(kind, views))
            for views, values in (("weak", (0.937, 0.942)), ("strong", (0.933, 0.948)))
            for kind, value in zip(("vanilla", "momentum"), values, strict=True)
        },
        **{
            f"Table 6: momentum mixup surpasses vanilla mixup, {views} augmentation{note}": _better(
                f"momentum minus vanilla mixup, {views} augmentation",
                _mixup("momentum", views),
                _mixup("vanilla", views),
                method,
                small=views == "weak",
            )
            for views, method, note in (("weak", "linear", ""), ("weak", "KNN", " (KNN)"), ("strong", "linear", ""))
        },
        **{
            f"Table 6: strong augmentation {verb} {kind} mixup": _better(
                f"{better} minus {worse} augmentation, {kind} mixup",
                _mixup(kind, better),
                _mixup(kind, worse),
                small=False,
            )
            for verb, kind, better, worse in (
                ("improves", "momentum", "strong", "weak"),
                ("impairs", "vanilla", "weak", "strong"),
            )
        },
    },
    "self-labeling/table6-imagenet": {
        "Table 6: ImageNet, vanilla mixup, 68.4 %": _number(0.684, {"mixup": "vanilla"}),
        "Table 6: ImageNet, momentum mixup, 69.0 %": _number(0.690, {"mixup": "momentum"}),
    },
    "self-labeling/sensitivity": {
        "Beyond the paper: λ near 0.5 is best whatever the other hyperparameters are (Table 5)": Claim(
            "KNN accuracy, cells with λ from 0.25 to 0.75 minus the others", at_least(0.0, _middle_weights)
        )
    },
    "self-labeling/beyond-refinery": {
        "Beyond the paper: the refinery helps in other settings too": Claim(
            "accuracy of a probe trained on partly wrong labels, m₂ = 1 minus m₂ = 0, mean over τ′, κ, noise and λ",
            at_least(0.0, difference("noisy_probe_accuracy", {"m2": 1.0}, {"m2": 0.0})),
        )
    },
    "self-labeling/beyond-sane": {
        "Beyond the paper: SANE surpasses MoCo in other settings too": Claim(
            "accuracy of a probe trained on partly wrong labels, λ = 0.5 minus λ = 0, mean over noise, widths, scales "
            "and τ",
            at_least(0.0, difference("noisy_probe_accuracy", {"mixup_weight": 0.5}, {"mixup_weight": 0.0})),
        )
    },
    "self-labeling/theorem2": {
        "Theorem 2: refined labels are closer to the truth than the given ones": Claim(
            "‖ỹ − y*‖ over ‖y − y*‖, ρ = 0.2",
            at_most(0.9, ratio("label_error", "given_label_error", _RHO[0.2]), theory=_REFINED_ERROR),
        ),
        "Theorem 2: below a level of corruption all labels are recovered": Claim(
            "share of runs in which all labels are recovered, ρ = 0.1", at_least(0.6, _all_recovered, theory=1.0)
        ),
        "Beyond the paper: above a level of corruption, labels are not recovered; "
        f"for equal crops it is 1 − 1/(2α) = {recoverable_corruption(_ALPHA):.3f}": Claim(
            "share of wrong labels that stay wrong, ρ = 0.4",
            at_least(0.1, lambda sweep: mean_of(1 - at_end(sweep, "wrong_recovered_share", _RHO[0.4]))),
        ),
        "Theorem 2: the network predicts the truth for unseen augmentations": Claim(
            "test accuracy on unseen crops, ρ = 0.2", at_least(0.95, final("test_accuracy", _RHO[0.2]), theory=1.0)
        ),
        "Section 3.1: training on refined labels beats training on the given ones": Claim(
            "test accuracy on unseen crops, refined minus given labels, ρ = 0.3",
            at_least(0.05, difference("test_accuracy", _RHO[0.3], {**_RHO[0.3], "alpha": 0.0})),
        ),
    },
    "self-labeling/beyond": {
        "Beyond the paper: at any width, scale and step size, recovery needs a small corruption": Claim(
            "share of labels recovered, ρ = 0.05 minus ρ = 0.4",
            at_least(0.02, difference("recovered_share", {"corruption": 0.05}, {"corruption": 0.4})),
        )
    },
}
