"""Importances of functions with known shares of variance. The tests write the store's tables directly."""

import itertools
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import mislabel
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.store import Store

pytestmark = pytest.mark.long

Cell = dict[str, Any]
rng = np.random.default_rng


def written(
    store: Store, cells: Sequence[Cell], loss: Callable[[Cell], float], seeds: int = 2, noise: float = 0.0, **spec: Any
) -> Sweep:
    """A sweep with these cells, whose runs have this loss plus noise."""
    draw = rng(1)
    now = datetime.now(UTC)
    rows = [
        {
            "run_id": f"{i}-{seed}", "cell_id": str(i), "seed": seed, "status": "done", "pack_id": "p", "attempt": 1,
            "step": 8, "started_at": now, "finished_at": now, **cell, "loss": loss(cell) + noise * draw.normal(),
        }
        for i, cell in enumerate(cells) for seed in range(seeds)
    ]  # fmt: skip
    runs = pa.Table.from_pylist(rows)
    runs = runs.append_column("height", pa.array([-row["loss"] for row in rows]))
    files = store.sweep("made")
    curves = runs.select(["run_id", "cell_id", "seed", "step", "loss", "height"])
    files.write_results({"runs": runs, "curves": curves})
    values = {"name": "made", "task": "bowl", "metric": [{"name": "loss", "goal": "minimize"}], **spec}
    files.write_text("spec.yaml", Spec.model_validate(values, strict=False).to_yaml())
    return mislabel.load(store.address, "made")


def drawn(count: int, **ranges: Callable[[np.random.Generator], Any]) -> list[Cell]:
    draw = rng(0)
    return [{name: make(draw) for name, make in ranges.items()} for _ in range(count)]


def by_name(table: pd.DataFrame, column: str = "importance") -> dict[str, float]:
    return dict(zip(table["parameter"], table[column], strict=True))


UNIT = {"min": 0, "max": 1}
RANDOM: Any = {"method": {"name": "random"}, "budget": {"cells": 400}}


def uniform(draw: np.random.Generator) -> float:
    return float(draw.random())


@pytest.fixture
def sums(store: Store) -> Sweep:
    """3a + b: a explains 0.9 of the variance, b 0.1, and c nothing."""
    cells = drawn(400, a=uniform, b=uniform, c=uniform)
    return written(store, cells, lambda p: 3 * p["a"] + p["b"], parameters=dict.fromkeys("abc", UNIT), **RANDOM)


def test_shares_of_a_sum_are_the_shares_of_its_variances(sums: Sweep) -> None:
    table = sums.importance()
    assert table["parameter"].tolist() == ["a", "b", "c"]
    assert by_name(table) == pytest.approx({"a": 0.9, "b": 0.1, "c": 0.0}, abs=0.03)
    assert table.attrs == {"method": "fanova", "cells": {"loss": 400}, "step": None}


def test_the_interval_is_around_the_importance(sums: Sweep) -> None:
    table = sums.importance()
    assert (table["low"] <= table["importance"]).all()
    assert (table["importance"] <= table["high"]).all()
    assert (table["high"] - table["low"]).max() < 0.1
    assert (table["low"] >= 0).all()
    assert (table["high"] <= 1).all()


def test_noise_over_seeds_widens_the_interval_and_belongs_to_no_parameter(store: Store, tmp_path: Any) -> None:
    cells = drawn(60, a=uniform, b=uniform)
    space: Any = {"parameters": dict.fromkeys("ab", UNIT), **RANDOM}
    quiet = written(store, cells, lambda p: p["a"], **space).importance()
    noisy = written(Store(str(tmp_path / "b")), cells, lambda p: p["a"], noise=1.0, **space).importance()
    assert by_name(quiet)["a"] > 0.97
    assert by_name(noisy)["a"] < 0.6
    assert noisy["importance"].sum() < 0.8
    assert (noisy["high"] - noisy["low"]).max() > 3 * (quiet["high"] - quiet["low"]).max()


def test_a_log_scale_is_weighed_on_its_own_scale(store: Store) -> None:
    """log10(a) over three decades varies as much as 3b. On a linear scale, the last decade would be most of a."""
    cells = drawn(400, a=lambda draw: float(10 ** draw.uniform(-3, 0)), b=uniform)
    log = {"min": 0.001, "max": 1, "scale": "log"}
    sweep = written(store, cells, lambda p: np.log10(p["a"]) + 3 * p["b"], parameters={"a": log, "b": UNIT}, **RANDOM)
    assert by_name(sweep.importance()) == pytest.approx({"a": 0.5, "b": 0.5}, abs=0.05)


@pytest.mark.parametrize("method", ["grid", "random"])
def test_listed_values_have_equal_weights(store: Store, method: str) -> None:
    """The effect of a depends on its index, that of w on its word. Each explains half of the variance."""
    numbers, words = [0, 1, 1000], ["p", "q", "r", "s", "t"]
    cells = [{"a": a, "w": w, "c": c} for a, w, c in itertools.product(numbers, words, [0.0, 0.5, 1.0])]
    height = {"p": 1.0, "q": 0.0, "r": 0.0, "s": 1.0, "t": 0.0}
    scale = np.sqrt((2 / 9) / (6 / 25))
    sweep = written(
        store, cells, lambda p: float(p["a"] == 1) + scale * height[p["w"]],
        parameters={"a": {"values": numbers}, "w": {"values": words}, "c": {"values": [0.0, 0.5, 1.0]}},
        method={"name": method}, budget={"cells": 45} if method == "random" else {},
    )  # fmt: skip
    assert by_name(sweep.importance()) == pytest.approx({"a": 0.5, "w": 0.5, "c": 0.0}, abs=0.12)


