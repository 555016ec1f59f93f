import math

import numpy as np
import pyarrow as pa

from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.record import Record
from mislabel.sweeps.store.outcome import Outcome, Status
from mislabel.tasks.pack import Frame
from tests.bowls import BOWL

DEFAULTS = {name: parameter.default for name, parameter in BOWL.parameters.items() if name != "x"}
ORDER = PackOrder("s", "bowl", DEFAULTS, {"x": [0.0, 1.0, 2.0]}, ["a", "a", "b"], [0, 1, 0])


def frame(step: int, runs: list[str], losses: list[float], arrays: bool = False) -> Frame:
    values = np.array(losses)
    weights = {"weight": np.stack([values, values + 1], axis=1)} if arrays else {}
    metrics = {"loss": values, "height": values + 1}
    labels, stopped = np.array(runs, dtype=object), np.zeros(len(runs), dtype=bool)
    return Frame(step, labels, metrics, weights, ~np.isfinite(values), stopped)


# The second run diverges at step 4; the others continue to step 8.
RUNS = ["a-0", "a-1", "b-0"]
FRAMES = [
    frame(0, RUNS, [9, 8, 7]), frame(4, RUNS, [5, math.inf, 6], True), frame(8, ["a-0", "b-0"], [1, 2], True)
]  # fmt: skip


def steps_of(record: Record) -> dict[object, int]:
    return {run: frame.step for run, (frame, _) in record.last_frames(RUNS).items()}


def recorded(**seconds: float) -> Record:
    record = Record(ORDER)
    record.add(FRAMES, {run.replace("_", "-"): spent for run, spent in seconds.items()}, RUNS)
    return record


def test_a_run_ends_with_its_last_frame() -> None:
    record = recorded()
    assert record.outcomes(RUNS, ["loss"]) == [
        Outcome("a", 0, Status.DONE, {"loss": 1.0}, 8),
        Outcome("a", 1, Status.DIVERGED, {"loss": math.inf}, 4),
        Outcome("b", 0, Status.DONE, {"loss": 2.0}, 8),
    ]
    assert record.outcomes(["b-0"]) == [Outcome("b", 0, Status.DONE, {"loss": 2.0, "height": 3.0}, 8)]


def test_rows_of_runs_have_ids_parameters_last_metrics_and_provenance() -> None:
    runs = recorded(a_0=2.0, a_1=1.0, b_0=2.0).tables(RUNS, BOWL, "cpu")["runs"]
    first, second, third = runs.to_pylist()
    assert (first["run_id"], first["cell_id"], first["seed"], first["x"], first["step"]) == ("a-0", "a", 0, 0.0, 8)
    assert (second["status"], second["step"], second["loss"]) == ("diverged", 4, math.inf)
    assert (third["status"], third["loss"], third["height"]) == ("done", 2.0, 3.0)
    assert first["train_seconds"] == 2.0
    assert first["error"] is None
    assert set(BOWL.parameters) < set(runs.column_names)
    assert runs.schema.field("x").type == pa.float64()
    assert runs.schema.field("level").type == pa.int64()
    assert runs.schema.field("tilted").type == pa.bool_()


def test_curves_have_a_row_per_run_and_frame() -> None:
    curves = recorded().tables(RUNS, BOWL, "cpu")["curves"].to_pylist()
    found = sorted((row["run_id"], row["step"], row["loss"]) for row in curves)
    assert found == [
        ("a-0", 0, 9), ("a-0", 4, 5), ("a-0", 8, 1), ("a-1", 0, 8), ("a-1", 4, math.inf), ("b-0", 0, 7), ("b-0", 4, 6),
        ("b-0", 8, 2),
    ]  # fmt: skip


def test_arrays_are_lists_at_snapshots() -> None:
    arrays = recorded().tables(["a-0", "b-0"], BOWL, "cpu")["arrays"].to_pylist()
    found = {(row["run_id"], row["step"]): row["values"] for row in arrays}
    assert found == {("a-0", 4): [5, 6], ("b-0", 4): [6, 7], ("a-0", 8): [1, 2], ("b-0", 8): [2, 3]}
    assert {row["metric"] for row in arrays} == {"weight"}


def test_only_the_given_runs_have_rows() -> None:
    tables = recorded().tables(["b-0"], BOWL, "cpu")
    for name in ("runs", "curves", "arrays"):
        assert set(tables[name]["run_id"].to_pylist()) == {"b-0"}


def test_a_failure_has_its_reason_and_no_metrics() -> None:
    outcomes = [Outcome("a", 0, Status.FAILED), Outcome("a", 1, Status.FAILED), Outcome("b", 0, Status.FAILED)]
    rows = Record(ORDER).rows(outcomes, BOWL, "cpu", "it broke\nat line 3").to_pylist()
    assert [row["status"] for row in rows] == ["failed"] * 3
    assert {row["error"] for row in rows} == {"it broke\nat line 3"}
    assert "loss" not in rows[0]


def test_the_time_of_a_stretch_is_divided_by_steps() -> None:
    record = Record(ORDER)
    record.spend(6.0, {"a-0": 4, "b-0": 8})
    record.spend(1.0, {"a-0": 0, "b-0": 0})
    assert record.seconds == {"a-0": 2.5, "b-0": 4.5}


def test_runs_whose_rows_are_written_are_forgotten() -> None:
    record = recorded()
    record.forget(["a-0"])
    assert steps_of(record) == {"a-1": 4, "b-0": 8}
    record.forget(["a-1", "b-0"])
    assert record.frames == []


def test_only_the_wanted_runs_of_a_checkpoint_are_added() -> None:
    record = Record(ORDER)
    record.add(FRAMES, {"a-0": 1.0, "b-0": 2.0}, ["b-0"])
    assert steps_of(record) == {"b-0": 8}
    assert record.seconds == {"b-0": 2.0}
