"""Write records.json: what the bundled records say today, for test_records to compare with.

python -m tests.regression.write_records
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mislabel
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.ids import run_id
from mislabel.sweeps.papers.bundled import experiments, sweep_name
from mislabel.tasks.registry import find_task
from tests.regression.command_line import call_for_json

FILE = Path(__file__).parent / "records.json"
RECORDS = Path(__file__).parent.parent.parent / "records"
_ESTIMATE = ("mean", "low", "high", "n", "theory", "holds", "verdict")
_SUMMARY = ("mean", "std", "n", "low", "high", "runs", "diverged", "stopped", "step")


def recorded() -> Iterator[tuple[str, bool, str]]:
    """The experiments in the records: name, whether it is the small version, name of the sweep."""
    for experiment in experiments():
        for quick in (False, True):
            name = sweep_name(experiment, quick)
            if (RECORDS / name / "spec.yaml").exists():
                yield experiment, quick, name


def claims_of(experiment: str, quick: bool) -> list[dict[str, Any]]:
    """Estimate and verdict of each claim, in the claims' order. Their wording may change, so it is left out."""
    small = ["--quick"] if quick else []
    found = call_for_json("reproduce", experiment, "--check", "--store", str(RECORDS), *small)
    return [{key: _plain(claim[key]) for key in _ESTIMATE} for claim in found]


def cells_of(name: str) -> dict[str, dict[str, dict[str, Any]]]:
    """By objective and cell id, the cell's summary over seeds."""
    sweep = mislabel.load(str(RECORDS), name)
    return {
        objective.name: {
            row["cell_id"]: {key: _plain(row[key]) for key in _SUMMARY}
            for row in sweep.cells(objective.name).to_dict("records")
        }
        for objective in sweep.spec.metric
    }


def stored_runs(name: str) -> list[str]:
    """The ids of the runs in the records."""
    return sorted(mislabel.load(str(RECORDS), name).runs["run_id"])


def runs_of_spec(name: str) -> list[str]:
    """The ids of the runs that the stored spec names, whether they are stored or not."""
    spec = mislabel.load(str(RECORDS), name).spec
    task = find_task(spec.task)
    cells = [cell for chunk in Space(spec, task).cells() for cell in chunk.ids]
    return sorted(run_id(cell, seed) for cell in cells for seed in spec.seed_range)


def described(experiment: str, quick: bool, name: str) -> dict[str, Any]:
    """All that records.json has of one recorded sweep."""
    stored, named = stored_runs(name), runs_of_spec(name)
    return {
        "claims": claims_of(experiment, quick),
        "cells": cells_of(name),
        "stored_runs": stored,
        "runs_of_spec": named,
    }


def _plain(value: Any) -> Any:
    """The value as JSON can have it: NaN is None."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value


def main() -> None:
    sweeps = {name: described(experiment, quick, name) for experiment, quick, name in recorded()}
    FILE.write_text(json.dumps(sweeps, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
