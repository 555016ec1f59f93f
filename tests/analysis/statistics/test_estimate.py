"""Estimates and their intervals, compared with SciPy's."""

import numpy as np
import pytest
from scipy import stats

import mislabel
from mislabel.analysis.statistics.estimate import Estimate, at_end, at_step, mean_of, share_of
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import Store
from tests.bowls import cut_short, run


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    store = Store(str(tmp_path_factory.mktemp("store")))
    run(store, parameters={"x": {"values": [0, 1]}}, seeds=4, resources={"pack": 8})
    return mislabel.load(store.address, "bowls")


def test_a_mean_has_a_student_t_interval() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 9.5]
    estimate = mean_of(values)
    expected = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert (estimate.low, estimate.high) == pytest.approx(expected)
    assert estimate.mean == pytest.approx(4.9)
    assert estimate.n == 5


@pytest.mark.parametrize(("held", "of"), [(0, 5), (3, 8), (20, 20), (1, 1)])
def test_a_share_has_a_clopper_pearson_interval(held: int, of: int) -> None:
    estimate = share_of([True] * held + [False] * (of - held))
    expected = stats.binomtest(held, of).proportion_ci(method="exact")
    assert [estimate.low, estimate.high] == pytest.approx([expected.low, expected.high])


def test_one_value_or_a_missing_value_gives_an_unbounded_interval() -> None:
    for values in ([3.0], [1.0, float("nan")], [1.0, float("inf")]):
        assert (mean_of(values).low, mean_of(values).high) == (float("-inf"), float("inf"))


def test_an_estimate_needs_values() -> None:
    with pytest.raises(MislabelError):
        mean_of([])
    with pytest.raises(MislabelError):
        share_of([])


def test_estimates_show_mean_interval_and_number() -> None:
    assert str(Estimate(1.0, 0.5, 1.5, 7)) == "1 ± 0.5 (n = 7)"
    assert str(Estimate(1.0, 0.5, 1.0, 7)) == "1, 0.5 to 1 (n = 7)"
    assert str(Estimate(1.0, 1.0, 1.0, 7)) == "1 (n = 7)"


def test_values_at_the_end_are_averaged_by_seed(sweep: Sweep) -> None:
    runs = sweep.runs
    assert at_end(sweep, "loss", {"x": 1}).to_dict() == runs[runs["x"] == 1].set_index("seed")["loss"].to_dict()
    assert at_end(sweep, "loss").to_dict() == pytest.approx(runs.groupby("seed")["loss"].mean().to_dict())


def test_values_at_a_step_are_those_of_the_last_frame_up_to_it(sweep: Sweep) -> None:
    curves = sweep.curves
    for step, frame in ((0, 0), (1, 1), (7, 1), (8, 8), (100, 8)):
        expected = curves[curves["step"] == frame].groupby("seed")["loss"].mean().to_dict()
        assert at_step(sweep, "loss", step).to_dict() == pytest.approx(expected)


def test_a_seed_with_a_diverged_or_stopped_run_has_no_value(store: Store) -> None:
    """Without that run, the mean over cells would be over the better cells."""
    run(store, parameters={"x": {"values": [0, 1]}, "trouble": {"values": [0, 2], "when": "x == 1"}}, seeds=3)
    sweep = mislabel.load(store.address, "bowls")
    assert at_end(sweep, "loss").isna().all()
    assert at_step(sweep, "loss", 8).isna().all()
    assert at_end(sweep, "loss", {"trouble": 0}).notna().all()
    early = sweep.read("runs", ["run_id"], {"x": 0, "seed": 1})["run_id"].tolist()
    cut_short(sweep.files, early, 1)
    stopped = mislabel.load(store.address, "bowls")
    assert at_end(stopped, "loss", {"trouble": 0}).isna().to_dict() == {0: False, 1: True, 2: False}
    assert at_step(stopped, "loss", 1, {"trouble": 0}).notna().all()
