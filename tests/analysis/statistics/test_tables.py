"""A sweep's tables and their summaries over seeds."""

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import mislabel
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.parts import TABLES
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import cut_short, run

PARAMETERS: dict[str, Any] = {
    "x": {"values": [0, 1, 2]},
    "surface": {"values": ["smooth", "rough"]},
    "trouble": {"values": [0, 2], "when": "x == 2"},
    "tilted": True,
    "snapshots": 2,
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Eight cells with three seeds each; two cells diverge."""
    store = Store(str(tmp_path_factory.mktemp("store")))
    run(store, parameters=PARAMETERS, seeds=3, resources={"pack": 24})
    return mislabel.load(store.address, "bowls")


def test_a_sweep_has_its_tables_as_attributes(sweep: Sweep) -> None:
    assert len(sweep.runs) == 24
    assert len(sweep.curves) == 24 * 3
    assert set(sweep.arrays["metric"]) == {"weight"}
    assert sweep.spec.name == "bowls"
    assert sweep.varying == ["x", "surface", "trouble"]
    assert sweep.metrics == ["loss", "height", "rest_step"]


def test_cells_have_the_mean_and_the_interval_over_their_seeds(sweep: Sweep) -> None:
    cells = {row["cell_id"]: row for row in sweep.cells("loss").to_dict("records")}
    assert len(cells) == 8
    for cell, runs in sweep.runs.groupby("cell_id"):
        row, losses = cells[str(cell)], runs["loss"]
        assert (row["x"], row["surface"]) == tuple(runs.iloc[0][["x", "surface"]])
        assert pd.isna(row["trouble"]) if row["x"] != 2 else row["trouble"] == runs.iloc[0]["trouble"]
        assert row["runs"] == 3
        if runs.iloc[0]["trouble"] == 2:
            assert (row["n"], row["diverged"]) == (0, 3)
            assert math.isnan(row["mean"])
            continue
        low, high = stats.t.interval(0.95, 2, losses.mean(), stats.sem(losses))
        assert (row["n"], row["diverged"]) == (3, 0)
        assert (row["mean"], row["std"], row["low"], row["high"]) == pytest.approx(
            (losses.mean(), losses.std(), low, high)
        )


def test_cells_can_be_joined_by_any_columns(sweep: Sweep) -> None:
    by_x = sweep.cells("loss", by="x").set_index("x")
    cells = sweep.runs[sweep.runs["status"] == "done"].groupby(["x", "cell_id"])["loss"].mean()
    assert by_x["mean"].to_dict() == pytest.approx(cells.groupby(level="x").mean().to_dict())
    assert by_x["n"].to_dict() == {0.0: 3, 1.0: 3, 2.0: 3}
    assert by_x["runs"].to_dict() == {0.0: 6, 1.0: 6, 2.0: 12}
    assert len(sweep.cells("loss", by=["x", "surface"])) == 6
    assert len(sweep.cells("loss", by="tilted")) == 1
    assert sweep.cells("loss", by="status").set_index("status")["runs"].to_dict() == {"diverged": 6, "done": 18}


def test_the_interval_of_joined_cells_is_over_seeds(sweep: Sweep) -> None:
    by_seed = sweep.runs[sweep.runs["status"] == "done"].groupby(["x", "seed"])["loss"].mean()
    for row in sweep.cells("loss", by="x").to_dict("records"):
        values = by_seed[row["x"]]
        low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
        assert (row["low"], row["high"]) == pytest.approx((low, high))


def test_a_diverged_run_is_counted_and_its_last_finite_value_is_not_averaged(store: Store) -> None:
    """The loss of a run that diverges in another metric is finite, but belongs to an early step."""
    files = run(store, parameters={"x": 1.0}, seeds=3).files
    with_changes(files, lambda row: {"status": "diverged", "step": 1, "loss": 1000.0} if row["seed"] else {})
    (row,) = mislabel.load(store.address, "bowls").cells("loss").to_dict("records")
    first = mislabel.load(store.address, "bowls").runs.query("seed == 0")["loss"].item()
    assert (row["mean"], row["n"], row["runs"], row["diverged"]) == (first, 1, 3, 2)


def test_a_cell_whose_runs_all_diverged_has_no_mean(store: Store) -> None:
    files = run(store, parameters={"x": 1.0}, seeds=3).files
    with_changes(files, lambda row: {"status": "diverged"})
    (row,) = mislabel.load(store.address, "bowls").cells("loss").to_dict("records")
    assert math.isnan(row["mean"])
    assert (row["n"], row["runs"], row["diverged"]) == (0, 3, 3)


def with_changes(files: SweepFiles, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Rewrite rows of `runs`."""
    tables = {name: files.read(name) for name in TABLES}
    rows = [{**row, **change(row)} for row in tables["runs"].to_pylist()]
    tables["runs"] = pa.Table.from_pylist(rows, tables["runs"].schema)
    files.write_results(tables, replaces=files.parts("runs"))


def test_cells_can_be_selected(sweep: Sweep) -> None:
    assert set(sweep.cells("loss", where={"x": [0, 1]})["x"]) == {0.0, 1.0}
    assert len(sweep.cells("loss", where={"x": 2, "surface": "rough"})) == 2
    assert sweep.cells("loss", where={"seed": 0})["runs"].tolist() == [1] * 8
    assert sweep.cells("loss", where={"tilted": True})["runs"].sum() == 24
    assert sweep.cells("loss", where={"x": 7}).empty


@pytest.mark.parametrize("selected", [[0, 1], (0, 1), {0, 1}, range(2), np.array([0, 1]), pd.Series([0, 1])])
@pytest.mark.parametrize("column", ["seed", "x"])
def test_selected_values_can_be_in_any_container(sweep: Sweep, column: str, selected: Any) -> None:
    assert set(sweep.read("runs", [column], {column: selected})[column]) == {0, 1}


@pytest.mark.parametrize("selected", [[], np.array([]), set()])
def test_an_empty_selection_has_no_rows(sweep: Sweep, selected: Any) -> None:
    assert sweep.read("runs", ["run_id"], {"seed": selected}).empty
    assert sweep.read("curves", ["run_id"], {"x": selected}).empty


@pytest.mark.parametrize("selected", [0, 0.0, np.int64(0), np.float64(0), np.float32(0)])
def test_integers_and_floats_select_the_same_rows(sweep: Sweep, selected: Any) -> None:
    assert len(sweep.read("runs", ["x"], {"x": selected})) == 6
    assert len(sweep.read("runs", ["seed"], {"seed": selected})) == 8


def test_rows_can_be_selected_by_a_column_of_zeros(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    run(store, parameters={"x": 0.0, "surface": {"values": ["smooth", "rough"]}}, seeds=2)
    still = mislabel.load(store.address, "bowls")
    for selected in (0.0, -0.0, 0, [0.0, 1.0]):
        assert len(still.read("runs", where={"x": selected})) == 4
    assert len(still.read("runs", where={"x": 1.0})) == 0


def test_a_value_of_another_type_is_refused(sweep: Sweep) -> None:
    with pytest.raises(MislabelError, match=r"x: 'word'.*double"):
        sweep.read("runs", ["x"], {"x": "word"})


def test_a_curve_has_the_mean_and_the_interval_at_every_step(sweep: Sweep) -> None:
    curve = sweep.curve("loss")
    finite = sweep.curves[np.isfinite(sweep.curves["loss"])]
    for (cell, step), rows in finite.groupby(["cell_id", "step"]):
        (row,) = curve[(curve["cell_id"] == cell) & (curve["step"] == step)].to_dict("records")
        low, high = stats.t.interval(0.95, len(rows) - 1, rows["loss"].mean(), stats.sem(rows["loss"]))
        expected = {"mean": rows["loss"].mean(), "std": rows["loss"].std(), "n": len(rows), "low": low, "high": high}
        assert {key: row[key] for key in expected} == pytest.approx(expected)
        assert row["runs"] == len(rows)
    assert len(sweep.curve("loss", by="x")) == 9


def test_a_diverged_run_has_no_value_at_the_step_where_it_diverged(store: Store) -> None:
    files = run(store, parameters={"x": 1.0, "frames": 9, "spacing": "linear"}, seeds=2).files
    with_changes(files, lambda row: {"status": "diverged"} if row["seed"] else {})
    curve = mislabel.load(store.address, "bowls").curve("loss").set_index("step")
    assert curve["n"].to_dict() == {**dict.fromkeys(range(8), 2), 8: 1}


def test_a_curve_ends_where_its_cells_do(sweep: Sweep) -> None:
    curve = sweep.curve("loss")
    last = curve[curve["step"] == curve["step"].max()].set_index("cell_id")["mean"].dropna()
    cells = sweep.cells("loss").set_index("cell_id")["mean"].dropna()
    pd.testing.assert_series_equal(last.sort_index(), cells.sort_index())


def test_curves_can_be_selected_by_parameters_and_by_step(sweep: Sweep) -> None:
    assert set(sweep.curve("loss", by="x", where={"x": 1})["x"]) == {1.0}
    assert sweep.curve("loss", by="x", where={"step": [0, 1]})["step"].unique().tolist() == [0, 1]
    assert (sweep.curve("loss", by="x", where={"seed": 0, "surface": "rough", "trouble": 0})["n"] == 1).all()


def test_tables_can_be_read_in_part(sweep: Sweep) -> None:
    part = sweep.read("curves", ["run_id", "loss"], {"x": 0, "seed": [0, 1], "step": 0})
    assert list(part.columns) == ["run_id", "loss"]
    assert len(part) == 2 * 2
    assert len(sweep.read("arrays", where={"surface": "rough", "x": 1})) == 3 * 2


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s: s.cells("los"), r"'los'.*bowls.*\bloss\?"),
        (lambda s: s.cells("speed"), "'speed'.*bowls.*loss, height, rest_step"),
        (lambda s: s.cells("weight"), "'weight'.*bowls"),
        (lambda s: s.curve("los"), r"'los'.*\bloss\?"),
        (lambda s: s.cells("loss", by="surfce"), r"'surfce'.*runs.*\bsurface\?"),
        (lambda s: s.cells("loss", where={"surfce": 1}), r"'surfce'.*runs.*\bsurface\?"),
        (lambda s: s.curve("loss", where={"surfce": 1}), r"'surfce'.*\bsurface\?"),
        (lambda s: s.read("curves", ["los"]), r"'los'.*bowls/curves.*\bloss\?"),
        (lambda s: s.read("curve"), "'curve'.*runs, arrays, curves"),
    ],
)
def test_unknown_names_are_refused_with_a_suggestion(sweep: Sweep, ask: Any, message: str) -> None:
    with pytest.raises(MislabelError, match=message):
        ask(sweep)


