"""Weights are kept of runs that are trained to the end, where the spec says so."""

import io

import pytest
import torch

from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import run


def loaded(files: SweepFiles, name: str) -> dict[str, torch.Tensor]:
    data = files.load_weights(name)
    assert data is not None
    kept: dict[str, torch.Tensor] = torch.load(io.BytesIO(data), weights_only=True)
    return kept


@pytest.mark.parametrize("pack", [1, 4])
def test_each_run_keeps_the_weights_that_it_ended_with(store: Store, pack: int) -> None:
    files = run(store, keep="weights", parameters={"x": {"values": [0, 1]}, "snapshots": 1}, resources={"pack": pack})
    arrays = files.files.read("arrays").to_pandas()
    last = dict(zip(arrays["run_id"], arrays["values"], strict=True))
    assert sorted(files.files.runs_with_weights()) == sorted(last)
    for name, values in last.items():
        assert loaded(files.files, name)["rolled"].tolist() == pytest.approx(list(values))


def test_runs_that_diverge_or_are_stopped_keep_none(store: Store) -> None:
    files = run(store, keep="weights", parameters={"trouble": {"values": [0, 2]}}, seeds=1).files
    runs = files.read("runs").to_pandas()
    assert files.runs_with_weights() == runs[runs["status"] == "done"]["run_id"].tolist()
    assert len(runs) == 2


def test_a_sweep_keeps_no_weights_unless_it_says_so(store: Store) -> None:
    files = run(store).files
    assert files.runs_with_weights() == []
    assert files.load_weights("a-0") is None


def test_weights_may_be_kept_from_some_day_on(store: Store) -> None:
    before = set(run(store, seeds=1).files.read("runs")["run_id"].to_pylist())
    files = run(store, keep="weights", seeds=2).files
    assert set(files.runs_with_weights()) == set(files.read("runs")["run_id"].to_pylist()) - before
