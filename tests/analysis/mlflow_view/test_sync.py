"""A second sync adds what is new, restores what was deleted, and changes nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mislabel.analysis.mlflow_view.view import View
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.analysis.mlflow_view.shown import (
    MLFLOWS_OWN_WARNINGS,
    client_of,
    nested_runs,
    nobodys_address,
    parent_of,
    runs_table,
    shown_runs,
)
from tests.bowls import run

pytestmark = [pytest.mark.server, MLFLOWS_OWN_WARNINGS]


def test_syncing_twice_changes_nothing(files: SweepFiles, uri: str) -> None:
    View(files, uri).sync()
    before = [run.to_dictionary() for run in shown_runs(uri)]
    assert View(files, uri).sync() == 0
    assert [run.to_dictionary() for run in shown_runs(uri)] == before


def test_more_seeds_replace_a_cell_and_more_values_add_to_it(store: Store, files: SweepFiles, uri: str) -> None:
    View(files, uri).sync()
    old = {name: shown.info.run_id for name, shown in nested_runs(uri).items()}
    run(store, parameters={"x": {"values": [0.0, 1.0, 2.0, 4.0]}})
    assert View(files, uri).sync() == 1
    assert old.items() <= {name: shown.info.run_id for name, shown in nested_runs(uri).items()}.items()
    run(store, parameters={"x": {"values": [0.0, 1.0, 2.0, 4.0]}}, seeds=3)
    assert View(files, uri).sync() == 4
    nested = nested_runs(uri)
    assert {shown.data.tags["seeds"] for shown in nested.values()} == {"3"}
    assert not set(old.values()) & {shown.info.run_id for shown in nested.values()}


def test_a_newly_varying_parameter_is_in_every_name(store: Store, files: SweepFiles, uri: str) -> None:
    View(files, uri).sync()
    run(store, parameters={"x": {"values": [0.0, 1.0, 2.0]}, "level": {"values": [1, 5]}})
    assert View(files, uri).sync() == 6
    assert set(nested_runs(uri)) == {f"x={x} level={level}" for x in (0, 1, 2) for level in (1, 5)}


def test_deleted_runs_and_experiments_are_restored(files: SweepFiles, uri: str) -> None:
    View(files, uri).sync()
    values = {name: shown.data.metrics for name, shown in nested_runs(uri).items()}

    def restored(written: int) -> None:
        assert View(files, uri).sync() == written
        assert {name: shown.data.metrics for name, shown in nested_runs(uri).items()} == values
        assert View(files, uri).sync() == 0

    client = client_of(uri)
    client.delete_run(nested_runs(uri)["x=1"].info.run_id)
    restored(1)
    client.delete_run(parent_of(uri).info.run_id)
    restored(3)
    client.delete_experiment(client.get_experiment_by_name("bowls").experiment_id)
    restored(0)
    client.rename_experiment(client.get_experiment_by_name("bowls").experiment_id, "other")
    restored(3)


def test_artifacts_are_stored_beside_the_database(files: SweepFiles, uri: str, tmp_path: Path) -> None:
    other = tmp_path / "other folder"
    other.mkdir()
    shutil.copy(uri.removeprefix("sqlite:///"), other)
    assert View(files, f"sqlite:///{other}/mlflow.db").sync() == 3
    assert list(other.glob("mlartifacts/bowls/*/artifacts/spec.yaml"))


def test_an_interrupted_sync_is_completed_by_the_next(files: SweepFiles, uri: str) -> None:
    written = []

    def cut_off() -> bool:
        written.append(1)
        return len(written) > 2

    with pytest.raises(MislabelError):
        View(files, uri).sync(True, cancelled=cut_off)
    unfinished = nested_runs(uri)
    assert len(unfinished) == 2
    # The digest is written last: without it, the nested run is unfinished.
    client_of(uri).delete_tag(unfinished["x=0"].info.run_id, "mislabel.digest")
    assert View(files, uri).sync() == 2
    assert set(nested_runs(uri)) == {"x=0", "x=1", "x=2"}


def test_nested_runs_are_replaced_when_the_spec_tracks_others(store: Store, files: SweepFiles, uri: str) -> None:
    View(files, uri).sync()
    View(run(store, track={"per": "run"}).files, uri).sync()
    assert len(nested_runs(uri)) == 6
    View(run(store, track={"per": "none"}).files, uri).sync()
    assert nested_runs(uri) == {}
    assert parent_of(uri).data.metrics["runs_done"] == 6


def test_sweeps_of_the_same_name_in_two_stores_are_kept_apart(files: SweepFiles, uri: str, tmp_path: Path) -> None:
    View(files, uri).sync()
    others = run(Store(str(tmp_path / "other")), parameters={"x": {"values": [5.0]}}).files
    assert View(others, uri).sync() == 1
    assert View(files, uri).sync() == 0
    assert len(shown_runs(uri)) == 4 + 2


def test_creating_the_database_prints_nothing(store: Store, files: SweepFiles, uri: str) -> None:
    Path(uri.removeprefix("sqlite:///")).unlink()
    code = (
        "import sys\nfrom mislabel.sweeps.store.store import Store\n"
        "from mislabel.analysis.mlflow_view.view import View\n"
        "View(Store(sys.argv[1]).sweep('bowls'), sys.argv[2]).sync()"
    )
    done = subprocess.run([sys.executable, "-c", code, store.address, uri], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert len(nested_runs(uri)) == runs_table(files)["cell_id"].nunique()


def test_a_sync_does_not_change_the_environment(files: SweepFiles, uri: str) -> None:
    before = dict(os.environ)
    View(files, uri).sync()
    assert dict(os.environ) == before


def test_a_password_in_the_address_is_not_shown(files: SweepFiles) -> None:
    with pytest.raises(MislabelError) as caught:
        View(files, nobodys_address("me:secret@")).sync()
    assert "secret" not in str(caught.value)


def test_a_server_shows_what_a_database_shows(files: SweepFiles, uri: str, server: str) -> None:
    View(files, uri).sync()
    assert View(files, server).sync() == 3
    assert View(files, server).sync() == 0
    assert {name: shown.data.metrics for name, shown in nested_runs(server).items()} == {
        name: shown.data.metrics for name, shown in nested_runs(uri).items()
    }
    assert client_of(server).list_artifacts(parent_of(server).info.run_id)[0].path == "spec.yaml"
