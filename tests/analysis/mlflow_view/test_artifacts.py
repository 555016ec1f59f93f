"""The parent run has the sweep's report and figures, and the data sets that its runs read."""

import json
from pathlib import Path

import pytest

from mislabel.analysis.mlflow_view.artifacts import make
from mislabel.analysis.mlflow_view.view import View
from mislabel.analysis.statistics.tables import SweepTables
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.analysis.mlflow_view.shown import MLFLOWS_OWN_WARNINGS, client_of, parent_of
from tests.analysis.mlflow_view.test_view import saved_view
from tests.bowls import prepared, run

pytestmark = [pytest.mark.server, MLFLOWS_OWN_WARNINGS]


def artifacts(uri: str) -> set[str]:
    run_id = parent_of(uri).info.run_id
    top = client_of(uri).list_artifacts(run_id)
    return {file.path for each in top for file in (client_of(uri).list_artifacts(run_id, each.path) or [each])}


def test_the_report_is_written_once_and_the_most_important_parameter_comes_first(store: Store, uri: str) -> None:
    space = {"level": {"values": [1, 2, 3]}, "x": {"values": [0.0, 1.0, 3.0]}}  # the loss depends on x alone
    files = run(store, parameters=space).files
    View(files, uri).sync()
    assert artifacts(uri) == {"spec.yaml"}
    View(files, uri).sync(report=True)
    assert artifacts(uri) == {"spec.yaml", "report.html", "figures/curves.png"}
    report = client_of(uri).download_artifacts(parent_of(uri).info.run_id, "report.html")
    assert "Best loss" in Path(report).read_text()
    charts = saved_view(uri)["compareRunCharts"]
    assert next(chart for chart in charts if chart["type"] == "SCATTER")["xaxis"]["key"] == "x"
    written = Path(report).stat().st_mtime_ns
    View(files, uri).sync(report=True)
    assert Path(report).stat().st_mtime_ns == written
    assert next(chart for chart in saved_view(uri)["compareRunCharts"])["xaxis"]["key"] == "x"


def test_a_sweep_without_results_has_a_report(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    make(SweepTables(prepared(store).files), folder)
    assert (folder / "report.html").exists()
    assert json.loads((folder / ".importance.json").read_text()) == []


def test_data_sets_are_inputs_of_the_parent_run(files: SweepFiles, uri: str) -> None:
    (launch,) = Path(files.address, "launches").glob("*.json")
    checksum = "sha256:" + "0123456789abcdef" * 4
    launch.write_text(json.dumps({**json.loads(launch.read_text()), "data": {"cifar10": checksum}}))
    View(files, uri).sync()
    (shown,) = parent_of(uri).inputs.dataset_inputs
    assert (shown.dataset.name, json.loads(shown.dataset.source)["checksum"]) == ("cifar10", checksum)
    assert checksum.removeprefix("sha256:").startswith(shown.dataset.digest)
    View(files, uri).sync()
    assert len(parent_of(uri).inputs.dataset_inputs) == 1
