"""Sweeps that are removed from the store disappear from MLflow, and nothing else does."""

import shutil
from pathlib import Path

import pytest
from mlflow.entities import ViewType

from mislabel.analysis.mlflow_view.view import View, remove_absent_sweeps
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.analysis.mlflow_view.shown import MLFLOWS_OWN_WARNINGS, client_of, nested_runs, shown_runs
from tests.bowls import run

pytestmark = [pytest.mark.server, MLFLOWS_OWN_WARNINGS]


def experiments(uri: str) -> set[str]:
    return {found.name for found in client_of(uri).search_experiments(ViewType.ACTIVE_ONLY)}


def test_a_removed_sweep_disappears_and_can_be_run_again(store: Store, files: SweepFiles, uri: str) -> None:
    client_of(uri).create_experiment("of another program")
    View(files, uri).sync()
    View(run(store, name="other").files, uri).sync()
    assert remove_absent_sweeps(store, uri) == []
    shutil.rmtree(files.address)
    assert remove_absent_sweeps(store, uri) == ["bowls"]
    assert remove_absent_sweeps(store, uri) == []
    assert experiments(uri) == {"Default", "of another program", "other"}
    View(run(store, parameters={"x": {"values": [5.0]}}).files, uri).sync()
    assert len(nested_runs(uri)) == 1


def test_a_sweep_of_the_same_name_in_another_store_is_kept(
    store: Store, files: SweepFiles, uri: str, tmp_path: Path
) -> None:
    View(files, uri).sync()
    View(run(Store(str(tmp_path / "other")), parameters={"x": {"values": [5.0]}}).files, uri).sync()
    shutil.rmtree(files.address)
    assert remove_absent_sweeps(store, uri) == ["bowls"]
    assert len(shown_runs(uri)) == 2
    assert remove_absent_sweeps(store, uri) == []
