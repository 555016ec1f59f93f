from collections.abc import Callable

import pytest

from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.store.store import Store
from tests.bowls import run
from tests.sweeps.commands.conftest import Mislabel, Said


def test_a_sweep_is_shown_with_its_runs_by_status(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    ran(parameters={"trouble": {"values": [0, 1, 2]}})
    said = mislabel("status", "bowls")
    assert said.code == 0
    shown = dict(line.split(maxsplit=1) for line in said.out.splitlines())
    assert shown["sweep"] == "bowls"
    assert shown["state"] == "done"
    assert {key: shown[key].strip() for key in ("cells", "runs", "done", "failed", "diverged")} == {
        "cells": "3", "runs": "6", "done": "2", "failed": "2", "diverged": "2"
    }  # fmt: skip
    assert said.err.count("failed: RuntimeError: the bowl broke\n") == 2


def test_a_script_gets_it_as_json(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    ran(parameters={"trouble": {"values": [0, 1]}})
    status = mislabel("status", "bowls", "--json").json
    assert (status["name"], status["state"], status["runs"]) == ("bowls", "done", 4)
    assert status["statuses"] == {"done": 2, "failed": 2}
    assert list(status["errors"].values()) == ["RuntimeError: the bowl broke"] * 2


def test_an_unknown_sweep_is_refused_with_the_nearest_name(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    ran()
    said = mislabel("status", "bowl")
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("mislabel: 'bowl'")
    assert "bowls" in said.err


def test_the_reason_why_a_sweep_stopped_is_shown(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    ran(parameters={"trouble": 1}, budget={"failures": 0})
    said = mislabel("status", "bowls")
    assert "1 runs failed, more than budget.failures = 0" in said.out
    assert "mislabel run" in said.err


@pytest.mark.long
def test_running_cells_are_shown_with_their_step_and_last_metrics(
    mislabel: Mislabel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Normally the command runs in another process than the driver; here it runs between two of the driver's steps."""
    monkeypatch.setattr("mislabel.sweeps.run.worker.STRETCH_SECONDS", 0.0)
    for name in ("FIRST_SECONDS", "EVERY_SECONDS", "LONGEST_SECONDS"):
        monkeypatch.setattr(f"mislabel.sweeps.run.live_rows.{name}", 0.0)
    seen: list[tuple[Said, Said, int]] = []

    def look(launch: Launch) -> None:
        if launch.files.running().num_rows and not seen:
            step = launch.files.running()["trained_steps"].to_pylist()[0]
            seen.append((mislabel("status", "bowls"), mislabel("status", "bowls", "--json"), step))

    parameters = {"x": {"values": [0.0, 1.0]}, "steps": 2000, "frames": 9}
    files = run(Store("results"), look, parameters=parameters, seeds=2).files
    text, script, step = seen[0]
    assert script.json["state"] == "running"
    cells = script.json["running_cells"]
    assert sorted(cell["parameters"]["x"] for cell in cells) == [0.0, 1.0]
    curves = files.read("curves").to_pandas()
    for cell in cells:
        assert (cell["seeds"], cell["step"], cell["steps"]) == (2, step, 2000)
        own = curves[(curves["cell_id"] == cell["cell_id"]) & (curves["step"] <= step)]
        assert cell["metrics"]["loss"] == pytest.approx(own[own["step"] == own["step"].max()]["loss"].mean())
    assert f"{step:,} of 2,000" in text.out
    assert text.out.splitlines()[-3].split() == ["x", "seeds", "step", "loss", "ends", "in"]
    assert mislabel("status", "bowls", "--json").json["running_cells"] == []
