"""Tables in which the claims of self-labeling hold, or don't."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from mislabel.analysis.claims.claim import paper
from tests.analysis.claims.tables import SEEDS, TableSweep

Make = Callable[[bool], TableSweep]
_REGIME: dict[str, Any] = {
    "corruption": 0.025, "separation": 0.9, "samples": 4, "crops": 40, "step_size": 0.3, "step": 15_000,
    "given_label_error": 0.14, "smallest_eigenvalue": 0.2,
}  # fmt: skip
_LIMITS: list[dict[str, Any]] = [
    {"positive": positive, "classes": classes, "radius": 0.6 if classes == 2 else 0.5}
    for positive, classes in (("other", 2), ("fixed", 2), ("centre", 2), ("other", 5))
]
_CELLS = {
    "none": {"refinery": "none", "mixup": "none", "mixup_views": "same", "crops": ""},
    "same": {"refinery": "both", "mixup": "momentum", "mixup_views": "same", "crops": ""},
    "strong": {"refinery": "both", "mixup": "momentum", "mixup_views": "strong", "crops": ""},
    "single": {"refinery": "both", "mixup": "momentum", "mixup_views": "weak", "crops": "96"},
    "multi": {"refinery": "both", "mixup": "momentum", "mixup_views": "weak", "crops": "224, 192, 160, 128, 96"},
}


def _noisy(mean: float, spread: float = 1e-4) -> list[float]:
    return [mean + spread * (seed % 3 - 1) for seed in range(SEEDS)]


def _number(claim: str, metric: str, **where: float | str) -> Make:
    """The paper's number, or two hundredths less."""
    number = paper("self-labeling").claims[claim].rule.number or 0.0
    return lambda holds: TableSweep([{**where, metric: _noisy(number if holds else number - 0.02)}])


def _pair(metric: str, better: Mapping[str, Any], worse: Mapping[str, Any], gain: float = 0.02) -> Make:
    """Two cells. The first one is better if the claim holds."""
    return lambda holds: TableSweep(
        [{**better, metric: _noisy(0.5 + (gain if holds else -gain))}, {**worse, metric: _noisy(0.5)}]
    )


def _each(metric: str, parameter: str, first: float, second: float, other: str) -> Make:
    """Two settings: in one of them the first value is better, in the other one only if the claim holds."""

    def make(holds: bool) -> TableSweep:
        cells = [
            {parameter: value, other: setting, metric: _noisy(0.5 + gain * (value == first))}
            for setting, gain in ((1.0, 0.2), (2.0, 0.1 if holds else -0.1))
            for value in (first, second)
        ]
        return TableSweep(cells, varying=[parameter, other])

    return make


def _values(where: Mapping[str, Any], right: Mapping[str, float], wrong: Mapping[str, float]) -> Make:
    """One cell with these values."""
    return lambda holds: TableSweep([{**where, **(right if holds else wrong)}])


def _regime(right: Mapping[str, float], wrong: Mapping[str, float], *alphas: float) -> Make:
    """Cells of the theorem's regime. The claim does not hold in the last one, or holds in all."""

    def make(holds: bool) -> TableSweep:
        cells = [{**_REGIME, "alpha": alpha, "radius": 0.0, **right} for alpha in alphas or (0.33, 0.8, 0.95)]
        return TableSweep([*cells[:-1], {**cells[-1], **(right if holds else wrong)}])

    return make


def _initial_misfit(holds: bool) -> TableSweep:
    sweep = TableSweep([{**_REGIME, "alpha": 0.33, "radius": 0.0, "train_loss": 0.0}])
    loss = (0.67 * (0.7 if holds else 1.5)) ** 2 / 2
    sweep.tables["curves"] = sweep.tables["runs"].assign(step=0, train_loss=loss)
    return sweep


def _path_deviation(holds: bool) -> TableSweep:
    far = 2.0 if holds else 3.0
    arrays = [
        {"alpha": alpha, "radius": radius, "metric": "output", "seed": seed, "step": 100, "values": [by, -by]}
        for alpha in (0.33, 0.8, 0.95)
        for radius, by in ((0.0, 0.0), (0.0025, 1e-3), (0.005, far * 1e-3))
        for seed in range(SEEDS)
    ]
    return TableSweep([{}], arrays=pd.DataFrame(arrays))


def _stable(holds: bool) -> TableSweep:
    last = 0.955 if holds else 0.93
    return TableSweep(
        [{"mixup_weight": w, "probe_accuracy": _noisy(v)} for w, v in ((0.25, 0.958), (0.5, 0.959), (0.75, last))]
    )


def _limits(metric: str, right: Mapping[str, float], wrong: Mapping[str, float]) -> Make:
    """The settings of `theorem2-limits`, with values by positive, or by number of classes for 5 classes."""

    def make(holds: bool) -> TableSweep:
        values = right if holds else wrong
        cells = [
            {**cell, "alpha": 0.8, "given_label_error": 1.0}
            | {metric: _noisy(values[cell["positive"] if cell["classes"] == 2 else "5"])}
            for cell in _LIMITS
        ]
        given = [{**cell, "alpha": 0.0, "given_label_error": 1.0, metric: _noisy(0.8)} for cell in _LIMITS]
        return TableSweep([*cells, *given], varying=["alpha", "positive", "classes", "radius"])

    return make


