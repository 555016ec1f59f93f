"""`mislabel reproduce`, on real experiments made small."""

import json
from pathlib import Path

import click
import pytest
import torch
import yaml
from click.testing import CliRunner, Result

from mislabel.analysis.claims.claim import claims_of, paper
from mislabel.sweeps.commands.main import cli
from mislabel.sweeps.plan.data_check import DataMissingError


def _reproduce(*words: str) -> Result:
    result = CliRunner().invoke(cli, ["reproduce", *words], standalone_mode=False)
    assert result.exception is None, result.output
    return result


def test_without_names_all_experiments_are_listed_with_the_state_of_their_claims(tmp_path: Path) -> None:
    listed = _reproduce("--store", str(tmp_path)).stdout
    assert "misclassification/fig1" in listed
    assert "not tested" in listed
    assert "items with claims" in listed


SMALL = "label-noise-sgd/lemma35"


@pytest.mark.claims
def test_claims_can_be_checked_again_without_running_the_experiment(tmp_path: Path) -> None:
    words = [SMALL, "--quick", "--store", str(tmp_path), "--inline", "--no-mlflow", "--json"]
    findings = json.loads(_reproduce(*words).stdout)
    assert {finding["verdict"] for finding in findings} == {"confirmed"}
    assert all(finding["low"] <= finding["mean"] <= finding["high"] for finding in findings)
    assert not any(finding["rule_is_newer"] for finding in findings)
    parts = sorted(tmp_path.rglob("runs/*.parquet"))
    again = _reproduce(*words, "--check")
    assert json.loads(again.stdout) == findings
    assert sorted(tmp_path.rglob("runs/*.parquet")) == parts
    assert "nothing to run" in _reproduce(*words).stderr
    lines = _reproduce(*words[:-1], "--check", "--markdown").stdout.splitlines()
    table = [line for line in lines if line.startswith("| ")]
    assert len(table) == 2 + len(findings)
    assert "Chance alone" in lines[-1]


@pytest.mark.claims
def test_a_rule_that_is_edited_after_the_runs_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [SMALL, "--quick", "--store", str(tmp_path), "--inline", "--no-mlflow"]
    assert "newer" not in _reproduce(*words).stdout
    before = paper("label-noise-sgd")
    name, claim = next(iter(before.claims_of("lemma35").items()))
    stricter = claim.model_copy(update={"quantity": claim.quantity + ", again"})
    edited = before.model_copy(update={"claims": {**before.claims, name: stricter}})
    monkeypatch.setattr("mislabel.analysis.claims.claim.paper", lambda _: edited)
    assert _reproduce(*words, "--check").stdout.count("the rule is newer than the runs") == 1


@pytest.mark.claims
def test_fresh_runs_everything_again_in_an_empty_store(tmp_path: Path) -> None:
    words = [SMALL, "--quick", "--store", str(tmp_path), "--inline", "--no-mlflow"]
    _reproduce(*words)
    fresh = _reproduce(*words, "--fresh")
    assert "nothing to run" not in fresh.stderr
    (folder,) = tmp_path.glob("fresh-*")
    assert f"--store {folder}" in fresh.stderr
    assert len(list(folder.rglob("runs/*.parquet"))) == len(
        list((tmp_path / "label-noise-sgd.lemma35-quick/runs").glob("*"))
    )
    with pytest.raises(click.UsageError, match="--check"):
        CliRunner().invoke(
            cli, ["reproduce", *words, "--fresh", "--check"], standalone_mode=False, catch_exceptions=False
        )


@pytest.mark.long
def test_claims_are_checked_once_all_cells_have_runs(tmp_path: Path) -> None:
    words = [SMALL, "--quick", "--store", str(tmp_path)]
    few = ["--inline", "--no-mlflow", "--set", "parameters.steps=50", "--set", "seeds.count=2"]
    _reproduce(*words, *few)
    (spec,) = tmp_path.rglob("spec.yaml")
    values = yaml.safe_load(spec.read_text())
    values["parameters"]["width"] = {"values": [5, 6]}
    spec.write_text(yaml.safe_dump(values))
    checked = _reproduce(*words, "--check")
    assert checked.stdout.count("NOT TESTED") == len(claims_of(SMALL))
    assert "of the spec have no run" in checked.stdout


@pytest.mark.claims
def test_a_claim_that_is_contradicted_sets_the_exit_code_and_is_shown_as_such(tmp_path: Path) -> None:
    result = _reproduce("label-noise-sgd/lemma34", "--quick", "--store", str(tmp_path), "--inline", "--no-mlflow")
    assert result.return_value == 1
    assert "  CONTRADICTED  Lemma 3.4" in result.stdout
    assert "  CONFIRMED     Lemma 3.4" in result.stdout


def test_the_page_of_a_paper_lists_its_items_and_why_experiments_did_not_run(tmp_path: Path) -> None:
    printed = _reproduce("label-noise-sgd", "--check", "--markdown", "--store", str(tmp_path)).stdout
    known = paper("label-noise-sgd")
    assert "## Items of the paper" in printed
    assert "Not run: it needs a GPU" in printed
    assert "{} of {} items".format(*known.coverage) in printed


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
