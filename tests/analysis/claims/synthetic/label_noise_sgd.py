"""Tables in which the claims of label-noise SGD hold, and tables in which they are contradicted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mislabel.analysis.theory import label_noise_sgd as theory
from tests.analysis.claims.tables import SEEDS, TableSweep

Table = Callable[[bool], TableSweep]
Row = dict[str, Any]

LINEAR = ("sigma", "step_size")
NEURONS = 10


def jitter(value: float) -> list[float]:
    """Values near this one that differ between seeds."""
    return [value * (1 + 0.001 * (seed % 3 - 1)) for seed in range(SEEDS)]


def grid(**axes: Sequence[float]) -> list[Row]:
    points = np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1).reshape(-1, len(axes))
    return [dict(zip(axes, map(float, point), strict=True)) for point in points]


def curves_of(
    runs: pd.DataFrame, steps: Sequence[int], values: Callable[[Mapping[Any, Any], int], Row]
) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"run_id": run["run_id"], "step": step, **values(run, step)}
            for run in runs.to_dict("records")
            for step in steps
        ]
    )


def with_curves(
    rows: Sequence[Row], varying: Sequence[str], steps: Sequence[int], values: Callable[[Mapping[Any, Any], int], Row]
) -> TableSweep:
    sweep = TableSweep(rows, varying=varying)
    sweep.tables["curves"] = curves_of(sweep.tables["runs"], steps, values)
    sweep.tables["curves"]["seed"] = sweep.tables["curves"]["run_id"].map(
        sweep.tables["runs"].set_index("run_id")["seed"]
    )
    return sweep


def curve(metric: str, start: float, good: float, bad: float, *, sigmas: Sequence[float] = (0.5, 1.0)) -> Table:
    """The metric goes from its start to its end; it is bad in one cell only."""

    def table(holds: bool) -> TableSweep:
        rows = [
            {**row, "target_norm": 1.0, "end": jitter(good if holds or number else bad)}
            for number, row in enumerate(reversed(grid(sigma=sigmas, step_size=(0.01, 0.02))))
        ]
        rows = [{**row, metric: row["end"]} for row in rows]
        return with_curves(rows, LINEAR, (0, 50, 100), lambda run, step: {metric: run["end"] if step else start})

    return table


def events(holds: bool) -> TableSweep:
    late = 100.0 if holds else 20.0
    return TableSweep(
        [{"sigma": 0.5, "step_size": 0.1, "full_escape_step": 50.0, "phase_two_step": late}], varying=LINEAR
    )


def neurons(holds: bool) -> TableSweep:
    """Each neuron shrinks at the first of two snapshots after the start and aligns at the second, or the other way."""
    sweep = TableSweep([{"sigma": 0.5, "step_size": 0.1}], varying=LINEAR)
    first, second = ({0: 1.0, 1: 0.1, 2: 0.1}, {0: 0.1, 1: 0.1, 2: 0.9})
    if not holds:
        first, second = {0: 1.0, 1: 0.9, 2: 0.1}, {0: 0.1, 1: 0.9, 2: 0.9}
    sweep.tables["arrays"] = pd.DataFrame(
        [
            {"run_id": run, "step": step, "metric": metric, "values": np.full(NEURONS, values[step])}
            for run in sweep.tables["runs"]["run_id"]
            for metric, values in (("neuron_norm", first), ("neuron_alignment", second))
            for step in values
        ]
    )
    return sweep


def escape(good: float, bad: float, knob: str) -> Table:
    """Escape steps that are a power of the knob, with the bad exponent at one value of the other knob."""

    def table(holds: bool) -> TableSweep:
        rows = grid(sigma=(0.0, 0.5, 1.0), step_size=(0.01, 0.02))
        other = "sigma" if knob == "step_size" else "step_size"
        worst = max(row[other] for row in rows)

        def step(row: Row) -> list[float]:
            exponent = good if holds or row[other] < worst else bad
            return jitter(1e4 * (row[knob] or np.nan) ** exponent)

        return TableSweep([{**row, "full_escape_step": step(row)} for row in rows], varying=LINEAR)

    return table


def in_time(holds: bool) -> TableSweep:
    rows = grid(sigma=(0.0, 0.5, 1.0), step_size=(0.01, 0.02))
    late = {(1.0, 0.02): 2.0} if not holds else {}
    bound = [float(theory.escape_bound(row["sigma"] or np.inf, row["step_size"], 100)) or np.nan for row in rows]
    return TableSweep(
        [
            {**row, "width": 100, "full_escape_step": steps * late.get((row["sigma"], row["step_size"]), 0.1)}
            for row, steps in zip(rows, bound, strict=True)
        ],
        varying=LINEAR,
    )


def while_lazy(metric: str, good: float, bad: float, width: int = 16) -> Table:
    """The metric is bad in one cell while lazy; after the escape it is bad everywhere, which does not count."""

    def table(holds: bool) -> TableSweep:
        rows = [
            {**row, "width": width, "lazy_value": jitter(good if holds or number else bad)}
            for number, row in enumerate(grid(sigma=(1.0, 2.0), step_size=(0.001, 0.002)))
        ]
        return with_curves(
            rows, LINEAR, (0, 50, 100),
            lambda run, step: {"lazy": float(step < 100), metric: run["lazy_value"] if step < 100 else bad},
        )  # fmt: skip

    return table


def square_norm(holds: bool) -> TableSweep:
    """The norm is small at 1/η², and later it is not, or the other way."""
    rows = [{"step_size": rate} for rate in (0.1, 0.2)]

    def values(run: Mapping[Any, Any], step: int) -> Row:
        in_time = 0 < step <= theory.small_norm_bound(run["step_size"])
        return {
            "mean_square_norm": np.sqrt(run["step_size"]) * (0.5 if in_time == holds else 2) * (1 + run["seed"] / 1e4)
        }

    return with_curves(rows, ["step_size"], (0, 20, 90, 200), values)


def shrinking_time(holds: bool) -> TableSweep:
    factors = (1.0, 1.0 if holds else 1.3)
    return TableSweep(
        [
            {"step_size": rate, "small_step": jitter(factor * float(theory.small_norm_step(rate)))}
            for rate, factor in zip((0.01, 0.02), factors, strict=True)
        ],
        varying=["step_size"],
    )


def phase_two(metric: str, value: Callable[[float, bool], float]) -> Table:
    """The metric for two step sizes and targets; it is bad for one target only."""

    def table(holds: bool) -> TableSweep:
        rows = grid(step_size=(0.001, 0.01), target_norm=(0.5, 1.0))
        found = [{**row, metric: jitter(value(row["step_size"], holds or row["target_norm"] < 1))} for row in rows]
        return TableSweep(found, varying=["step_size", "target_norm"])

    return table


def printed(holds: bool) -> TableSweep:
    rows = grid(step_size=(0.001, 0.01), target_norm=(0.5, 1.0))
    rows = [{**row, "printed_step": 10.0} for row in rows]

    def values(run: Mapping[Any, Any], step: int) -> Row:
        aligned = step > 12 or (holds and step >= 10)
        return {"min_alignment": 0.95 if aligned else 0.01 * (1 + run["seed"] / 100)}

    return with_curves(rows, ["step_size", "target_norm"], (0, 8, 12, 100), values)


def network(metrics: Mapping[str, float], bad: Mapping[str, float]) -> Table:
    """Figure 2's metrics at the largest σ; at a smaller one they are bad, which does not count."""

    def table(holds: bool) -> TableSweep:
        rows = [{"sigma": sigma} for sigma in (1.0, 2.0)]

        def values(run: Mapping[Any, Any], step: int) -> Row:
            chosen = metrics if holds and run["sigma"] == 2 else bad
            return {name: value * (1 + run["seed"] / 1e4) for name, value in chosen.items()}

        return with_curves(rows, ["sigma"], (0, 50, 100), values)

    return table