def test_a_sweep_without_runs_has_empty_tables(store: Store) -> None:
    store.sweep("bowls").write_text("spec.yaml", "name: bowls\ntask: bowl\n")
    empty = mislabel.load(store.address, "bowls")
    assert empty.runs.empty
    assert empty.metrics == []
    with pytest.raises(MislabelError, match=r"'loss'.*bowls"):
        empty.cells("loss")


def test_rows_keep_cells_apart_in_which_the_parameter_is_inactive(sweep: Sweep) -> None:
    """Trouble is 0 by default, but only a choice where x = 2."""
    rows = sweep.cells("loss", by="trouble")
    assert rows["trouble"].isna().tolist() == [False, False, True]
    assert rows["runs"].tolist() == [6, 6, 12]
    assert sweep.curve("loss", by="trouble")["trouble"].isna().sum() == 3
    assert set(sweep.runs["trouble"]) == {0, 2}


def test_failed_runs_are_not_in_the_table_of_cells(store: Store) -> None:
    run(store, parameters={"x": {"values": [0, 1]}, "trouble": {"values": [0, 1], "when": "x == 0"}})
    cells = mislabel.load(store.address, "bowls").cells("loss")
    assert cells["x"].tolist() == [0, 1]
    assert cells["trouble"].fillna(-1).tolist() == [0, -1]


