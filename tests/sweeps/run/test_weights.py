"""If the spec says so, the weights of runs that are trained to the end are kept."""

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
def test_each_run_keeps_its_final_weights(store: Store, pack: int) -> None:
    files = run(store, keep="weights", parameters={"x": {"values": [0, 1]}, "snapshots": 1}, resources={"pack": pack})
    arrays = files.files.read("arrays").to_pandas()
    last = dict(zip(arrays["run_id"], arrays["values"], strict=True))
    assert sorted(files.files.runs_with_weights()) == sorted(last)
    for name, values in last.items():
        assert loaded(files.files, name)["rolled"].tolist() == pytest.approx(list(values))


def test_diverged_and_stopped_runs_keep_no_weights(store: Store) -> None:
    files = run(store, keep="weights", parameters={"trouble": {"values": [0, 2]}}, seeds=1).files
    runs = files.read("runs").to_pandas()
    assert files.runs_with_weights() == runs[runs["status"] == "done"]["run_id"].tolist()
    assert len(runs) == 2


def test_by_default_a_sweep_keeps_no_weights(store: Store) -> None:
    files = run(store).files
    assert files.runs_with_weights() == []
    assert files.load_weights("a-0") is None


def test_a_later_launch_may_start_to_keep_weights(store: Store) -> None:
    before = set(run(store, seeds=1).files.read("runs")["run_id"].to_pylist())
    files = run(store, keep="weights", seeds=2).files
    assert set(files.runs_with_weights()) == set(files.read("runs")["run_id"].to_pylist()) - before
