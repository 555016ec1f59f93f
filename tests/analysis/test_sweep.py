import math
import subprocess
import sys
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
from mislabel.sweeps.store.store import Store
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
    """A sweep of eight cells from three seeds each; two of the cells diverge."""
    store = Store(str(tmp_path_factory.mktemp("store")))
    run(store, parameters=PARAMETERS, seeds=3, resources={"pack": 24})
    return mislabel.load(store.address, "bowls")


def test_a_sweep_is_its_tables(sweep: Sweep) -> None:
    assert len(sweep.runs) == 24
    assert len(sweep.curves) == 24 * 3
    assert set(sweep.arrays["metric"]) == {"weight"}
    assert sweep.spec.name == "bowls"
    assert sweep.varying == ["x", "surface", "trouble"]
    assert sweep.metrics == ["loss", "height", "rest_step"]
    assert repr(sweep).startswith("Sweep('bowls', task bowl, 24 runs in ")


def test_a_sweep_that_is_not_there_is_named(sweep: Sweep, tmp_path: Path) -> None:
    with pytest.raises(MislabelError, match=r"did you mean bowls\?"):
        mislabel.load(str(Path(sweep.files.address).parent), "bowl")
    with pytest.raises(MislabelError, match="it is empty"):
        mislabel.load(str(tmp_path), "bowls")


def test_cells_have_the_mean_and_the_interval_over_their_seeds(sweep: Sweep) -> None:
    cells = {row["cell_id"]: row for row in sweep.cells("loss").to_dict("records")}
    assert len(cells) == 8
    for cell, runs in sweep.runs.groupby("cell_id"):
        row, losses = cells[str(cell)], runs["loss"]
        assert (row["x"], row["surface"], row["trouble"]) == tuple(runs.iloc[0][["x", "surface", "trouble"]])
        assert row["runs"] == 3
        if row["trouble"] == 2:
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
    finite = sweep.runs[np.isfinite(sweep.runs["loss"])]
    assert by_x["mean"].to_dict() == pytest.approx(finite.groupby("x")["loss"].mean().to_dict())
    assert by_x["n"].to_dict() == {0.0: 6, 1.0: 6, 2.0: 6}
    assert by_x["runs"].to_dict() == {0.0: 6, 1.0: 6, 2.0: 12}
    assert len(sweep.cells("loss", by=["x", "surface"])) == 6
    assert len(sweep.cells("loss", by="tilted")) == 1
    assert sweep.cells("loss", by="status").set_index("status")["runs"].to_dict() == {"diverged": 6, "done": 18}


def test_cells_can_be_chosen(sweep: Sweep) -> None:
    assert set(sweep.cells("loss", where={"x": [0, 1]})["x"]) == {0.0, 1.0}
    assert len(sweep.cells("loss", where={"x": 2, "surface": "rough"})) == 2
    assert sweep.cells("loss", where={"seed": 0})["runs"].tolist() == [1] * 8
    assert sweep.cells("loss", where={"tilted": True})["runs"].sum() == 24
    assert sweep.cells("loss", where={"x": 7}).empty


@pytest.mark.parametrize("chosen", [[0, 1], (0, 1), {0, 1}, range(2), np.array([0, 1]), pd.Series([0, 1])])
@pytest.mark.parametrize("column", ["seed", "x"])
def test_values_to_choose_may_come_in_any_container(sweep: Sweep, column: str, chosen: Any) -> None:
    assert set(sweep.read("runs", [column], {column: chosen})[column]) == {0, 1}


@pytest.mark.parametrize("chosen", [[], np.array([]), set()])
def test_choosing_nothing_gives_nothing(sweep: Sweep, chosen: Any) -> None:
    assert sweep.read("runs", ["run_id"], {"seed": chosen}).empty
    assert sweep.read("curves", ["run_id"], {"x": chosen}).empty


@pytest.mark.parametrize("chosen", [0, 0.0, np.int64(0), np.float64(0), np.float32(0)])
def test_whole_and_other_numbers_choose_alike(sweep: Sweep, chosen: Any) -> None:
    assert len(sweep.read("runs", ["x"], {"x": chosen})) == 6
    assert len(sweep.read("runs", ["seed"], {"seed": chosen})) == 8


