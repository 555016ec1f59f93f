"""Cells appear in MLflow when they start, their curves grow, and in the end MLflow shows what pandas does."""

import pytest

import mislabel
from mislabel.analysis.mlflow_view.view import View
from mislabel.sweeps.run import live_rows, worker
from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.run.worker import Worker
from mislabel.sweeps.store.store import Store
from tests.analysis.mlflow_view.shown import MLFLOWS_OWN_WARNINGS, client_of, nested_runs, parent_of
from tests.bowls import CPU, orders_of, prepared, run

pytestmark = [pytest.mark.server, MLFLOWS_OWN_WARNINGS]

LONG = {"x": {"values": [0.0, 1.0, 2.0]}, "rate": 0.05, "steps": 40, "frames": 11, "spacing": "linear"}


@pytest.fixture(autouse=True)
def rows_after_every_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_SECONDS", "EVERY_SECONDS", "LONGEST_SECONDS"):
        monkeypatch.setattr(live_rows, name, 0.0)
    monkeypatch.setattr(worker, "STRETCH_SECONDS", 0.0)


def half_way(store: Store, stretches: int = 5) -> tuple[Launch, Worker]:
    """A sweep whose first pack, of four of its six runs, is being trained."""
    launch = prepared(store, parameters=LONG)
    trained = Worker(orders_of(launch)[0], launch.files, CPU)
    for _ in range(stretches):
        trained.work(0.0)
    return launch, trained


def history(uri: str, run_id: str) -> dict[int, float]:
    points = client_of(uri).get_metric_history(run_id, "loss")
    assert len({point.step for point in points}) == len(points), "a step has two points"
    return {point.step: point.value for point in points}


def assert_equal_to_pandas(store: Store, uri: str) -> None:
    sweep = mislabel.load(store.address, "bowls")
    cells, nested = sweep.cells("loss").set_index("x"), nested_runs(uri)
    assert set(nested) == {"x=0", "x=1", "x=2"}
    for x in (0, 1, 2):
        shown = nested[f"x={x}"]
        curve = sweep.curve("loss", by="cell_id", where={"x": float(x)}).set_index("step")["mean"]
        assert shown.info.status == "FINISHED"
        assert shown.data.metrics["loss"] == pytest.approx(cells.loc[x, "mean"])
        assert shown.data.metrics["loss_std"] == pytest.approx(cells.loc[x, "std"])
        assert history(uri, shown.info.run_id) == pytest.approx(curve.to_dict(), rel=1e-5)


def test_cells_appear_when_they_start_and_their_curves_grow_to_those_of_pandas(store: Store, uri: str) -> None:
    launch, trained = half_way(store)
    view = View(launch.files, uri)
    assert view.sync(final=False) == 2
    first = nested_runs(uri)
    assert {shown.info.status for shown in first.values()} == {"RUNNING"}
    assert {shown.data.tags["status"] for shown in first.values()} == {"2 running"}
    assert parent_of(uri).data.tags["mislabel.runs"] == "4 running"
    few = {name: history(uri, shown.info.run_id) for name, shown in first.items()}
    assert all(few.values())
    for _ in range(3):
        trained.work(0.0)
    assert view.sync(final=False) == 2
    more = {name: history(uri, shown.info.run_id) for name, shown in nested_runs(uri).items()}
    for name, points in few.items():
        assert points.items() < more[name].items()
    assert [shown.data.tags["step"] for shown in nested_runs(uri).values()] == [f"{trained.pack_group.step}/40"] * 2
    assert view.sync(final=False) == 0
    while trained.pack_group.live:
        trained.work(0.0)
    run(store, parameters=LONG)
    view.sync()
    assert_equal_to_pandas(store, uri)
    ids = {name: shown.info.run_id for name, shown in nested_runs(uri).items()}
    assert {name: ids[name] for name in first} == {name: shown.info.run_id for name, shown in first.items()}


def test_cells_that_another_process_left_open_are_written_again(store: Store, uri: str) -> None:
    launch, _ = half_way(store)
    View(launch.files, uri).sync(final=False)
    left = {shown.info.run_id for shown in nested_runs(uri).values()}
    assert View(launch.files, uri).sync(final=False) == 2
    assert left.isdisjoint(shown.info.run_id for shown in nested_runs(uri).values())
    run(store, parameters=LONG)
    View(launch.files, uri).sync()
    assert_equal_to_pandas(store, uri)


def test_a_curve_that_other_seeds_change_is_replaced_at_the_end(store: Store, uri: str) -> None:
    """The second seed of a cell trains in a later pack."""
    launch = prepared(store, parameters=LONG, resources={"pack": 1})
    trained = Worker(orders_of(launch)[0], launch.files, CPU)
    view = View(launch.files, uri)
    for _ in range(5):
        trained.work(0.0)
    view.sync(final=False)
    (shown,) = nested_runs(uri).values()
    assert shown.data.tags["seeds"] == "1"
    while trained.pack_group.live:
        trained.work(0.0)
    view.sync(final=False)
    assert nested_runs(uri).popitem()[1].info.status == "RUNNING"
    run(store, parameters=LONG)
    view.sync()
    assert_equal_to_pandas(store, uri)


def test_a_stopped_sweep_shows_its_unfinished_cells_until_it_continues(store: Store, uri: str) -> None:
    launch, _ = half_way(store)
    view = View(launch.files, uri)
    view.sync(final=False)
    view.sync()
    nested = nested_runs(uri)
    assert {shown.info.status for shown in nested.values()} == {"KILLED"}
    assert {shown.data.tags["status"] for shown in nested.values()} == {"2 unfinished"}
    assert all(history(uri, shown.info.run_id) for shown in nested.values())
    run(store, parameters=LONG)
    View(launch.files, uri).sync()
    assert_equal_to_pandas(store, uri)
