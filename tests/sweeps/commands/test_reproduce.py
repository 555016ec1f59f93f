"""`mislabel reproduce`, on real experiments made small."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from mislabel.sweeps.commands.main import cli
from mislabel.sweeps.plan.data_check import DataMissingError


def _reproduce(*words: str) -> Result:
    result = CliRunner().invoke(cli, ["reproduce", *words], standalone_mode=False)
    assert result.exception is None, result.output
    return result


def test_without_names_all_experiments_are_listed_with_the_state_of_their_claims(tmp_path: Path) -> None:
    listed = _reproduce("--store", str(tmp_path)).stdout
    assert "misclassification/fig1" in listed
    assert "not run" in listed


@pytest.mark.claims
def test_claims_can_be_checked_again_without_running_the_experiment(tmp_path: Path) -> None:
    words = ["label-noise-sgd/lemma34", "--quick", "--store", str(tmp_path), "--inline", "--no-mlflow", "--json"]
    first = _reproduce(*words)
    findings = json.loads(first.stdout)
    assert [finding["verdict"] for finding in findings] == ["confirmed", "confirmed"]
    assert all(finding["low"] <= finding["mean"] <= finding["high"] for finding in findings)
    parts = sorted(tmp_path.rglob("runs/*.parquet"))
    again = _reproduce(*words, "--check")
    assert json.loads(again.stdout) == findings
    assert sorted(tmp_path.rglob("runs/*.parquet")) == parts
    assert "nothing to run" in _reproduce(*words).stderr
    lines = _reproduce(*words[:-1], "--check", "--markdown").stdout.splitlines()
    table = [line for line in lines if line.startswith("| ")]
    assert len(table) == 2 + len(findings)
    assert all(line.count(" | ") == 5 for line in table)
    assert table[2].startswith("| `label-noise-sgd/lemma34` | ")


def test_claims_are_checked_once_all_cells_have_runs(tmp_path: Path) -> None:
    words = ["label-noise-sgd/lemma34", "--quick", "--store", str(tmp_path)]
    _reproduce(*words, "--inline", "--no-mlflow", "--set", "parameters.steps=50", "--set", "seeds=2")
    (spec,) = tmp_path.rglob("spec.yaml")
    spec.write_text(spec.read_text().replace("- 1.0", "- 1.0\n    - 2.0"))
    checked = _reproduce(*words, "--check")
    assert checked.stderr.startswith("label-noise-sgd/lemma34: 1 ")
    assert checked.stdout.count("NOT RUN") == 2


@pytest.mark.claims
def test_a_claim_that_is_not_confirmed_sets_the_exit_code_and_is_shown_as_such(tmp_path: Path) -> None:
    result = _reproduce("misclassification/fig2", "--quick", "--store", str(tmp_path), "--inline", "--no-mlflow")
    assert result.return_value == 1
    assert "CONTRADICTED  Figure 2: the norm levels off near d·h (cross entropy)" in result.stdout
    assert "CONFIRMED     Figure 2: the norm levels off near d·h (hinge loss)" in result.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_of_several_experiments_those_that_need_a_gpu_are_skipped_without_one(tmp_path: Path) -> None:
    names = ["misclassification/resnet20", "clean-priority/fig7-cifar10"]
    result = _reproduce(*names, "--store", str(tmp_path), "--inline", "--no-mlflow")
    assert result.stderr.count("--quick") == 2
    assert result.return_value == 0
    assert not list(tmp_path.rglob("*.parquet"))


def test_missing_data_is_reported_once_after_the_other_experiments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MISLABEL_DATA", str(tmp_path / "data"))
    names = ["clean-priority/fig4", "clean-priority/fig9"]
    words = ["--store", str(tmp_path / "store"), "--inline", "--no-mlflow"]
    result = _reproduce(*names, *words)
    assert result.stderr.count("fetch it with: mislabel data get mnist") == 1
    assert result.return_value == 1
    alone = CliRunner().invoke(cli, ["reproduce", names[0], *words], standalone_mode=False)
    assert isinstance(alone.exception, DataMissingError)
