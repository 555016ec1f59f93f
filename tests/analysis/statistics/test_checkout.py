"""Runs from a modified checkout are marked, whether the store has their commit or only that of their launch."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import mislabel
from mislabel.analysis.report.report import Report
from mislabel.analysis.statistics.checkout import UNKNOWN, checkout_note, commits
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.commands.main import cli
from mislabel.sweeps.run.provenance import commit_of
from mislabel.sweeps.store.store import Store
from tests.bowls import run

RECORDS = Path(__file__).parents[3] / "records"
CLEAN, DIRTY = "c" * 40, f"{'d' * 40}-dirty"


def _stored(store: Store, *commits: str | None) -> Sweep:
    """A sweep of three runs with these commits; without any, the column is missing, as in older stores."""
    run(store, parameters={"x": {"values": [0, 1, 2]}}, seeds=1)
    files = store.sweep("bowls")
    table = files.read("runs").drop_columns(["commit"])
    if commits:
        table = table.append_column("commit", pa.array(commits, pa.string()))
    files.write_results({"runs": table, "curves": files.read("curves")}, replaces=files.parts("runs"))
    return mislabel.load(store.address, "bowls")


def _launch(sweep: Sweep, name: str, started_at: str, commit: str, dirty: bool) -> None:
    launch = {"started_at": started_at, "git": {"commit": commit, "dirty": dirty}}
    sweep.files.write_json(f"launches/{name}.json", launch)


def test_runs_get_the_commit_of_their_launch(store: Store) -> None:
    run(store, seeds=1)
    sweep = mislabel.load(store.address, "bowls")
    (launch,) = sweep.files.launches()
    assert set(sweep.runs["commit"]) == set(sweep.commits) == {commit_of(launch)}


@pytest.mark.long
def test_runs_from_a_modified_checkout_are_marked(store: Store) -> None:
    sweep = _stored(store, CLEAN, DIRTY, f"{CLEAN} {DIRTY}")
    assert sweep.commits.tolist() == [CLEAN, DIRTY, f"{CLEAN} {DIRTY}"]
    assert sweep.modified_runs["run_id"].tolist() == sweep.runs["run_id"].tolist()[1:]
    note = checkout_note(sweep)
    assert note.startswith("2 of 3 runs")
    assert "d" * 12 in note
    assert CLEAN[:12] not in note
    assert f"{note[1:]}." in Report(sweep).html()


@pytest.mark.long
@pytest.mark.parametrize("commit", [CLEAN, ""])
def test_unmodified_and_installed_code_need_no_note(store: Store, commit: str) -> None:
    sweep = _stored(store, commit, commit, commit)
    assert checkout_note(sweep) == ""
    assert sweep.modified_runs.empty
    assert "modified checkout" not in Report(sweep).html()


def test_older_runs_have_the_commit_of_the_last_launch_before_them(store: Store) -> None:
    sweep = _stored(store)
    for name in sweep.files.names("launches"):
        sweep.files.remove(f"launches/{name}")
    assert set(sweep.commits) == {UNKNOWN}
    assert checkout_note(sweep).count("3 of 3 runs") == 1
    _launch(sweep, "1", "2001-01-01T00:00:00+00:00", "e" * 40, dirty=False)
    _launch(sweep, "2", "2002-01-01T00:00:00+00:00", "f" * 40, dirty=True)
    _launch(sweep, "3", "2999-01-01T00:00:00+00:00", "a" * 40, dirty=False)
    assert set(sweep.commits) == {f"{'f' * 40}-dirty"}
    assert len(sweep.modified_runs) == 3


def test_older_and_newer_runs_are_told_apart(store: Store) -> None:
    sweep = _stored(store, None, CLEAN, DIRTY)
    (launch,) = sweep.files.launches()
    assert sweep.commits.tolist() == [commit_of(launch), CLEAN, DIRTY]


def test_a_sweep_without_runs_has_no_commits(store: Store) -> None:
    run(store, seeds=1)
    files = store.sweep("bowls")
    for part in files.parts("runs"):
        files.remove(f"runs/{part}.parquet")
    assert commits(mislabel.load(store.address, "bowls")).empty


@pytest.mark.long
def test_the_commands_mark_the_records_that_come_from_a_modified_checkout() -> None:
    def said(*words: str) -> tuple[str, str]:
        result = CliRunner().invoke(cli, [*words, "--store", str(RECORDS)], standalone_mode=False)
        assert result.exception is None
        return result.stdout, result.stderr

    sweep = mislabel.load(str(RECORDS), "clean-priority.fig10")
    note = checkout_note(sweep)
    assert (len(sweep.modified_runs), len(sweep.runs)) == (2, 8)
    assert note.startswith("2 of 8 runs")
    assert note in said("results", "clean-priority.fig10")[1]
    check = ("reproduce", "clean-priority/fig10", "clean-priority/fig4", "--check")
    assert said(*check)[0].count(note) == 1
    assert said(*check, "--markdown")[0].count(note) == 1
    rows = json.loads(said(*check, "--json")[0])
    assert {row["experiment"]: row["checkout"] for row in rows} == {
        "clean-priority/fig10": note, "clean-priority/fig4": None
    }  # fmt: skip
