from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given

from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.document import read_document
from mislabel.sweeps.spec.json_schema import spec_schema
from mislabel.sweeps.spec.model import Spec
from mislabel.tasks.registry import find_task
from tests import specs
from tests.bowls import bowl_spec, bowl_values

BUNDLED = sorted(Path(str(files("mislabel.sweeps.papers.specs"))).rglob("*.yaml"))


@pytest.fixture(scope="module")
def any_task() -> Any:
    return jsonschema.Draft202012Validator(spec_schema())


@pytest.fixture(scope="module")
def bowl() -> Any:
    return jsonschema.Draft202012Validator(spec_schema(find_task("bowl")))


def test_the_schema_is_a_valid_schema(any_task: Any, bowl: Any) -> None:
    for validator in (any_task, bowl):
        jsonschema.Draft202012Validator.check_schema(validator.schema)


def test_there_are_bundled_specs() -> None:
    assert BUNDLED


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_every_bundled_spec_fits_the_schema_of_its_task(path: Path, any_task: Any) -> None:
    values = read_document(path.read_text(), str(path)).values
    any_task.validate(values)
    jsonschema.Draft202012Validator(spec_schema(find_task(values["task"]))).validate(values)


@given(specs.grids)
def test_every_good_spec_fits(any_task: Any, bowl: Any, values: dict[str, Any]) -> None:
    any_task.validate(values)
    bowl.validate(values)


