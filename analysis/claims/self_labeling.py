"""Zhou, Xiong, Yuan, Hoi: A Theory-Driven Self-Labeling Refinement Method. Theorem 2's setting, and SANE's tables."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from mislabel.analysis.claims.claim import Measure, Values
from mislabel.analysis.claims.measures import by_cell, difference, final, one, paired, ratio, rows, trained_runs
from mislabel.analysis.statistics.estimate import at_end
from mislabel.analysis.statistics.tables import Where
from mislabel.analysis.sweep import Sweep
from mislabel.analysis.theory import self_labeling as theory
from mislabel.sweeps.store.outcome import Status

_ALPHA = 0.8
_RHO = {rho: {"alpha": _ALPHA, "corruption": rho} for rho in (0.1, 0.2, 0.3, 0.4)}
_TRAINED = [0.33, 0.8, 0.95]
"""α of the cells of `theorem2-regime` that reach a fixed point; 0.999 is there for t₀."""

_FAR = {"radius": 0.6, "classes": 2}
"""The largest ε of `theorem2-limits`."""

_MOCO = {"refinery": "none", "mixup": "none"}
_MIXUP_ONLY = {"refinery": "none", "mixup": "momentum"}
_REFINERY_ONLY = {"refinery": "both", "mixup": "none"}
_SANE = {"refinery": "both", "mixup": "momentum"}
_STRONG, _WEAK = {**_SANE, "mixup_views": "strong"}, {**_SANE, "mixup_views": "same"}
_STEPS = {200: {"steps": 1000800}, 800: {"steps": 4003200}}
_METRICS = {"knn": "knn_accuracy", "linear": "probe_accuracy"}


def _mixup(kind: str, views: str) -> dict[str, str]:
    return {"mixup": kind, "mixup_views": "same" if views == "weak" else views}


def _in_each_setting(metric: str, parameter: str, first: float, second: float) -> Measure:
    """The metric at one value of a parameter minus that at another one, in each setting of the others that vary."""

    def measure(sweep: Sweep) -> Values:
        others = [name for name in sweep.varying if name != parameter]
        runs = trained_runs(sweep, [metric], ["seed", parameter, *others])
        cells = [by_cell(runs[runs[parameter] == value], others, metric) for value in (first, second)]
        return {name: ours - theirs for name, ours, theirs in paired(*cells)}

    return measure


def _label_gain(where: Callable[[Sweep], Where] | Where) -> Measure:
    """The gain in ‖ỹ − y*‖ over uniform smoothing, as a share of the gain of labels with the true classes."""

    def measure(sweep: Sweep) -> Values:
        chosen = rows(sweep, where)
        found, uniform, best = (at_end(sweep, f"{name}_distance", chosen) for name in ("label", "uniform", "classes"))
        return one((uniform - found) / (uniform - best))

    return measure


def _shortest(sweep: Sweep) -> int:
    return int(sweep.read("runs", ["steps"])["steps"].min())


def _crops(multi: bool) -> Callable[[Sweep], dict[str, str]]:
    """SANE with weak views and a single crop, or multi crop."""

    def where(sweep: Sweep) -> dict[str, str]:
        sizes = sorted(set(sweep.read("runs", ["crops"], _SANE)["crops"]), key=len)
        return {**_SANE, "mixup_views": "weak", "crops": sizes[-1 if multi else 0]}

    return where


def _single_crop(sweep: Sweep) -> Where:
    """SANE with weak views and a single crop, for the shorter training."""
    return {**_crops(multi=False)(sweep), "steps": _shortest(sweep)}


def _crops_difference(first: Callable[[Sweep], Where], second: Callable[[Sweep], Where]) -> Measure:
    """Accuracy of the linear probe in the first runs minus that in the second ones, for the shorter training."""

    def measure(sweep: Sweep) -> Values:
        return difference("probe_accuracy", first(sweep), second(sweep), steps=_shortest(sweep))(sweep)

    return measure


def _spread_of_middle_weights(sweep: Sweep) -> Values:
    """Largest minus smallest accuracy of the linear probe, for λ from 0.25 to 0.75."""
    runs = trained_runs(sweep, ["probe_accuracy"], ["seed", "mixup_weight"], {"mixup_weight": [0.25, 0.5, 0.75]})
    by_weight = runs.pivot_table("probe_accuracy", "seed", "mixup_weight", dropna=False)
    return one(by_weight.max(axis=1, skipna=False) - by_weight.min(axis=1, skipna=False))


def _regime(
    value: Callable[[pd.DataFrame], pd.Series], metrics: list[str], alphas: list[float], **where: float
) -> Measure:
    """A value of each run of `theorem2-regime` with one of these α, for each cell."""
    settings = ["alpha", "radius", "corruption", "separation", "samples", "crops", "step_size"]

    def measure(sweep: Sweep) -> Values:
        runs = trained_runs(sweep, metrics, ["seed", "step", *settings], {"alpha": alphas, **where})
        return by_cell(runs.assign(value=value(runs)), ["alpha", "radius"])

    return measure


def _over_4_rho(metric: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda runs: runs[metric] / theory.clustered_error_bound(runs["corruption"])


def _entrywise(runs: pd.DataFrame) -> pd.Series:
    """The largest error on unseen crops over 4ρ + δ/8, the bound of the proof's step 2."""
    bound: pd.Series = runs["separation"] / 8 + theory.clustered_error_bound(runs["corruption"])
    return runs["largest_test_error"] / bound


