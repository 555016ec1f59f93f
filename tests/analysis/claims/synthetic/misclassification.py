"""Tables in which each claim of the paper on misclassification holds, and tables that contradict it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mislabel.analysis.theory import misclassification as theory
from tests.analysis.claims.tables import TableSweep

SEEDS = 80
STEPS = np.arange(0, 40_001, 100)
Rows = Sequence[Mapping[str, Any]]
Table = Callable[[bool], TableSweep]
Curve = Callable[[Any, np.ndarray], Any]
"""Values at shares of the training, for a run with these settings."""
CLEAN, NOISY, SMOOTHED = ({"noise_rate": p, "smoothing": s} for p, s in ((0.0, 0.0), (0.1, 0.0), (0.0, 0.1)))


def table(rows: Rows, varying: Sequence[str] = (), **others: pd.DataFrame) -> TableSweep:
    """A sweep whose metrics vary a little between seeds."""
    spread = np.linspace(-1, 1, SEEDS)
    near = [
        {
            name: [value * (1 + 1e-3 * e) for e in spread]
            if isinstance(value, float) and name not in varying
            else value
            for name, value in row.items()
        }
        for row in rows
    ]
    return TableSweep(near, SEEDS, varying, **others)


def changed(metric: str, holds: tuple[float, float], fails: tuple[float, float], first: Any, second: Any) -> Table:
    """Two settings, with the metric in the first and in the second of them."""

    def make(hold: bool) -> TableSweep:
        values = holds if hold else fails
        rows = [{**where, metric: value} for where, value in zip((first, second), values, strict=True)]
        return table(rows, [name for name in first if name in second])

    return make


def single(metric: str, holds: float, fails: float, **settings: Any) -> Table:
    """One setting."""
    return lambda hold: table([{**settings, metric: holds if hold else fails}], list(settings))


def several(metrics: Mapping[str, tuple[Any, Any]], varying: str, values: Sequence[Any], **fixed: Any) -> Table:
    """Several settings; each metric has a value where the claim holds, and one where it does not (in the last)."""

    def make(hold: bool) -> TableSweep:
        rows = [
            {varying: value, **fixed}
            | {metric: both[not hold and value == values[-1]] for metric, both in metrics.items()}
            for value in values
        ]
        return table(rows, [varying])

    return make


def curved(metric: str, holds: Curve, fails: Curve, rows: Rows = ({},), varying: Sequence[str] = ()) -> Table:
    """Curves as functions of the run's settings and the share of the steps that are done, in the last row's runs."""

    def make(hold: bool) -> TableSweep:
        sweep = TableSweep(rows, SEEDS, varying)
        frames = []
        runs: Iterable[Any] = sweep.tables["runs"].itertuples()
        for number, run in enumerate(runs):
            last = number % len(rows) == len(rows) - 1
            values = (holds if hold or not last else fails)(run, STEPS / STEPS[-1]) * (1 + 1e-4 * (run.seed % 2))
            frames.append(pd.DataFrame({"run_id": run.run_id, "step": STEPS, metric: values}))
        sweep.tables["curves"] = pd.concat(frames, ignore_index=True)
        return sweep

    return make


NEURONS = [{"dim": 30, "learning_rate": 1 / 900, "loss": loss} for loss in ("hinge", "logistic")]


def neuron(factor: float, level: float = 1.0) -> Curve:
    """A norm that falls at `factor` times the derived rate, to `level` times the derived level."""

    def norm(run: Any, share: np.ndarray) -> Any:
        fall = factor * theory.fall_per_rate(4.0, run.dim, run.learning_rate, run.loss) * run.learning_rate
        floor = level * theory.level(run.dim, run.learning_rate, run.loss)
        return np.maximum(5.5 - fall * share * STEPS[-1], floor)

    return norm


def falling(loss: int | None, fails: Curve) -> Table:
    rows = NEURONS if loss is None else [NEURONS[loss]]
    return curved("weight_norm", neuron(1.0), fails, rows, ["loss", "learning_rate"])


def bent(run: Any, share: np.ndarray) -> Any:
    return 5.5 * np.exp(-20 * share) * (1 + 0.5 * np.sin(300 * share)) + 1.0


def layers(loss: str, holds: float, fails: float) -> Table:
    """End over start of both layers' norms."""

    def make(hold: bool) -> TableSweep:
        left = holds if hold else fails
        sweep = curved("first_norm", fading(left), fading(left), [{"loss": loss}], ["loss"])(True)
        curves = sweep.tables["curves"]
        return TableSweep([{"loss": loss}], SEEDS, ["loss"], curves=curves.assign(output_norm=curves["first_norm"]))

    return make