@pytest.fixture
def stopped(store: Store) -> Sweep:
    """Three seeds of x = 1 and x = 2. One seed of x = 1 was stopped at step 3, another at step 1."""
    run(store, parameters={"x": {"values": [1, 2]}, "frames": 9, "spacing": "linear"}, seeds=3)
    sweep = mislabel.load(store.address, "bowls")
    runs = sweep.runs.set_index(["x", "seed"])["run_id"]
    cut_short(sweep.files, [runs[1, 0]], 3)
    cut_short(sweep.files, [runs[1, 1]], 1)
    return mislabel.load(store.address, "bowls")


def test_runs_of_a_cell_are_compared_at_the_first_stop(stopped: Sweep) -> None:
    cells = stopped.cells("loss").set_index("x")
    assert cells["stopped"].to_dict() == {1: 2, 2: 0}
    assert cells["step"].to_dict() == {1: 1, 2: 8}
    at_one = stopped.curves[stopped.curves["step"] == 1].merge(stopped.runs[["run_id", "x"]], on="run_id")
    assert cells["mean"][1] == pytest.approx(at_one.loc[at_one["x"] == 1, "loss"].mean())
    assert cells["n"][1] == 3
    assert cells["mean"][2] == pytest.approx(stopped.runs.loc[stopped.runs["x"] == 2, "loss"].mean())


