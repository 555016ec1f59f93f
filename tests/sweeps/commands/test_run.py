import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mislabel.sweeps.store.store import Store
from tests.bowls import runs_of
from tests.cluster.heads import until
from tests.pace import Pace
from tests.sweeps.commands.conftest import Mislabel, Said

Write = Callable[..., str]
Ran = Callable[..., Said]


def test_stdout_has_the_table_and_stderr_the_messages(ran: Ran) -> None:
    said = ran()
    assert said.code == 0
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[0] == ["x", "seeds", "loss"]
    assert [line[:2] for line in lines[1:]] == [["2", "2"], ["1", "2"], ["0", "2"]]
    assert "bowls: 3 cells × 2 seeds = 6 runs" in said.err
    assert "6 runs in" in said.err
    assert "results bowls" in said.err
    assert Store("results").names() == ["bowls"]


def test_running_again_does_nothing_and_prints_the_table_again(ran: Ran) -> None:
    first, second = ran(), ran()
    assert second.code == 0
    assert second.out == first.out
    assert "6 in the store already; nothing to run" in second.err


def test_a_script_gets_the_cells_as_json(mislabel: Mislabel, write_spec: Write) -> None:
    rows = mislabel("run", write_spec(seeds=1), "--inline", "--no-mlflow", "--json").json
    assert [row["x"] for row in rows] == [2.0, 1.0, 0.0]
    assert rows[0]["loss"] == pytest.approx(1.0, abs=0.2)
    assert rows[0]["loss_low"] is None


def test_set_changes_the_spec(mislabel: Mislabel, write_spec: Write) -> None:
    said = mislabel(
        "run", write_spec(), "--inline", "--no-mlflow", "--set", "seeds=1", "--set", "parameters.x={values: [5]}"
    )  # fmt: skip
    assert said.code == 0
    assert runs_of(Store("results").sweep("bowls"))["x"].tolist() == [5.0]


def test_failed_runs_are_reported_and_set_the_exit_code(ran: Ran, mislabel: Mislabel, write_spec: Write) -> None:
    changes = {"parameters": {"trouble": {"values": [0, 1]}}}
    said = ran(**changes)
    assert said.code == 1
    assert "failed: RuntimeError: the bowl broke\n" in said.err
    assert "2 done, 2 failed" in said.err
    assert "Traceback" not in said.err + said.out
    again = ran(**changes)
    assert again.code == 1
    assert "nothing to run" in again.err
    retried = mislabel("run", write_spec(**changes), "--inline", "--no-mlflow", "--retry-failed")
    assert retried.code == 1
    assert "2 failed" in retried.err


def test_no_table_is_printed_if_all_runs_fail(ran: Ran) -> None:
    said = ran(parameters={"trouble": 1})
    assert said.code == 1
    assert said.out == ""


def test_diverged_runs_do_not_count_as_failed(ran: Ran) -> None:
    said = ran(parameters={"trouble": {"values": [0, 2]}})
    assert said.code == 0
    assert "2 diverged, 2 done" in said.err
    assert said.out.splitlines()[0].split() == ["trouble", "seeds", "diverged", "loss"]


def test_a_spec_with_mistakes_runs_nothing(mislabel: Mislabel, write_spec: Write, folder: Path) -> None:
    said = mislabel("run", write_spec(seeds=0), "--inline", "--no-mlflow")
    assert said.code == 2
    assert said.out == ""
    assert not (folder / "results").exists()


def test_a_store_that_can_not_be_created_is_refused(mislabel: Mislabel, write_spec: Write, folder: Path) -> None:
    (folder / "results").write_text("a file")
    said = mislabel("run", write_spec(), "--inline", "--no-mlflow")
    assert said.code == 2
    assert said.err.startswith("mislabel: results: ")


def test_a_damaged_part_is_reported_and_its_runs_are_run_again(ran: Ran, folder: Path) -> None:
    before = ran()
    (part,) = (folder / "results" / "bowls" / "curves").glob("*.parquet")
    part.write_bytes(part.read_bytes()[:100])
    after = ran()
    assert after.code == 0
    assert f"results/bowls/curves/{part.name}" in after.err
    assert after.out == before.out


def test_a_search_runs_too(ran: Ran) -> None:
    said = ran(method="tpe", budget={"cells": 4}, parameters={"x": {"min": 0, "max": 5}})
    assert said.code == 0
    assert len(said.out.splitlines()) == 5


@pytest.mark.long
@pytest.mark.faults
def test_an_interrupted_sweep_is_checkpointed_and_continued(
    folder: Path, write_spec: Write, ran: Ran, pace: Pace
) -> None:
    """The sweep trains when the signal comes: its packs are held."""
    pace.hold()
    changes = {"parameters": {"x": {"values": [0, 1, 2]}, "steps": 2000}}
    spec = write_spec(**changes)
    command = [str(Path(sys.executable).parent / "mislabel"), "run", spec, "--inline", "--no-mlflow"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        files = Store("results").sweep("bowls")
        until(lambda: files.progress().get("running"), 120)
        os.kill(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    assert out == ""
    assert list(files.checkpoints())
    assert "INFO interrupted" in (files.read_text("log.txt") or "")
    assert "Traceback" not in err
    assert [len(runs) for _, runs in files.checkpoints()] == [4]
    assert files.progress()["state"] == "stopped"
    pace.release()
    assert ran(**changes).code == 0
    assert set(runs_of(files)["status"]) == {"done"}
    assert list(files.checkpoints()) == []
