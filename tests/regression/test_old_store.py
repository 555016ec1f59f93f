"""A store that an earlier version wrote is read, continued and widened, and no stored run is trained again.

README.md in this folder says how the store was made.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import mislabel
from mislabel.sweeps.store.store import Store
from tests.regression.command_line import call, call_for_json

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "old_store.json").read_text())
SWEEPS = ("grid", "killed", "search")
WIDER = (
    "--set", "seeds=4", "--set", "parameters.step_size={values: [0.01, 0.02, 0.03]}", "--set", "resources.pack=12",
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A copy of the old store, so that tests can write to it."""
    return str(shutil.copytree(HERE / "store", tmp_path / "old"))


def _spec(name: str) -> str:
    return str(HERE / "specs" / f"{name}.yaml")


def _run(store: str, name: str, *options: str) -> None:
    code, _ = call("run", _spec(name), "--store", store, "--inline", "--no-mlflow", *options)
    assert code == 0


def _planned(store: str, name: str, *options: str) -> tuple[int, int]:
    """How many runs the store has already, and how many are to run."""
    plan = call_for_json("plan", _spec(name), "--store", store, *options)
    return plan["in_store"], plan["to_run"]


def _trained(store: str, name: str) -> int:
    """How many runs ended in the sweep's last launch."""
    return sum(Store(store).sweep(name).progress()["ended_now"].values())


def _table(store: str, name: str, table: str) -> pd.DataFrame:
    keys = {"runs": ["run_id"], "curves": ["run_id", "step"], "arrays": ["run_id", "step", "metric"]}
    return mislabel.load(store, name).read(table).sort_values(keys[table], ignore_index=True)


def _assert_rows_are_kept(before: pd.DataFrame, after: pd.DataFrame) -> None:
    """The rows of the runs in `before` are in `after`, with the same value in every column: times and host included."""
    kept = after[after["run_id"].isin(before["run_id"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept[before.columns.to_list()], before, check_exact=True, check_dtype=False)


def _assert_all_rows_are_kept(store: str, name: str) -> None:
    for table in EXPECTED[name]["rows"]:
        _assert_rows_are_kept(_table(str(HERE / "store"), name, table), _table(store, name, table))


def _proposed_cells(store: str) -> list[dict[str, Any]]:
    """The cells in the search's journal, in their order."""
    batches = [json.loads(path.read_text()) for path in sorted(Path(store, "search", "proposals").glob("*.json"))]
    return [trial["values"] for batch in batches for trial in batch["trials"]]


def test_the_store_is_as_its_readme_says() -> None:
    killed, search = HERE / "store" / "killed", HERE / "store" / "search"
    assert len(list(killed.glob("runs/*.parquet"))) == 2
    assert len(list(killed.glob("checkpoints/*.pt"))) == 1
    assert json.loads((killed / "progress.json").read_text())["state"] == "running"
    assert len(list(search.glob("proposals/*.json"))) == 4
    assert len(list(search.glob("checkpoints/*.pt"))) == 1
    assert {row["status"] for row in EXPECTED["grid"]["runs"]} == {"done", "stopped", "diverged"}


@pytest.mark.parametrize("name", SWEEPS)
def test_stored_runs_have_the_same_ids_and_values(store: str, name: str) -> None:
    expected = pd.DataFrame(EXPECTED[name]["runs"])
    runs = _table(store, name, "runs")
    assert runs["run_id"].tolist() == expected["run_id"].tolist()
    for column in expected:
        theirs = expected[column] if runs[column].dtype.kind not in "fiu" else expected[column].astype(float)
        pd.testing.assert_series_equal(runs[column], theirs, check_exact=True, check_dtype=False)


@pytest.mark.parametrize("name", SWEEPS)
def test_stored_curves_and_arrays_have_the_same_values(store: str, name: str) -> None:
    for table, rows in EXPECTED[name]["rows"].items():
        assert len(_table(store, name, table)) == rows
    curves = _table(store, name, "curves")
    metric = mislabel.load(store, name).spec.metric[0].name
    assert curves["step"].tolist() == EXPECTED[name]["steps"]
    expected = pd.Series(EXPECTED[name]["curve"], dtype=float, name=metric)
    pd.testing.assert_series_equal(curves[metric], expected, check_exact=True)


@pytest.mark.parametrize("name", SWEEPS)
def test_commands_read_a_stored_sweep(store: str, name: str) -> None:
    assert name in call("list", "--store", store)[1]
    cells = call_for_json("results", name, "--store", store)
    assert len(cells) == len({row["cell_id"] for row in EXPECTED[name]["runs"]})


def test_a_finished_sweep_has_nothing_to_run(store: str) -> None:
    assert _planned(store, "grid") == (27, 0)
    _run(store, "grid")
    _assert_all_rows_are_kept(store, "grid")
    assert len(_table(store, "grid", "runs")) == 27


def test_a_killed_sweep_is_completed_by_the_same_spec(store: str) -> None:
    assert _planned(store, "killed") == (6, 6)
    _run(store, "killed")
    assert _trained(store, "killed") == 6
    _assert_all_rows_are_kept(store, "killed")
    _assert_undisturbed_results(store, runs=12)
    assert _planned(store, "killed") == (12, 0)


def test_a_killed_sweep_is_widened(store: str) -> None:
    assert _planned(store, "killed", *WIDER) == (6, 18)
    _run(store, "killed", *WIDER)
    assert _trained(store, "killed") == 18
    _assert_all_rows_are_kept(store, "killed")
    _assert_undisturbed_results(store, runs=24)
    assert _planned(store, "killed", *WIDER) == (24, 0)


def test_a_finished_sweep_is_widened(store: str) -> None:
    wider = ("--set", "seeds=4")
    assert _planned(store, "grid", *wider) == (27, 9)
    _run(store, "grid", *wider)
    assert _trained(store, "grid") == 9
    _assert_all_rows_are_kept(store, "grid")
    assert len(_table(store, "grid", "runs")) == 36


def test_a_stopped_search_continues_with_its_journal(store: str) -> None:
    before = _proposed_cells(store)
    assert _planned(store, "search") == (6, 8)
    _run(store, "search")
    assert _trained(store, "search") == 8
    _assert_all_rows_are_kept(store, "search")
    after = _proposed_cells(store)
    assert after[: len(before)] == before
    runs = _table(store, "search", "runs")
    assert runs["status"].tolist() == ["done"] * 14
    assert runs.groupby("cell_id")["seed"].apply(sorted).tolist() == [[0, 1]] * 7
    proposed = {(cell["noise_rate"], cell["step_size"]) for cell in after}
    assert len(proposed) == 7
    assert {*zip(runs["noise_rate"], runs["step_size"], strict=True)} == proposed
    assert _planned(store, "search") == (14, 0)


def _assert_undisturbed_results(store: str, runs: int) -> None:
    """Each run is there once, with the result that it has in a sweep that was never interrupted.

    Runs that are trained now may differ in their last digits: other machines and versions of torch round differently.
    """
    table = _table(store, "killed", "runs")
    assert len(table) == table["run_id"].nunique() == runs
    assert set(table["status"]) == {"done"}
    assert len(_table(store, "killed", "curves")) == 8 * runs
    found = dict(zip(table["run_id"], table["test_loss"], strict=True))
    assert found == pytest.approx({run: EXPECTED["undisturbed"][run] for run in found}, rel=1e-3)