def quotient(numerator: str, denominator: str, good: float, bad: float) -> Table:
    return network({numerator: good * 0.01, denominator: 0.01}, {numerator: bad * 0.01, denominator: 0.01})


def images(value: Callable[[Mapping[Any, Any], bool], Row]) -> Table:
    """A sweep over widths, σ and scales. If the claim does not hold, `value` gives other curves."""

    def table(holds: bool) -> TableSweep:
        rows = grid(width=(16, 64), sigma=(0.5, 2.0), init_scale=(0.5, 1.0))
        return with_curves(
            rows, ["width", "sigma", "init_scale"], (0, 50, 100),
            lambda run, step: {name: found * (1 + run["seed"] / 1e4) for name, found in value(run, holds).items()},
        )  # fmt: skip

    return table


def kernel(scale: float) -> Table:
    """The kernel changes more with noise at this scale, at every width and σ; or not for one of them."""

    def value(run: Mapping[Any, Any], holds: bool) -> Row:
        bad = run["init_scale"] != scale or (not holds and run["width"] == 64 and run["sigma"] == 0.5)
        return {"plain_kernel_change": 0.1, "noisy_kernel_change": 0.1 if bad else 0.3}

    return images(value)


def norms_along(knob: str) -> Table:
    """Norms fall with the knob at each scale, or not at one of them."""

    def table(holds: bool) -> TableSweep:
        rows = grid(sigma=(0.0, 0.5, 1.0), step_size=(0.01, 0.02), init_scale=(0.5, 1.0))
        norm = [1.0 if not holds and row["init_scale"] == 1 else 0.01 / (0.001 + row[knob]) for row in rows]
        found = [{**row, "mean_norm": jitter(value)} for row, value in zip(rows, norm, strict=True)]
        return TableSweep(found, varying=[*LINEAR, "init_scale"])

    return table