def test_runs_that_were_not_stopped_can_be_selected(stopped: Sweep) -> None:
    cells = stopped.cells("loss", where={"status": "done"}).set_index("x")
    assert cells["runs"].to_dict() == {1: 1, 2: 3}
    assert cells["step"].to_dict() == {1: 8, 2: 8}


def test_one_stopped_run_does_not_move_a_pooled_row_to_its_step(stopped: Sweep) -> None:
    """The cell x = 1 was stopped at step 1. The row has the other cell at the end of training."""
    (row,) = stopped.cells("loss", by="task").to_dict("records")
    assert (row["step"], row["cells"], row["stopped_cells"]) == (8, 1, 1)
    assert (row["runs"], row["n"], row["stopped"]) == (6, 3, 2)
    assert row["mean"] == pytest.approx(stopped.runs.loc[stopped.runs["x"] == 2, "loss"].mean())


def test_all_cells_can_be_compared_at_a_step_that_all_reached(stopped: Sweep) -> None:
    (row,) = stopped.cells("loss", by="task", at=1).to_dict("records")
    assert (row["cells"], row["stopped_cells"], row["stopped"], row["n"], row["step"]) == (2, 0, 0, 3, 1)
    assert row["mean"] == pytest.approx(stopped.curves.loc[stopped.curves["step"] == 1, "loss"].mean())
    later = stopped.cells("loss", at=3).set_index("x")
    assert later["stopped"].to_dict() == {1: 1, 2: 0}
    assert math.isnan(later["mean"][1])


def test_each_cell_can_be_taken_at_its_best_step(stopped: Sweep) -> None:
    cells = stopped.cells("loss", at="best").set_index("x")
    curve = stopped.curve("loss", by="x")
    for x, limit in ((1, 1), (2, 8)):
        own = curve[(curve["x"] == x) & (curve["step"] <= limit)]
        assert cells["mean"][x] == pytest.approx(own["mean"].min())
        assert cells["step"][x] == own.sort_values("mean")["step"].iloc[0]
    with pytest.raises(MislabelError, match="height has no goal"):
        stopped.cells("height", at="best")
    with pytest.raises(MislabelError, match='"end", "best" or a step'):
        stopped.cells("loss", at="last")  # type: ignore[arg-type]


def test_a_curve_counts_the_remaining_runs(stopped: Sweep) -> None:
    curve = stopped.curve("loss", by="x", where={"x": 1}).set_index("step")
    assert curve["runs"].to_dict() == {0: 3, 1: 3, 2: 2, 3: 2, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1}


