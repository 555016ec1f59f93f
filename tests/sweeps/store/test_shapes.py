import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from mislabel.sweeps.run.provenance import provenance
from mislabel.sweeps.store.shapes import CHECKPOINT, LAUNCH, PROGRESS, Checkpoint
from mislabel.sweeps.store.store import Store
from tests.bowls import run

OLD = Path(__file__).parents[2] / "regression" / "store"


def test_what_a_launch_writes_has_these_shapes(store: Store) -> None:
    files = run(store).files
    (launch,) = files.launches()
    assert LAUNCH.validate_python(launch) == launch
    progress = files.progress()
    assert PROGRESS.validate_python(progress) == progress
    assert LAUNCH.validate_python(provenance("bowl"))


@pytest.mark.parametrize(("pattern", "shape"), [("launches/*.json", LAUNCH), ("progress.json", PROGRESS)])
def test_files_of_earlier_versions_have_these_shapes(pattern: str, shape: TypeAdapter[Any]) -> None:
    paths = sorted(OLD.glob(f"*/{pattern}"))
    assert len(paths) >= 3
    for path in paths:
        assert shape.validate_json(path.read_bytes()) == json.loads(path.read_text())


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        (LAUNCH, {"started_at": "yesterday"}),
        (LAUNCH, {"started_at": 5}),
        (LAUNCH, {"git": []}),
        (LAUNCH, {"git": {"commit": 3}}),
        (LAUNCH, {"data": {"MNIST": None}}),
        (LAUNCH, {"versions": "1.0"}),
        (PROGRESS, {"state": None}),
        (PROGRESS, {"runs": "many"}),
        (PROGRESS, {"seconds_left": float("nan")}),
        (CHECKPOINT, {"runs": "a-0"}),
        (CHECKPOINT, {"runs": [1]}),
        (CHECKPOINT, {"file": "../spec.yaml"}),
    ],
)
def test_other_shapes_are_refused(shape: TypeAdapter[Any], changes: dict[str, Any]) -> None:
    good: dict[str, Any] = {"started_at": "2026-11-17T16:05:51+00:00", "state": "done", "runs": 3}
    good |= {"runs": ["a-0"]} if shape is CHECKPOINT else {}
    shape.validate_python(good)
    with pytest.raises(ValidationError):
        shape.validate_python({**good, **changes})


def test_the_description_of_a_checkpoint_may_lack_the_file() -> None:
    assert CHECKPOINT.validate_json(b'{"runs": ["a-0"]}') == Checkpoint(runs=["a-0"])
