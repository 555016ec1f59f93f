import math

import pytest

import mislabel
from mislabel.analysis.statistics.comparison import common_step, values_of
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.store.store import Store
from tests.bowls import cut_short, run


@pytest.fixture
def sweep(store: Store) -> Sweep:
    parameters = {"x": {"values": [0, 1, 2, 3, 4, 5]}, "trouble": {"values": [0, 2], "when": "x == 5"}}
    run(store, parameters={**parameters, "frames": 9, "spacing": "linear"}, seeds=2, resources={"pack": 20})
    return mislabel.load(store.address, "bowls")


def cut(sweep: Sweep, x: float, step: int) -> Sweep:
    cut_short(sweep.files, sweep.read("runs", ["run_id"], {"x": x})["run_id"].tolist(), step)
    return mislabel.load(sweep.files.address.removesuffix("/bowls"), "bowls")


def test_without_stopping_cells_are_compared_at_their_end(sweep: Sweep) -> None:
    assert common_step(sweep) is None
    values = values_of(sweep, "loss")
    assert len(values) == 14
    assert values["value"].isna().sum() == 2  # those that diverged
    assert values["value"].sum() == pytest.approx(sweep.runs.loc[sweep.runs["status"] == "done", "loss"].sum())


def test_with_stopping_they_are_compared_where_the_first_was_stopped(sweep: Sweep) -> None:
    stopped = cut(cut(sweep, 0, 5), 1, 3)
    assert common_step(stopped) == 3
    values = values_of(stopped, "loss", 3).groupby("cell_id")["value"].mean()
    curve = stopped.curve("loss", by="cell_id", where={"step": 3}).set_index("cell_id")["mean"]
    assert values.to_dict() == pytest.approx(curve.to_dict())
    # At the end, or at a later step, those that were stopped before have no value.
    assert values_of(stopped, "loss")["value"].isna().sum() == 6
    assert values_of(stopped, "loss", 5)["value"].isna().sum() == 4


def test_importances_rest_on_all_cells_though_some_were_stopped(sweep: Sweep) -> None:
    stopped = cut(sweep, 0, 5)
    table = stopped.importance(method="ped_anova")
    assert table.attrs["step"] == 5
    assert table.attrs["cells"] == {"loss": 6}
    assert stopped.importance(method="ped_anova", step=8).attrs["cells"] == {"loss": 5}
    assert math.isclose(table["importance"].sum(), 1)