def test_only_the_selected_columns_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged page does not matter if its column is not read."""
    wide = {f"m{i}": np.random.default_rng(i).random(20_000) for i in range(5)}
    keys = {"run_id": ["a-0"] * 20_000, "pack_id": ["p"] * 20_000, "step": list(range(20_000))}
    row = {"run_id": ["a-0"], "cell_id": ["a"], "seed": [0], "status": ["done"], "pack_id": ["p"], "attempt": [1]}
    files = store.sweep("wide")
    part = files.write_results({"runs": pa.table(row), "curves": pa.table({**keys, **wide})})
    files.write_text("spec.yaml", "name: wide\ntask: bowl\n")
    path = Path(files.address, "curves", f"{part}.parquet")
    column = pq.ParquetFile(path).metadata.row_group(0).column(4)
    assert column.path_in_schema == "m1"
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + 1000] ^= 0xFF
    path.write_bytes(bytes(data))
    sweep = mislabel.load(store.address, "wide")
    assert sweep.read("curves", ["m0", "m4"])["m4"].tolist() == wide["m4"].tolist()
    with pytest.raises(MislabelError, match="damaged"):
        sweep.read("curves", ["m1"])


@pytest.mark.long
def test_reading_a_sweep_loads_neither_torch_nor_ray_nor_mlflow(sweep: Sweep) -> None:
    script = (
        "import sys, mislabel\n"
        f"sweep = mislabel.load({str(Path(sweep.files.address).parent)!r}, 'bowls')\n"
        "sweep.cells('loss'), sweep.curve('loss', by='x'), sweep.runs\n"
        "print([name for name in ('torch', 'ray', 'mlflow', 'optuna', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def ladder(store: Store) -> Sweep:
    """Seven cells with two seeds each: x from 0 to 5, and one cell of x = 5 whose runs diverge."""
    parameters = {"x": {"values": [0, 1, 2, 3, 4, 5]}, "trouble": {"values": [0, 2], "when": "x == 5"}}
    run(store, parameters={**parameters, "frames": 9, "spacing": "linear"}, seeds=2, resources={"pack": 20})
    return mislabel.load(store.address, "bowls")


def cut(sweep: Sweep, x: float, step: int) -> Sweep:
    """The sweep after its runs of this x were stopped at the step."""
    cut_short(sweep.files, sweep.read("runs", ["run_id"], {"x": x})["run_id"].tolist(), step)
    return mislabel.load(sweep.files.address.removesuffix("/bowls"), "bowls")


def test_without_stops_runs_have_their_value_at_the_end(ladder: Sweep) -> None:
    assert ladder.first_stop() is None
    values = ladder.values("loss")
    assert len(values) == 14
    assert values.loc[values["value"].isna(), "status"].tolist() == ["diverged"] * 2
    assert values["value"].sum() == pytest.approx(ladder.runs.loc[ladder.runs["status"] == "done", "loss"].sum())


def test_with_stops_runs_have_a_value_up_to_the_step_that_they_reached(ladder: Sweep) -> None:
    stopped = cut(cut(ladder, 0, 5), 1, 3)
    assert stopped.first_stop() == 3
    values = stopped.values("loss", 3, {"trouble": 0}).groupby("cell_id")["value"].mean()
    curve = stopped.curve("loss", by="cell_id", where={"step": 3, "trouble": 0}).set_index("cell_id")["mean"]
    assert values.to_dict() == pytest.approx(curve.to_dict())
    # Stopped runs have no value at the end or at a later step. Diverged runs have none at any step.
    assert stopped.values("loss", 3)["value"].isna().sum() == 2
    assert stopped.values("loss")["value"].isna().sum() == 6
    assert stopped.values("loss", 5)["value"].isna().sum() == 4
    assert len(stopped.complete_values("loss", 3)) == 6
    assert len(stopped.complete_values("loss", 5)) == 5


def test_the_curves_of_a_cell_are_read_without_those_of_other_cells(store: Store) -> None:
    """A damaged page does not matter if it is in a row group of other cells."""
    files = store.sweep("cells")
    paths = {}
    for cell in "abcdefgh":
        curves = {
            "run_id": [f"{cell}-0"] * 5_000, "cell_id": [cell] * 5_000, "step": list(range(5_000)),
            "loss": np.random.default_rng(0).random(5_000),
        }  # fmt: skip
        row = {"run_id": [f"{cell}-0"], "cell_id": [cell], "seed": [0], "status": ["done"], "step": [4_999]}
        tables = {"runs": pa.table({**row, "attempt": [1], "loss": [0.0]}), "curves": pa.table(curves)}
        paths[cell] = Path(files.address, "curves", f"{files.write_results(tables)}.parquet")
    files.write_text("spec.yaml", "name: cells\ntask: bowl\n")
    column = pq.ParquetFile(paths["d"]).metadata.row_group(0).column(3)
    data = bytearray(paths["d"].read_bytes())
    data[column.data_page_offset + 1000] ^= 0xFF
    paths["d"].write_bytes(bytes(data))
    sweep = mislabel.load(store.address, "cells")
    curve = sweep.curve("loss", where={"cell_id": "e"})
    assert curve["mean"].tolist() == np.random.default_rng(0).random(5_000).tolist()
    with pytest.raises(MislabelError, match="damaged"):
        sweep.curve("loss")
