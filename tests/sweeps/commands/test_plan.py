from collections.abc import Callable
from pathlib import Path

from tests.sweeps.commands.conftest import Mislabel, Said

Write = Callable[..., str]


def test_a_plan_says_what_would_be_run_and_writes_nothing(mislabel: Mislabel, write_spec: Write, folder: Path) -> None:
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


def test_what_the_store_has_is_counted(mislabel: Mislabel, write_spec: Write, ran: Callable[..., Said]) -> None:
    assert ran().code == 0
    plan = mislabel("plan", write_spec(), "--json").json
    assert (plan["in_store"], plan["to_run"], plan["packs"]) == (6, 0, 0)
    wider = mislabel("plan", write_spec(), "--json", "--set", "seeds=5").json
    assert (wider["in_store"], wider["to_run"]) == (6, 9)


def test_failed_runs_are_to_run_on_request_only(
    mislabel: Mislabel, write_spec: Write, ran: Callable[..., Said]
) -> None:
    changes = {"parameters": {"trouble": {"values": [0, 1]}}}
    assert ran(**changes).code == 1
    assert mislabel("plan", write_spec(**changes), "--json").json["to_run"] == 0
    assert mislabel("plan", write_spec(**changes), "--json", "--retry-failed").json["to_run"] == 2


def test_all_mistakes_of_a_spec_are_told_on_stderr(mislabel: Mislabel, write_spec: Write) -> None:
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
    assert "seeds: was 2 from 0, now 1 from 0, which leaves some out" in said.err