def dense_norm(run: Mapping[Any, Any], holds: bool) -> Row:
    last = run["width"] == 64 and run["sigma"] == 2 and run["init_scale"] == 1
    return {"noisy_first_norm_ratio": 0.99 if last and not holds else 0.9}


_SIGMA, _ETA = escape(-2, 0, "sigma"), escape(-2, 0, "step_size")
TABLES: dict[str, Table] = {
    "training-loss-falls": curve("train_loss", 1.0, 0.01, 0.5),
    "test-loss-falls": curve("test_loss", 1.0, 0.01, 0.5),
    "interpolator-is-reached": curve("target_distance", 1.0, 0.1, 0.9),
    "norms-diminish": curve("mean_norm", 1.0, 0.2, 0.8),
    "neurons-align": curve("mean_alignment", 0.1, 0.9, 0.5),
    "phases-in-order": events,
    "neurons-follow-both-phases": neurons,
    "norms-stay-without-noise": curve("mean_norm", 1.0, 0.99, 0.5, sigmas=(0.0,)),
    "directions-stay-without-noise": curve("mean_alignment", 0.1, 0.11, 0.5, sigmas=(0.0,)),
    "escaped-by-t1": in_time,
    "larger-sigma-escapes-earlier": _SIGMA,
    "larger-eta-escapes-earlier": _ETA,
    "escape-exponent-of-sigma": escape(-2, -1, "sigma"),
    "escape-exponent-of-eta": escape(-2, -3, "step_size"),
    "output-weights-are-small-while-lazy": while_lazy("max_output_weight", 0.4, 0.6),
    "norms-diminish-at-each-step": while_lazy("min_diminishing_share", 0.5, 0.1),
    "norms-are-small-in-time": square_norm,
    "norms-shrink-at-the-expected-rate": shrinking_time,
    "aligned-at-the-printed-time": printed,
    "aligned-at-the-corrected-time": phase_two("growth_alignment", lambda rate, good: 0.95 if good else 0.3),
    "misalignment-falls-with-eta": phase_two("growth_alignment", lambda rate, good: 1 - 5 * rate if good else 0.9),
    "converges-in-time": phase_two("converged_distance", lambda rate, good: 1e-4 if good else 0.1),
    "large-neurons-stay-aligned": phase_two("converged_alignment", lambda rate, good: 0.998 if good else 0.9),
    "plain-network-is-linear-in-training": network({"plain_train_gap": 0.05}, {"plain_train_gap": 0.5}),
    "plain-network-is-linear-in-test": network({"plain_test_gap": 0.05}, {"plain_test_gap": 0.5}),
    "noisy-network-departs-in-training": quotient("noisy_train_gap", "plain_train_gap", 10, 1),
    "noisy-network-departs-in-test": quotient("noisy_test_gap", "plain_test_gap", 10, 1),
    "departure-is-not-jitter": quotient("control_test_gap", "plain_test_gap", 10, 1),
    "noise-changes-the-kernel-more": quotient("noisy_kernel_change", "plain_kernel_change", 2, 1),
    "noise-changes-the-kernel": network({"noisy_kernel_change": 0.4}, {"noisy_kernel_change": 0.1}),
    "first-layer-diminishes": network({"noisy_first_norm_ratio": 0.9}, {"noisy_first_norm_ratio": 1.0}),
    "first-layer-stays-without-noise": network({"plain_first_norm_ratio": 1.01}, {"plain_first_norm_ratio": 0.9}),
    "beyond-norms-diminish": curve("mean_norm", 1.0, 0.5, 0.95),
    "beyond-neurons-align": curve("mean_alignment", 0.1, 0.9, 0.2),
    "beyond-norms-stay-without-noise": curve("mean_norm", 1.0, 0.99, 1.5, sigmas=(0.0,)),
    "beyond-test-loss-falls": curve("test_loss", 1.0, 0.01, 0.5),
    "beyond-larger-sigma-smaller-norms": norms_along("sigma"),
    "beyond-larger-eta-smaller-norms": norms_along("step_size"),
    "wider-networks-are-lazier": images(
        lambda run, holds: {"plain_kernel_change": 1 / run["width"] if holds or run["init_scale"] < 1 else 0.1}
    ),
    "rich-from-ntk-initialization": kernel(1.0),
    "rich-from-small-initialization": kernel(0.5),
    "dense-first-layer-diminishes": images(dense_norm),
}
