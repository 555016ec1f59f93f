from collections.abc import Callable

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