def _label_error(runs: pd.DataFrame) -> pd.Series:
    zeta = theory.clustered_error_bound(runs["corruption"])
    return runs["label_error"] / theory.refined_error_bound(runs["alpha"], runs["given_label_error"], zeta)


def _late_error(runs: pd.DataFrame) -> pd.Series:
    """The network's error over 4ρ of runs that have trained for t₀ steps or more."""
    a_run = runs.iloc[0]
    steps = theory.training_steps(
        runs["step_size"],
        runs["smallest_eigenvalue"],
        a_run["alpha"],
        a_run["corruption"],
        a_run["samples"],
        a_run["crops"],
    )
    return _over_4_rho("train_error")(runs).where(runs["step"] >= steps)


def _weight_distance(runs: pd.DataFrame) -> pd.Series:
    return runs["weight_distance"] / theory.weight_distance_bound(
        runs["smallest_eigenvalue"], int(runs["samples"].iloc[0])
    )


def _is_1(metric: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda runs: runs[metric] == 1


def _initial_misfit(sweep: Sweep) -> Values:
    """‖f(W₀) − y‖/√n over √(log K). Crops are equal, so that ỹ − f = (1 − α)·(y − f)."""
    where = {"alpha": _TRAINED[0], "radius": 0.0}
    start = sweep.read("curves", ["seed", "train_loss"], {**where, "step": 0}).set_index("seed")["train_loss"]
    samples = int(sweep.read("runs", ["samples"], where)["samples"].iloc[0])
    return one(np.sqrt(2 * start) / (1 - _TRAINED[0]) / theory.initial_misfit_bound(samples))


def _path_deviation(sweep: Sweep) -> Values:
    """Distance of the outputs from those of a run with ε = 0, at the largest ε over that at half of it; for each α."""
    found = {}
    for alpha in _TRAINED:
        outputs = {radius: _outputs(sweep, alpha, radius) for radius in (0.0, 0.0025, 0.005)}
        seeds = sorted(set.intersection(*(set(each) for each in outputs.values())))
        far, near = (
            {seed: np.linalg.norm(outputs[radius][seed] - outputs[0.0][seed]) for seed in seeds}
            for radius in (0.005, 0.0025)
        )
        found[f"alpha {alpha:g}"] = pd.Series({seed: far[seed] / near[seed] for seed in seeds})
    return found


def _outputs(sweep: Sweep, alpha: float, radius: float) -> dict[int, np.ndarray]:
    """The network's outputs on the training crops at the end, by seed."""
    where: Where = {"alpha": alpha, "radius": radius, "metric": "output"}
    arrays = sweep.read("arrays", ["seed", "step", "values"], where)
    last = arrays[arrays["step"] == arrays["step"].max()]
    return {int(seed): np.array(values, float) for seed, values in zip(last["seed"], last["values"], strict=True)}


def _all_recovered(sweep: Sweep) -> Values:
    runs = trained_runs(sweep, ["recovered_share"], ["seed"], _RHO[0.1])
    return one((runs.set_index("seed")["recovered_share"] == 1).groupby("seed").all())


def _left_wrong(sweep: Sweep) -> Values:
    return one(1 - at_end(sweep, "wrong_recovered_share", _RHO[0.4]))


def _limits(where: Where, against: Where) -> Measure:
    """The share of labels recovered, in one setting of `theorem2-limits` minus another one."""
    return difference("recovered_share", {"alpha": _ALPHA, **where}, {"alpha": _ALPHA, **against})


def _refined_over_given(sweep: Sweep, positive: str | None = None) -> Values:
    """‖ỹ − y*‖ over ‖y − y*‖ in each setting with refined labels, at most 100: the value of a run that diverged."""
    names = [name for name in sweep.varying if name != "alpha"]
    columns = ["seed", "status", "label_error", "given_label_error", *names]
    runs = sweep.read("runs", columns, {"alpha": _ALPHA} | ({"positive": positive} if positive else {}))
    value = (runs["label_error"] / runs["given_label_error"]).where(runs["status"] == Status.DONE, 100.0)
    return by_cell(runs.assign(value=value.clip(upper=100.0)), names)


def _at(where: Where) -> Measure:
    return final("probe_accuracy", where)


_BETTER: dict[str, tuple[Where, Where]] = {
    "table1-sane-surpasses-moco": (_WEAK, _MOCO),
    "table1-strong-improves-sane": (_STRONG, _WEAK),
    "controls-classes-help": ({"refinery": "classes"}, {"refinery": "none"}),
    "controls-refinery-beats-uniform": ({"refinery": "both"}, {"refinery": "uniform"}),
    "controls-refinery-helps": ({"refinery": "both"}, {"refinery": "none"}),
}
"""Comparisons by nearest neighbours and by the linear probe: names, better runs and worse runs."""

MEASURES: dict[str, Measure] = {
    **{
        f"table1-{name}-{method}": final(metric, where)
        for name, where in (("moco", _MOCO), ("sane", _WEAK), ("sane-strong", _STRONG))
        for method, metric in _METRICS.items()
    },
    **{
        f"{name}-{method}": difference(metric, better, worse)
        for name, (better, worse) in _BETTER.items()
        for method, metric in _METRICS.items()
    },
    "refined-labels-favour-the-class": final("label_class_lift", _WEAK),
    "refined-labels-beat-uniform-ones": _label_gain(_WEAK),
    "imagenet-labels-favour-the-class": final("label_class_lift", _single_crop),
    "imagenet-labels-beat-uniform-ones": _label_gain(_single_crop),
    "controls-labels-favour-the-class": final("label_class_lift", {"refinery": "both"}),
    "controls-labels-beat-uniform-ones": _label_gain({"refinery": "both"}),
    **{
        f"table2-{word}-{views}-{epochs}": _at({**_SANE, "crops": crops, "mixup_views": views, **_STEPS[epochs]})
        for word, crops in (("single", "96"), ("multi", "224, 192, 160, 128, 96"))
        for views in ("weak", "strong")
        for epochs in _STEPS
    },
    **{f"table2-moco-{epochs}": _at({**_MOCO, **steps}) for epochs, steps in _STEPS.items()},
    "table2-multi-surpasses-single": _crops_difference(_crops(multi=True), _crops(multi=False)),
    "table2-sane-surpasses-moco": _crops_difference(_crops(multi=False), lambda sweep: _MOCO),
    **{
        f"table4-{part}{suffix}": _at({"refinery": part, "mixup": mixup})
        for suffix, mixup in (("", "none"), ("-mixup", "momentum"))
        for part in ("none", "p", "q", "both")
    },
    "table4-all-help": difference("probe_accuracy", _SANE, _MOCO),
    "table4-refinery-helps-with-mixup": difference("probe_accuracy", _SANE, _MIXUP_ONLY),
    "table4-refinery-helps-without-mixup": difference("probe_accuracy", _REFINERY_ONLY, _MOCO),
    "table4-mixup-helps": difference("probe_accuracy", _MIXUP_ONLY, _MOCO),
    **{
        f"table4-{part}-helps": difference("probe_accuracy", {"refinery": part, "mixup": "none"}, _MOCO)
        for part in ("p", "q")
    },
    **{f"table5-weight-{weight:g}": _at({"mixup_weight": weight}) for weight in (0.0, 0.25, 0.5, 0.75, 1.0)},
    **{
        f"table5-half-surpasses-{end:g}": difference("probe_accuracy", {"mixup_weight": 0.5}, {"mixup_weight": end})
        for end in (0.0, 1.0)
    },
    "table5-stable": _spread_of_middle_weights,
    **{
        f"table6-{kind}-{views}": _at(_mixup(kind, views))
        for views in ("weak", "strong")
        for kind in ("vanilla", "momentum")
    },
    **{
        f"table6-momentum-surpasses-vanilla-{views}-{method}": difference(
            metric, _mixup("momentum", views), _mixup("vanilla", views)
        )
        for views, method, metric in (
            ("weak", "linear", "probe_accuracy"),
            ("weak", "knn", "knn_accuracy"),
            ("strong", "linear", "probe_accuracy"),
        )
    },
    "table6-strong-improves-momentum": difference(
        "probe_accuracy", _mixup("momentum", "strong"), _mixup("momentum", "weak")
    ),
    "table6-strong-impairs-vanilla": difference(
        "probe_accuracy", _mixup("vanilla", "weak"), _mixup("vanilla", "strong")
    ),
    **{f"table6-imagenet-{kind}": _at({"mixup": kind}) for kind in ("vanilla", "momentum")},
    "table6-imagenet-momentum-surpasses-vanilla": difference(
        "probe_accuracy", {"mixup": "momentum"}, {"mixup": "vanilla"}
    ),
    "sensitivity-half-surpasses-0": _in_each_setting("knn_accuracy", "mixup_weight", 0.5, 0.0),
    "sensitivity-half-surpasses-1": _in_each_setting("knn_accuracy", "mixup_weight", 0.5, 1.0),
    "beyond-refinery-helps": _in_each_setting("noisy_probe_accuracy", "m2", 1.0, 0.0),
    "beyond-sane-surpasses-moco": _in_each_setting("noisy_probe_accuracy", "mixup_weight", 0.5, 0.0),
    "beyond-recovery-needs-small-corruption": _in_each_setting("recovered_share", "corruption", 0.05, 0.4),
    "theorem2-closer-than-given": ratio("label_error", "given_label_error", _RHO[0.2]),
    "theorem2-all-recovered": _all_recovered,
    "theorem2-too-much-corruption": _left_wrong,
    "theorem2-unseen-crops": final("test_accuracy", _RHO[0.2]),
    "theorem2-beats-given-labels": difference("test_accuracy", _RHO[0.3], {**_RHO[0.3], "alpha": 0.0}),
    "regime-network-error": _regime(_over_4_rho("train_error"), ["train_error"], _TRAINED),
    "regime-label-error": _regime(_label_error, ["label_error", "given_label_error"], _TRAINED),
    "regime-entrywise-error": _regime(
        _over_4_rho("largest_train_error"), ["largest_train_error"], _TRAINED, radius=0.0
    ),
    "regime-unseen-error": _regime(_entrywise, ["largest_test_error"], _TRAINED),
    "regime-recovered": _regime(_is_1("recovered_share"), ["recovered_share"], _TRAINED[1:]),
    "regime-recovered-at-smallest-alpha": _regime(_is_1("recovered_share"), ["recovered_share"], _TRAINED[:1]),
    "regime-unseen-crops": _regime(_is_1("test_accuracy"), ["test_accuracy"], _TRAINED),
    "regime-error-after-t0": _regime(_late_error, ["train_error", "smallest_eigenvalue"], [0.999]),
    "regime-weight-distance": _regime(
        _weight_distance, ["weight_distance", "smallest_eigenvalue"], _TRAINED, radius=0.0
    ),
    "regime-initial-misfit": _initial_misfit,
    "regime-path-deviation": _path_deviation,
    "limits-closer-everywhere": _refined_over_given,
    "limits-centre-harms": lambda sweep: _refined_over_given(sweep, "centre"),
    "limits-never-worse": _in_each_setting("test_accuracy", "alpha", _ALPHA, 0.0),
    "limits-fixed-positives": _limits({"positive": "other", **_FAR}, {"positive": "fixed", **_FAR}),
    "limits-more-classes": _limits({"positive": "other", **_FAR}, {"classes": 5}),
}