def _distances(where: Mapping[str, Any]) -> Make:
    right = {"label_distance": 0.8, "uniform_distance": 0.9, "classes_distance": 0.5}
    return _values(where, right, {**right, "label_distance": 0.95})


def _controls(first: str, second: str, metric: str) -> Make:
    return _pair(metric, {"refinery": first}, {"refinery": second})


def _mixup(kind: str, views: str) -> dict[str, str]:
    return {"mixup": kind, "mixup_views": "same" if views == "weak" else views}


_METRICS = {"knn": "knn_accuracy", "linear": "probe_accuracy"}
_PART = [{"refinery": "none", "mixup": "none"}, {"refinery": "none", "mixup": "momentum"}]
_BOTH = [{**part, "refinery": "both"} for part in _PART]
_EVEN = {"other": 0.9, "fixed": 0.9, "centre": 0.9, "5": 0.9}
_OUTSIDE = {"alpha": 0.8, "corruption": 0.2, "given_label_error": 0.4}

TABLES: dict[str, Make] = {
    **{
        f"table1-{name}-{method}": _number(f"table1-{name}-{method}", metric, **_CELLS[cell])
        for name, cell in (("moco", "none"), ("sane", "same"), ("sane-strong", "strong"))
        for method, metric in _METRICS.items()
    },
    **{
        f"{name}-{method}": _pair(metric, _CELLS[better], _CELLS[worse])
        for name, better, worse in (
            ("table1-sane-surpasses-moco", "same", "none"),
            ("table1-strong-improves-sane", "strong", "same"),
        )
        for method, metric in _METRICS.items()
    },
    **{
        f"controls-{name}-{method}": _controls(first, second, metric)
        for name, first, second in (
            ("classes-help", "classes", "none"),
            ("refinery-beats-uniform", "both", "uniform"),
            ("refinery-helps", "both", "none"),
        )
        for method, metric in _METRICS.items()
    },
    "controls-labels-favour-the-class": _values(
        {"refinery": "both"}, {"label_class_lift": 0.1}, {"label_class_lift": 0.0}
    ),
    "controls-labels-beat-uniform-ones": _distances({"refinery": "both"}),
    "refined-labels-favour-the-class": _values(_CELLS["same"], {"label_class_lift": 0.1}, {"label_class_lift": 0.0}),
    "refined-labels-beat-uniform-ones": _distances(_CELLS["same"]),
    "imagenet-labels-favour-the-class": _values(
        {**_CELLS["single"], "steps": 200}, {"label_class_lift": 0.1}, {"label_class_lift": 0.0}
    ),
    "imagenet-labels-beat-uniform-ones": _distances({**_CELLS["single"], "steps": 200}),
    **{
        f"table2-{word}-{views}-{epochs}": _number(
            f"table2-{word}-{views}-{epochs}", "probe_accuracy", steps=steps, **{**_CELLS[word], "mixup_views": views}
        )
        for word in ("single", "multi")
        for views in ("weak", "strong")
        for epochs, steps in ((200, 1000800), (800, 4003200))
    },
    **{
        f"table2-moco-{epochs}": _number(f"table2-moco-{epochs}", "probe_accuracy", steps=steps, **_CELLS["none"])
        for epochs, steps in ((200, 1000800), (800, 4003200))
    },
    "table2-multi-surpasses-single": _pair(
        "probe_accuracy", {**_CELLS["multi"], "steps": 200}, {**_CELLS["single"], "steps": 200}
    ),
    "table2-sane-surpasses-moco": _pair(
        "probe_accuracy", {**_CELLS["single"], "steps": 200}, {**_CELLS["none"], "steps": 200}
    ),
    **{
        f"table4-{part}{suffix}": _number(f"table4-{part}{suffix}", "probe_accuracy", refinery=part, mixup=mixup)
        for suffix, mixup in (("", "none"), ("-mixup", "momentum"))
        for part in ("none", "p", "q", "both")
    },
    "table4-all-help": _pair("probe_accuracy", _BOTH[1], _PART[0]),
    "table4-refinery-helps-with-mixup": _pair("probe_accuracy", _BOTH[1], _PART[1]),
    "table4-refinery-helps-without-mixup": _pair("probe_accuracy", _BOTH[0], _PART[0]),
    "table4-mixup-helps": _pair("probe_accuracy", _PART[1], _PART[0]),
    **{
        f"table4-{part}-helps": _pair("probe_accuracy", {**_PART[0], "refinery": part}, _PART[0]) for part in ("p", "q")
    },
    **{
        f"table5-weight-{weight:g}": _number(f"table5-weight-{weight:g}", "probe_accuracy", mixup_weight=weight)
        for weight in (0.0, 0.25, 0.5, 0.75, 1.0)
    },
    **{
        f"table5-half-surpasses-{end:g}": _pair("probe_accuracy", {"mixup_weight": 0.5}, {"mixup_weight": end})
        for end in (0.0, 1.0)
    },
    "table5-stable": _stable,
    **{
        f"table6-{kind}-{views}": _number(f"table6-{kind}-{views}", "probe_accuracy", **_mixup(kind, views))
        for kind in ("vanilla", "momentum")
        for views in ("weak", "strong")
    },
    **{
        f"table6-momentum-surpasses-vanilla-{views}-{method}": _pair(
            _METRICS[method], _mixup("momentum", views), _mixup("vanilla", views)
        )
        for views, method in (("weak", "linear"), ("weak", "knn"), ("strong", "linear"))
    },
    "table6-strong-improves-momentum": _pair(
        "probe_accuracy", _mixup("momentum", "strong"), _mixup("momentum", "weak")
    ),
    "table6-strong-impairs-vanilla": _pair("probe_accuracy", _mixup("vanilla", "weak"), _mixup("vanilla", "strong")),
    **{
        f"table6-imagenet-{kind}": _number(f"table6-imagenet-{kind}", "probe_accuracy", mixup=kind)
        for kind in ("vanilla", "momentum")
    },
    "table6-imagenet-momentum-surpasses-vanilla": _pair("probe_accuracy", {"mixup": "momentum"}, {"mixup": "vanilla"}),
    "sensitivity-half-surpasses-0": _each("knn_accuracy", "mixup_weight", 0.5, 0.0, "tau"),
    "sensitivity-half-surpasses-1": _each("knn_accuracy", "mixup_weight", 0.5, 1.0, "tau"),
    "beyond-refinery-helps": _each("noisy_probe_accuracy", "m2", 1.0, 0.0, "kappa"),
    "beyond-sane-surpasses-moco": _each("noisy_probe_accuracy", "mixup_weight", 0.5, 0.0, "tau"),
    "beyond-recovery-needs-small-corruption": _each("recovered_share", "corruption", 0.05, 0.4, "width"),
    "theorem2-closer-than-given": _values(_OUTSIDE, {"label_error": 0.2}, {"label_error": 0.4}),
    "theorem2-all-recovered": _values(
        {**_OUTSIDE, "corruption": 0.1}, {"recovered_share": 1.0}, {"recovered_share": 0.9}
    ),
    "theorem2-too-much-corruption": _values(
        {**_OUTSIDE, "corruption": 0.4}, {"wrong_recovered_share": 0.5}, {"wrong_recovered_share": 1.0}
    ),
    "theorem2-unseen-crops": _values(_OUTSIDE, {"test_accuracy": 1.0}, {"test_accuracy": 0.9}),
    "theorem2-beats-given-labels": _pair(
        "test_accuracy", {"alpha": 0.8, "corruption": 0.3}, {"alpha": 0.0, "corruption": 0.3}, gain=0.1
    ),
    "regime-network-error": _regime({"train_error": 0.0225}, {"train_error": 0.2}),
    "regime-label-error": _regime({"label_error": 0.02}, {"label_error": 0.2}),
    "regime-entrywise-error": _regime({"largest_train_error": 0.0225}, {"largest_train_error": 0.2}),
    "regime-unseen-error": _regime({"largest_test_error": 0.03}, {"largest_test_error": 0.3}),
    "regime-recovered": _regime({"recovered_share": 1.0}, {"recovered_share": 0.975}, 0.8, 0.95),
    "regime-recovered-at-smallest-alpha": _regime({"recovered_share": 1.0}, {"recovered_share": 0.975}, 0.33),
    "regime-unseen-crops": _regime({"test_accuracy": 1.0}, {"test_accuracy": 0.9}),
    "regime-error-after-t0": _regime({"train_error": 0.05}, {"train_error": 0.2}, 0.999),
    "regime-weight-distance": _regime({"weight_distance": 2.0}, {"weight_distance": 6.0}),
    "regime-initial-misfit": _initial_misfit,
    "regime-path-deviation": _path_deviation,
    "limits-closer-everywhere": _limits(
        "label_error", dict.fromkeys(_EVEN, 0.5), {**dict.fromkeys(_EVEN, 0.5), "centre": 3.0}
    ),
    "limits-centre-harms": _limits(
        "label_error", {**dict.fromkeys(_EVEN, 0.5), "centre": 3.0}, dict.fromkeys(_EVEN, 0.5)
    ),
    "limits-never-worse": _limits("test_accuracy", _EVEN, {**_EVEN, "centre": 0.7}),
    "limits-fixed-positives": _limits("recovered_share", {**_EVEN, "fixed": 0.8}, _EVEN),
    "limits-more-classes": _limits("recovered_share", {**_EVEN, "5": 0.7}, _EVEN),
}