def fading(left: float, late: float | None = None) -> Curve:
    """A norm that falls from 1 to `left` within a fifth of the steps; to `late` in the second half."""
    return lambda run, share: np.where(share > 0.5, left if late is None else late, np.maximum(1 - 5 * share, left))


def two_losses(holds: Curve, fails: Curve, metric: str = "first_norm") -> Table:
    return curved(metric, holds, fails, [{"loss": "hinge"}, {"loss": "logistic"}], ["loss"])


def slow(speed: float) -> Curve:
    """A norm that vanishes, with cross entropy `speed` times as fast as with the hinge loss."""
    return lambda run, share: np.maximum(1 - 10 * (speed if run.loss == "logistic" else 1) * share, 0.01)


def bias(rise: float) -> Curve:
    return lambda run, share: -share + rise * np.sin(20 * share)


def layer_norms(holds: bool) -> TableSweep:
    """Norms of three layers, the last of which rises from frame to frame in the other table."""
    sweep = TableSweep([{"depth": 3, "loss": "hinge"}], SEEDS, ["depth", "loss"])
    frames = [
        {"run_id": run, "step": step, "metric": "layer_norm",
         "values": np.array([5 - step, 4 - step, 3 - step if holds else 3 + step])}
        for run in sweep.tables["runs"]["run_id"]
        for step in range(3)
    ]  # fmt: skip
    sweep.tables["arrays"] = pd.DataFrame(frames)
    return sweep


def layer_shares(holds: bool) -> TableSweep:
    """Smoothing lowers the activity of deeper layers more, or less."""
    smoothed = np.linspace(0.5, 0.3 if holds else 0.7, 6)
    arrays = pd.DataFrame(
        [
            {"seed": seed, "step": 100, "metric": "layer_active_share", "smoothing": amount,
             "values": smoothed if amount else np.full(6, 0.5)}
            for seed in range(SEEDS)
            for amount in (0.0, 0.1)
        ]
    )  # fmt: skip
    return TableSweep([{}], SEEDS, arrays=arrays)


def activity(holds: bool) -> TableSweep:
    values = ((0.0, 0.5), (0.2, 0.2), (1.0, 0.1 if holds else 0.3))
    return table([{"noise_rate": p, "active_share": share} for p, share in values], ["noise_rate"])


def of_noise(metric: str, holds: tuple[float, float], fails: tuple[float, float], rates: tuple[float, float]) -> Table:
    """The metric at two noise rates."""
    first, second = ({"noise_rate": rate} for rate in rates)
    return changed(metric, holds, fails, first, second)


def of_rates(shares: Mapping[float, tuple[float, float]], **fixed: Any) -> Table:
    """The active share at each learning rate."""
    return lambda hold: table(
        [{"learning_rate": rate, "active_share": both[not hold], **fixed} for rate, both in shares.items()],
        ["learning_rate", *fixed],
    )


def of_labels(metric: str, holds: tuple[float, float], fails: tuple[float, float], first: Any, second: Any) -> Table:
    """The metric for two kinds of labels, in two widths; in the other table only the second width contradicts."""

    def make(hold: bool) -> TableSweep:
        rows = [
            {**where, "width": width, metric: (holds if hold or width == 60 else fails)[number]}
            for width in (60, 240)
            for number, where in enumerate((first, second))
        ]
        return table(rows, ["width", "noise_rate", "smoothing"])

    return make


CUBE = [{"noise_rate": p, "smoothing": s} for p, s in ((0.0, 0.0), (0.2, 0.0), (0.0, 0.2), (1.0, 0.0))]
IMAGES = {"loss": "logistic", "trained": "both"}
BASIS = {"width": 200}