@pytest.mark.parametrize(
    "changes",
    [
        {"exclude": "x > 1"},
        {"exclude": ["x > 1", "rate == 1"]},
        {"seeds": {"count": 3}},
        {"budget": {"wall": "6h"}},
        {"budget": {"wall": 90}},
        {"method": {"name": "tpe", "startup": 5}, "budget": {"cells": 3}},
        {"metric": [{"name": "loss", "goal": "minimize"}, {"name": "height", "goal": "maximize"}]},
        {"parameters": {"level": 3.0, "x": 1}},
        {"parameters": {"x": {"min": 0, "max": 1, "points": 3, "when": "rate > 0.1"}}},
        {"resources": {"cpu": 1, "gpu": 0.5, "pack": "auto"}},
        {"parameters": None, "seeds": None, "exclude": None, "metric": None, "budget": None},
        {"zip": None, "try_first": None, "start_from": None, "early_terminate": None},
        {"seeds": {"count": 3, "up_to": 9}, "budget": {"runs": 100}},
        {"parameters": {"x": {"values": [1, 2]}, "level": {"values": [3, 4]}}, "zip": [["x", "level"]]},
        {"parameters": {"x": {"min": 0, "max": 1, "step": 0.5, "grid": True}}},
        {"method": "qmc", "parameters": {"x": {"min": 0, "max": 1}}, "budget": {"cells": 3}, "try_first": [{"x": 1}]},
        {"method": {"name": "nsga2", "population": 4}, "start_from": ["a", "b"], "budget": {"cells": 9}},
        {"method": "gp", "start_from": "a", "budget": {"cells": 9}},
        {"parameters": {"x": {"values": [1]}, "surface": {"values": ["rough"]}, "tilted": True}},
    ],
)
def test_the_schema_accepts_what_the_check_accepts(any_task: Any, bowl: Any, changes: dict[str, Any]) -> None:
    if "method" not in changes:
        bowl_spec(**changes)
    any_task.validate(bowl_values(**changes))
    bowl.validate(bowl_values(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"nmae": "a"},
        {"name": "../a"},
        {"name": 3},
        {"task": "bwl"},
        {"method": "rnd"},
        {"method": {"name": "grid", "sed": 1}},
        {"metric": "loss"},
        {"metric": {"name": "loss"}},
        {"metric": {"name": "loss", "goal": "min"}},
        {"metric": [{"name": "loss", "goal": "minimize"}] * 4},
        {"seeds": 0},
        {"seeds": "many"},
        {"seeds": True},
        {"exclude": [3]},
        {"exclude": {"x": 1}},
        {"budget": {"cell": 3}},
        {"budget": {"wall": -1}},
        {"budget": {"wall": "soon"}},
        {"resources": {"pack": 0}},
        {"resources": {"pack": "some"}},
        {"track": {"per": "day"}},
        {"method": {"name": "nsga2", "population": 1}},
        {"seeds": {"count": 3, "up_to": 1}},
        {"zip": ["x", "level"]},
        {"zip": [["x"]]},
        {"try_first": {"x": 1}},
        {"baselines": {"x": 1}},
        {"try_first": [{}]},
        {"start_from": [3]},
        {"early_terminate": {"type": "never"}},
        {"parameters": {"x": {"min": 0, "max": 1, "step": 0}}},
        {"parameters": {"x": {"min": 0, "max": 1, "grid": 1}}},
        {"parameters": [1]},
        {"parameters": {"x": [1, 2]}},
        {"parameters": {"x": {"value": [1]}}},
        {"parameters": {"x": {"values": []}}},
        {"parameters": {"x": {"min": 0, "max": 1, "scale": "cubic"}}},
        {"parameters": {"x": {"min": "a", "max": 1}}},
    ],
)
def test_bad_specs_do_not_fit(any_task: Any, changes: dict[str, Any]) -> None:
    assert not any_task.is_valid(bowl_values(**changes))
    with pytest.raises(SpecError):
        bowl_spec(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "xor_clusters"},
        {"metric": {"name": "speed", "goal": "minimize"}},
        {"metric": {"name": "weight", "goal": "minimize"}},
        {"parameters": {"y": 1}},
        {"parameters": {"x": 11}},
        {"parameters": {"x": "word"}},
        {"parameters": {"x": True}},
        {"parameters": {"rate": 0}},
        {"parameters": {"level": 1.5}},
        {"parameters": {"surface": "smoth"}},
        {"parameters": {"x": {"values": [1, 11]}}},
        {"parameters": {"x": {"values": []}}},
        {"zip": [["x", "y"]]},
        {"try_first": [{"y": 1}]},
        {"baselines": [{"y": 1}]},
        {"try_first": [{"x": 11}]},
        {"try_first": [{}]},
        {"try_first": [3]},
        {"parameters": {"x": {"values": 1}}},
        {"parameters": {"x": {"value": [1]}}},
        {"parameters": {"surface": {"values": ["smoth"]}}},
    ],
)
def test_with_a_task_its_parameters_and_metrics_are_checked_too(bowl: Any, changes: dict[str, Any]) -> None:
    assert not bowl.is_valid(bowl_values(**changes))
    with pytest.raises(SpecError):
        bowl_spec(**changes)


def test_quick_is_a_mapping(any_task: Any) -> None:
    any_task.validate(bowl_values(quick={"seeds": 1}))
    assert not any_task.is_valid(bowl_values(quick=3))


def test_name_and_task_are_required(any_task: Any) -> None:
    assert not any_task.is_valid({"name": "a"})
    assert not any_task.is_valid({"task": "bowl"})
    any_task.validate({"name": "a", "task": "bowl"})


def test_every_key_and_parameter_is_described_for_the_editor(bowl: Any) -> None:
    properties = bowl.schema["properties"]
    assert set(properties) == {*Spec.model_fields, "quick"}
    parameters = properties["parameters"]["anyOf"][0]["properties"]
    assert set(parameters) == set(find_task("bowl").parameters)
    assert all(part["description"] for part in [*properties.values(), *parameters.values()])
    for model in bowl.schema["$defs"].values():
        assert all(
            part.get("description") for name, part in model["properties"].items() if name not in ("type", "goal")
        )


def test_a_stored_spec_fits_also_when_another_yaml_reader_reads_it(bowl: Any) -> None:
    bowl.validate(yaml.safe_load(bowl_spec().to_yaml()))
