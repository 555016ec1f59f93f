import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mislabel.sweeps.commands.plan import stopping_in_words
from mislabel.sweeps.spec.model import EarlyTerminate
from tests.bowls import bowl_spec
from tests.sweeps.commands.conftest import Mislabel, Said

Write = Callable[..., str]


def test_a_plan_shows_what_would_be_run_and_writes_nothing(mislabel: Mislabel, write_spec: Write, folder: Path) -> None:
    said = mislabel("plan", write_spec(), "--workers", "1")
    assert said.code == 0
    shown = dict(
        line.split(maxsplit=1) for line in said.out.splitlines() if not line.startswith(("in store", "to run"))
    )
    assert shown["sweep"] == "bowls: task bowl, method grid"
    assert shown["cells"].split()[0] == "3"
    assert shown["runs"] == "6 (2 seeds per cell)"
    assert shown["packs"].startswith("2 of 4 runs, 1 shape")
    assert "on 1 worker" in shown["time"]
    assert not (folder / "results").exists()


def test_a_script_gets_the_plan_as_json(mislabel: Mislabel, write_spec: Write) -> None:
    plan = mislabel("plan", write_spec(), "--workers", "2", "--json").json
    expected = {
        "name": "bowls", "task": "bowl", "cells": 3, "seeds": 2, "runs": 6, "in_store": 0, "to_run": 6, "packs": 2,
        "from_checkpoint": 0, "pack_sizes": [4], "shapes": 1, "workers": 2,
    }  # fmt: skip
    assert {key: plan[key] for key in expected} == expected
    assert plan["pack_bytes"] > 0
    assert plan["expected_seconds"] >= 0


def test_stored_runs_are_counted(mislabel: Mislabel, write_spec: Write, ran: Callable[..., Said]) -> None:
    assert ran().code == 0
    plan = mislabel("plan", write_spec(), "--json").json
    assert (plan["in_store"], plan["to_run"], plan["packs"]) == (6, 0, 0)
    wider = mislabel("plan", write_spec(), "--json", "--set", "seeds=5").json
    assert (wider["in_store"], wider["to_run"]) == (6, 9)


def test_failed_runs_count_as_missing_on_request_only(
    mislabel: Mislabel, write_spec: Write, ran: Callable[..., Said]
) -> None:
    changes = {"parameters": {"trouble": {"values": [0, 1]}}}
    assert ran(**changes).code == 1
    assert mislabel("plan", write_spec(**changes), "--json").json["to_run"] == 0
    assert mislabel("plan", write_spec(**changes), "--json", "--retry-failed").json["to_run"] == 2


def test_all_mistakes_of_a_spec_are_shown_on_stderr(mislabel: Mislabel, write_spec: Write) -> None:
    said = mislabel("plan", write_spec(seeds=0, parameters={"widht": 3}))
    assert said.code == 2
    assert said.out == ""
    first, *problems = said.err.splitlines()
    assert first == "mislabel: bowls.yaml"
    assert any("parameters.widht: not a parameter of bowl; did you mean width?" in line for line in problems)
    assert any("seeds.count: 0 is not at least 1" in line for line in problems)


def test_a_spec_that_does_not_widen_is_refused(mislabel: Mislabel, write_spec: Write, ran: Callable[..., Said]) -> None:
    ran()
    said = mislabel("plan", write_spec(seeds=1))
    assert said.code == 2
    assert "results/bowls is a sweep with another spec" in said.err
    assert "seeds: was 2 from 0, now 1 from 0" in said.err


def shown(said: Said) -> dict[str, str]:
    lines = (line.replace("in store", "in_store").replace("to run", "to_run") for line in said.out.splitlines())
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}


def test_a_plan_describes_a_search(mislabel: Mislabel, write_spec: Write) -> None:
    spec = write_spec(
        method="tpe",
        parameters={"x": {"min": 0, "max": 1}, "level": {"values": [1, 2, 3], "grid": True}},
        try_first=[{"x": 0.5}],
        start_from=[],
        seeds={"count": 2, "up_to": 8},
        budget={"cells": 20, "runs": 1000, "wall": "6h"},
    )
    said = mislabel("plan", spec, "--workers", "1")
    assert said.code == 0
    rows = shown(said)
    assert rows["sweep"] == "bowls: task bowl, method tpe"
    assert re.findall(r"[\w.]*startup|\d+", rows["cells"]) == ["20", "method.startup", "20"]
    assert rows["branches"] == "3, one for each combination of level: 6 or 7 cells each"
    assert rows["first"] == "1 cell to try first"
    assert rows["runs"] == "40 (2 seeds per cell, up to 8 for contenders)"
    assert rows["budget"] == "1,000 runs or 6.0 h"
    assert "stopping" not in rows
    plan = mislabel("plan", spec, "--workers", "1", "--json").json
    assert (plan["method"], plan["branches"], plan["seeds_up_to"]) == ("tpe", 3, 8)
    rows = shown(mislabel("plan", spec, "--workers", "1", "--set", "method={name: tpe, startup: 5}"))
    assert re.findall(r"[\w.]*startup|\d+", rows["cells"]) == ["20"]


@pytest.mark.parametrize("method", ["random", "qmc"])
def test_a_plan_says_if_there_are_fewer_cells_than_the_budget(
    mislabel: Mislabel, write_spec: Write, method: str
) -> None:
    spec = write_spec(method=method, parameters={"level": {"min": 1, "max": 5}}, budget={"cells": 20})
    rows = shown(mislabel("plan", spec, "--workers", "1"))
    assert re.findall(r"\d+", rows["cells"]) == ["5", "20"]
    assert rows["runs"] == "10 (2 seeds per cell)"
    plan = mislabel("plan", spec, "--workers", "1", "--json").json
    assert (plan["cells"], plan["cells_asked_for"]) == (5, 20)


@pytest.mark.parametrize(
    ("rule", "numbers"),
    [
        ({"type": "asha", "min_steps": 2}, ["2", "3", "3"]),
        ({"type": "asha", "min_steps": 2, "per": "run", "eta": 4}, ["2", "4", "4"]),
        ({"type": "hyperband", "min_steps": 2}, ["2", "3"]),
        ({"type": "median"}, ["1", "5"]),
        ({"type": "patience", "patience": 4, "min_gain": 0.5, "per": "run"}, ["1", "0.5", "4"]),
    ],
)
def test_a_stopping_rule_is_described(rule: dict[str, Any], numbers: list[str]) -> None:
    """By its type, the unit that it compares, and its numbers."""
    words = stopping_in_words(bowl_spec().model_copy(update={"early_terminate": EarlyTerminate(**rule)}))
    assert words.split()[0] == rule["type"]
    assert rule.get("per", "cell") in words
    assert re.findall(r"[\d.]+", words) == numbers


def test_a_sweep_without_a_stopping_rule_has_no_description_of_it() -> None:
    assert stopping_in_words(bowl_spec()) == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_time_on_a_gpu_is_unknown_without_a_gpu(mislabel: Mislabel, write_spec: Write) -> None:
    said = mislabel("plan", write_spec(resources={"gpu": 1}))
    assert said.code == 0
    assert "1 GPU" in said.out
    assert "packs" not in said.out