TABLES: dict[str, Table] = {
    **{
        f"fig1-{name}-{kind}-{point}": single(metric, value, 2 * value, noise_rate=rate)
        for name, rate, error, active in (("noisy", 0.2, 0.21, 47.0), ("clean", 0.0, 0.49, 94.0))
        for kind, value, metrics in (
            ("error", error, ("interpolation_test_error", "test_error")),
            ("active", active, ("interpolation_active_neurons", "active_neurons")),
        )
        for point, metric in zip(("interpolated", "settled"), metrics, strict=True)
    },
    "fig1-lower-error-interpolated": of_noise("interpolation_test_error", (0.4, 0.2), (0.4, 0.4), (0.0, 0.2)),
    "fig1-lower-error-settled": of_noise("test_error", (0.4, 0.2), (0.4, 0.4), (0.0, 0.2)),
    "fig1-sparser-interpolated": of_noise("interpolation_active_neurons", (100.0, 50.0), (100.0, 90.0), (0.0, 0.2)),
    "fig1-sparser-settled": of_noise("active_neurons", (100.0, 50.0), (100.0, 90.0), (0.0, 0.2)),
    "fig1-fits": several({"interpolation_step": (100.0, np.nan)}, "noise_rate", (0.0, 0.2)),
    "fig1-test-error-settles": curved(
        "test_error", lambda run, share: 0.3 + 0 * share, lambda run, share: 0.5 - 0.3 * share,
        [{"noise_rate": 0.0}, {"noise_rate": 0.2}], ["noise_rate"],
    ),
    "fig1-test-activity": several(
        {"test_active_neurons": (50.0, 60.0), "active_neurons": (50.0, 50.0)}, "noise_rate", (0.0, 0.2)
    ),
    "fig1-longer": of_noise("interpolation_step", (100.0, 300.0), (100.0, 110.0), (0.0, 0.2)),
    "activity-at-pure-noise": of_noise("active_share", (0.5, 0.1), (0.5, 0.4), (0.0, 1.0)),
    "activity-tuned": activity,
    "fig2-linear": falling(0, bent),
    "fig2-fall-rate": falling(None, neuron(2.0)),
    "fig2-hinge-level": falling(0, neuron(1.0, 6.0)),
    "fig2-logistic-level": curved(
        "weight_norm", neuron(1.0, 0.3), neuron(1.0), [NEURONS[1]], ["loss", "learning_rate"]
    ),
    "fig2-derived-level": falling(None, neuron(1.0, 1.3)),
    "theorem2a-steps": falling(0, neuron(0.5)),
    "theorem2a-level": falling(0, neuron(1.0, 3.0)),
    "theorem2b-steps": curved(
        "weight_norm", lambda run, share: 20 - 19 * share, lambda run, share: 20 + share,
        [{"dim": 30, "learning_rate": 1 / 100, "loss": "logistic"}], ["loss", "learning_rate"],
    ),
    "theorem2b-level": falling(1, lambda run, share: 5.5 + share),
    "fig3-hinge-vanishes": layers("hinge", 0.001, 0.05),
    "fig3-logistic-vanishes": layers("logistic", 0.05, 0.2),
    "fig3-logistic-floor": curved("first_norm", fading(0.1), fading(0.1, 0.05), [{"loss": "logistic"}], ["loss"]),
    "fig3-keeps-firing": several({"active_share": (0.5, 0.1)}, "loss", ("hinge", "logistic")),
    "fig3-cross-entropy-longer": two_losses(slow(0.4), slow(0.8)),
    "fig4-weights-stay": two_losses(fading(0.2), fading(0.05)),
    "fig4-weights-fall-first": two_losses(lambda run, share: np.exp(-10 * share), lambda run, share: 1 + 0 * share),
    "fig4-floor": two_losses(fading(0.2), fading(0.2, 0.1)),
    "fig4-stops-firing": several({"active_share": (0.001, 0.3)}, "loss", ("hinge", "logistic")),
    "fig4-biases-negative": several({"max_bias": (-1.0, 0.2)}, "loss", ("hinge", "logistic")),
    "fig4-biases-fall": two_losses(bias(0.0), bias(0.3), "mean_bias"),
    "theorem1-every-layer": curved(
        "shrinking_share", lambda run, share: 0.998 + 0 * share, lambda run, share: 0.9 + 0 * share,
        [{"depth": 2, "loss": "hinge"}, {"depth": 3, "loss": "hinge"}], ["depth", "loss"],
    ),
    "corollary1-monotone": layer_norms,
    "theorem3-every-output": several(
        {"max_output": (1.0, 3.0), "output_bound": (2.0, 2.0)}, "learning_rate", (0.01, 0.1), **BASIS
    ),
    "theorem4-large-rate": several({"max_active_neurons": (0, 1)}, "learning_rate", (1.0, 2.0), **BASIS),
    "theorem4-small-rate": several({"min_active_neurons": (80, 0)}, "learning_rate", (0.005, 0.01), **BASIS),
    "theorem4-half": several({"min_active_neurons": (86.0, 60.0)}, "learning_rate", (0.005, 0.01), **BASIS),
    "rates-sparser-basis": of_rates({0.01: (0.5, 0.5), 0.1: (0.47, 0.5), 1.0: (0.0, 0.0)}),
    "rates-sparser-hypercube": of_rates({0.02: (0.4, 0.4), 0.03: (0.3, 0.4)}, **CUBE[1]),
    "rates-sparser-images": of_rates({0.01: (0.4, 0.4), 0.05: (0.1, 0.4)}),
    "pure-noise-mnist": single("active_share", 0.001, 0.2, learning_rate=0.001),
    "batch-sparser": of_noise("active_share", (0.4, 0.3), (0.4, 0.4), (0.0, 0.1)),
    "beyond-sparser": of_labels("active_share", (0.4, 0.2), (0.4, 0.4), CUBE[0], CUBE[1]),
    "beyond-lower-error": of_labels("test_error", (0.4, 0.3), (0.4, 0.4), CUBE[0], CUBE[1]),
    "beyond-optimum": of_labels("test_error", (0.3, 0.5), (0.3, 0.3), CUBE[1], CUBE[3]),
    "beyond-smoothing-sparser": of_labels("active_share", (0.4, 0.3), (0.4, 0.4), CUBE[0], CUBE[2]),
    "beyond-smoothing-denser": of_labels("active_share", (0.2, 0.3), (0.2, 0.2), CUBE[1], CUBE[2]),
    **{
        f"{figure}-{name}{start}": single(metric, value, 3 * value, noise_rate=rate, **more)
        for name, rate, share, neurons in (("clean", 0.0, 0.25, 104.0), ("noisy", 0.1, 0.06, 222.0))
        for figure, metric, value in (("fig5", "active_share", share), ("fig6", "class_neurons", neurons))
        for start, more in (("", {"smoothing": 0.0}), ("-large-start", {"init_scale": 3.0}))
    },
    "fig5-sparser": changed("active_share", (0.3, 0.1), (0.3, 0.3), CLEAN, NOISY),
    "fig5-sparser-large-start": of_noise("active_share", (0.3, 0.1), (0.3, 0.3), (0.0, 0.1)),
    "fig5-lower-error": changed("test_error", (0.02, 0.015), (0.02, 0.02), CLEAN, NOISY),
    "fig5-lower-error-large-start": of_noise("test_error", (0.02, 0.015), (0.02, 0.02), (0.0, 0.1)),
    "fig6-more-associated": changed("class_neurons", (100.0, 200.0), (100.0, 105.0), CLEAN, NOISY),
    "most-associated": lambda holds: table(
        [{**SMOOTHED, "class_neurons": 400.0 if holds else 100.0, "dead_neurons": 50.0, "width": 600}],
        ["noise_rate", "smoothing"],
    ),
    "smoothing-sparser": changed("active_share", (0.3, 0.2), (0.3, 0.3), CLEAN, SMOOTHED),
    "smoothing-denser": changed("active_share", (0.1, 0.2), (0.2, 0.2), NOISY, SMOOTHED),
    "half-active-at-start": curved(
        "active_share", lambda run, share: 0.5 - 0.2 * share, lambda run, share: 0.3 - 0.2 * share,
        [CLEAN], ["noise_rate", "smoothing"],
    ),
    "sparser-without-noise": curved(
        "active_share", lambda run, share: 0.5 - 0.2 * share, lambda run, share: 0.5 + 0 * share,
        [CLEAN], ["noise_rate", "smoothing"],
    ),
    **{
        f"resnet-{name}-{kind}": single(metric, holds, fails, smoothing=amount)
        for name, amount, share in (("clean", 0.0, 0.469), ("smoothed", 0.1, 0.275))
        for kind, metric, holds, fails in (
            ("accuracy", "test_error", 0.07, 0.1), ("active", "active_share", share, 0.6)
        )
    },
    "resnet-sparser": changed("active_share", (0.4, 0.3), (0.4, 0.4), {"smoothing": 0.0}, {"smoothing": 0.1}),
    "resnet-deeper": layer_shares,
    "beyond-images-sparser": of_noise("active_share", (0.4, 0.3), (0.4, 0.4), (0.0, 0.1)),
    "one-layer-sparser": changed(
        "active_share", (0.4, 0.3), (0.4, 0.4),
        {"noise_rate": 0.0, "trained": "first"}, {"noise_rate": 0.1, "trained": "first"},
    ),
    "softmax-denser": changed(
        "active_share", (0.2, 0.3), (0.3, 0.3),
        {"noise_rate": 0.1, **IMAGES}, {"noise_rate": 0.1, **IMAGES, "loss": "softmax"},
    ),
}  # fmt: skip