@pytest.mark.parametrize("method", ["ped_anova", "mdi"])
def test_other_methods_give_the_same_order_and_sum_to_one(sums: Sweep, method: str) -> None:
    table = sums.importance(method=method)
    assert table["parameter"].tolist() == ["a", "b", "c"]
    assert table["importance"].sum() == pytest.approx(1)
    assert by_name(table)["a"] > 0.7
    assert by_name(table)["c"] < 0.1


def test_ped_anova_uses_the_goal(store: Store) -> None:
    """For large a only a matters, for small a only b. The goal decides whether the best cells have small or large a."""
    cells = drawn(400, a=uniform, b=uniform)
    sweep = written(
        store, cells, lambda p: 5 * p["a"] if p["a"] > 0.5 else -p["b"],
        parameters=dict.fromkeys("ab", UNIT), **RANDOM,
    )  # fmt: skip
    least, most = (by_name(sweep.importance(method="ped_anova", goal=goal)) for goal in ("minimize", "maximize"))
    assert least["b"] > least["a"]
    assert most["a"] > most["b"]


def test_each_of_several_metrics_has_three_columns(sums: Sweep) -> None:
    table = sums.importance(["loss", "height"])
    assert list(table) == [
        "parameter",
        *(f"{name}{end}" for name in ("loss", "height") for end in ("", "_low", "_high")),
    ]
    assert by_name(table, "height") == pytest.approx(by_name(table, "loss"), abs=0.02)


def test_only_ped_anova_needs_a_goal(sums: Sweep) -> None:
    assert by_name(sums.importance("height"))["a"] == pytest.approx(0.9, abs=0.03)
    with pytest.raises(MislabelError, match="height"):
        sums.importance("height", method="ped_anova")


@pytest.fixture
def conditional(store: Store) -> Sweep:
    """c varies only if a > ½, and then determines the loss."""
    cells = drawn(300, a=uniform, b=uniform, c=uniform)
    cells = [{**cell, "c": cell["c"] if cell["a"] > 0.5 else 0.25} for cell in cells]
    space = {"a": UNIT, "b": UNIT, "c": {**UNIT, "when": "a > 0.5"}}
    return written(store, cells, lambda p: p["c"] if p["a"] > 0.5 else 1.0, parameters=space, **RANDOM)


def test_conditional_parameters_are_weighed_by_ped_anova(conditional: Sweep) -> None:
    table = conditional.importance()
    assert table.attrs["method"] == "ped_anova"
    assert table["parameter"].tolist()[-1] == "b"
    assert by_name(table)["c"] > 0.3


@pytest.mark.parametrize("method", ["fanova", "mdi"])
def test_other_methods_refuse_conditional_parameters(conditional: Sweep, method: str) -> None:
    with pytest.raises(MislabelError, match=rf"{method}.*\bc\b.*ped_anova"):
        conditional.importance(method=method)


def test_zipped_parameters_are_treated_as_one(store: Store) -> None:
    pairs = [(1, 0.1), (2, 0.2), (4, 0.4)]
    cells = [{"a": a, "b": b, "c": c} for (a, b), c in itertools.product(pairs, [0.0, 0.5, 1.0])]
    sweep = written(
        store, cells, lambda p: float(p["a"]), zip=[["a", "b"]],
        parameters={"a": {"values": [1, 2, 4]}, "b": {"values": [0.1, 0.2, 0.4]}, "c": {"values": [0.0, 0.5, 1.0]}},
    )  # fmt: skip
    assert sweep.importance()["parameter"].tolist() == ["a, b", "c"]


def test_a_constant_metric_depends_on_nothing(store: Store) -> None:
    sweep = written(store, drawn(10, a=uniform), lambda p: 1.0, parameters={"a": UNIT}, **RANDOM)
    assert sweep.importance()[["importance", "low", "high"]].to_numpy().tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    ("cells", "parameters", "message"),
    [
        (
            3,
            {"a": UNIT},
            "loss.*4.*made.*3",
        ),
        (9, {"a": 1.0}, "made"),
    ],
)
def test_too_few_cells_or_parameters_are_refused(store: Store, cells: int, parameters: Any, message: str) -> None:
    sweep = written(store, drawn(cells, a=uniform), lambda p: p["a"], parameters=parameters, **RANDOM)
    with pytest.raises(MislabelError, match=message):
        sweep.importance()


def test_an_unknown_method_is_refused_with_a_suggestion(sums: Sweep) -> None:
    with pytest.raises(MislabelError, match=r"'fanov'.*\bfanova\?"):
        sums.importance(method="fanov")


def test_importances_of_thousands_of_cells_take_seconds(store: Store) -> None:
    cells = drawn(3000, a=uniform, b=uniform, c=uniform)
    sweep = written(store, cells, lambda p: p["a"] + p["b"], seeds=1, parameters=dict.fromkeys("abc", UNIT), **RANDOM)
    began = time.process_time()
    sweep.importance()
    assert time.process_time() - began < 60