def test_a_column_that_is_zero_throughout_can_be_chosen_by(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    run(store, parameters={"x": 0.0, "surface": {"values": ["smooth", "rough"]}}, seeds=2)
    still = mislabel.load(store.address, "bowls")
    for chosen in (0.0, -0.0, 0, [0.0, 1.0]):
        assert len(still.read("runs", where={"x": chosen})) == 4
    assert len(still.read("runs", where={"x": 1.0})) == 0


def test_a_value_of_another_kind_is_refused_in_words(sweep: Sweep) -> None:
    with pytest.raises(MislabelError, match=r"where x: 'word' is not a value of that column, which holds double"):
        sweep.read("runs", ["x"], {"x": "word"})


def test_a_curve_has_the_mean_and_the_interval_at_every_step(sweep: Sweep) -> None:
    curve = sweep.curve("loss", by="x")
    joined = sweep.curves.merge(sweep.runs[["run_id", "x"]], on="run_id")
    finite = joined[np.isfinite(joined["loss"])]
    assert len(curve) == 9
    for (x, step), rows in finite.groupby(["x", "step"]):
        (row,) = curve[(curve["x"] == x) & (curve["step"] == step)].to_dict("records")
        low, high = stats.t.interval(0.95, len(rows) - 1, rows["loss"].mean(), stats.sem(rows["loss"]))
        expected = {"mean": rows["loss"].mean(), "std": rows["loss"].std(), "n": len(rows), "low": low, "high": high}
        assert {key: row[key] for key in expected} == pytest.approx(expected)


def test_a_curve_ends_where_its_cells_do(sweep: Sweep) -> None:
    curve = sweep.curve("loss")
    last = curve[curve["step"] == curve["step"].max()].set_index("cell_id")["mean"].dropna()
    cells = sweep.cells("loss").set_index("cell_id")["mean"].dropna()
    pd.testing.assert_series_equal(last.sort_index(), cells.sort_index())


def test_curves_can_be_chosen_by_parameters_and_by_step(sweep: Sweep) -> None:
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
        (lambda s: s.cells("los"), r"'los' is not a metric of bowls; did you mean loss\?"),
        (lambda s: s.cells("speed"), "'speed' is not a metric of bowls; it has loss, height, rest_step"),
        (lambda s: s.cells("weight"), "'weight' is not a metric of bowls"),
        (lambda s: s.curve("los"), r"did you mean loss\?"),
        (lambda s: s.cells("loss", by="surfce"), r"'surfce' is not a column of runs; did you mean surface\?"),
        (lambda s: s.cells("loss", where={"surfce": 1}), r"'surfce' is not a column of runs; did you mean surface\?"),
        (lambda s: s.curve("loss", where={"surfce": 1}), r"did you mean surface\?"),
        (lambda s: s.read("curves", ["los"]), r"'los' is not a column of bowls/curves; did you mean loss\?"),
        (lambda s: s.read("curve"), r"'curve' is not a table; there are runs, arrays, curves"),
    ],
)
def test_words_that_are_not_known_are_named_with_the_nearest(sweep: Sweep, ask: Any, message: str) -> None:
    with pytest.raises(MislabelError, match=message):
        ask(sweep)


def test_a_sweep_without_runs_says_so(store: Store) -> None:
    store.sweep("bowls").write_text("spec.yaml", "name: bowls\ntask: bowl\n")
    empty = mislabel.load(store.address, "bowls")
    assert empty.runs.empty
    assert empty.metrics == []
    with pytest.raises(MislabelError, match="it has no runs yet"):
        empty.cells("loss")


def test_runs_that_failed_are_no_part_of_cells(store: Store) -> None:
    run(store, parameters={"x": {"values": [0, 1]}, "trouble": {"values": [0, 1], "when": "x == 0"}})
    cells = mislabel.load(store.address, "bowls").cells("loss")
    assert cells[["x", "trouble"]].to_numpy().tolist() == [[0, 0], [1, 0]]


@pytest.fixture
def stopped(store: Store) -> Sweep:
    """Three seeds of x = 1 and of x = 2; of the first, one was stopped at step 3 and one at step 1."""
    run(store, parameters={"x": {"values": [1, 2]}, "frames": 9, "spacing": "linear"}, seeds=3)
    sweep = mislabel.load(store.address, "bowls")
    runs = sweep.runs.set_index(["x", "seed"])["run_id"]
    cut_short(sweep.files, [runs[1, 0]], 3)
    cut_short(sweep.files, [runs[1, 1]], 1)
    return mislabel.load(store.address, "bowls")


def test_runs_of_a_cell_are_compared_where_the_first_was_stopped(stopped: Sweep) -> None:
    cells = stopped.cells("loss").set_index("x")
    assert cells["stopped"].to_dict() == {1: 2, 2: 0}
    assert cells["step"].to_dict() == {1: 1, 2: 8}
    at_one = stopped.curves[stopped.curves["step"] == 1].merge(stopped.runs[["run_id", "x"]], on="run_id")
    assert cells["mean"][1] == pytest.approx(at_one.loc[at_one["x"] == 1, "loss"].mean())
    assert cells["n"][1] == 3
    assert cells["mean"][2] == pytest.approx(stopped.runs.loc[stopped.runs["x"] == 2, "loss"].mean())


def test_runs_that_were_not_stopped_can_be_asked_for(stopped: Sweep) -> None:
    cells = stopped.cells("loss", where={"status": "done"}).set_index("x")
    assert cells["runs"].to_dict() == {1: 1, 2: 3}
    assert cells["step"].to_dict() == {1: 8, 2: 8}


def test_joined_cells_are_compared_at_one_step_too(stopped: Sweep) -> None:
    (row,) = stopped.cells("loss", by="task").to_dict("records")
    assert (row["runs"], row["n"], row["stopped"], row["step"]) == (6, 6, 2, 1)
    assert row["mean"] == pytest.approx(stopped.curves.loc[stopped.curves["step"] == 1, "loss"].mean())


def test_a_curve_tells_how_many_runs_remain(stopped: Sweep) -> None:
    curve = stopped.curve("loss", by="x", where={"x": 1}).set_index("step")
    assert curve["n"].to_dict() == {0: 3, 1: 3, 2: 2, 3: 2, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1}


def test_only_the_columns_that_are_asked_for_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that nobody asks for may be damaged without anyone noticing."""
    wide = {f"m{i}": np.random.default_rng(i).random(20_000) for i in range(5)}
    keys = {"run_id": ["a-0"] * 20_000, "pack_id": ["p"] * 20_000, "step": list(range(20_000))}
    row = {"run_id": ["a-0"], "cell_id": ["a"], "seed": [0], "status": ["done"], "pack_id": ["p"], "attempt": [1]}
    files = store.sweep("wide")
    files.write_part("p", {"runs": pa.table(row), "curves": pa.table({**keys, **wide})})
    files.write_text("spec.yaml", "name: wide\ntask: bowl\n")
    path = Path(files.address, "curves", "p.parquet")
    column = pq.ParquetFile(path).metadata.row_group(0).column(4)
    assert column.path_in_schema == "m1"
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + 1000] ^= 0xFF
    path.write_bytes(bytes(data))
    sweep = mislabel.load(store.address, "wide")
    assert sweep.read("curves", ["m0", "m4"])["m4"].tolist() == wide["m4"].tolist()
    with pytest.raises(MislabelError, match="damaged"):
        sweep.read("curves", ["m1"])


def test_reading_a_sweep_loads_neither_torch_nor_ray_nor_mlflow(sweep: Sweep) -> None:
    script = (
        "import sys, mislabel\n"
        f"sweep = mislabel.load({str(Path(sweep.files.address).parent)!r}, 'bowls')\n"
        "sweep.cells('loss'), sweep.curve('loss', by='x'), sweep.runs\n"
        "print([name for name in ('torch', 'ray', 'mlflow', 'optuna', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
