import re
from typing import Any

import pytest
import yaml
from hypothesis import given, reject
from hypothesis import strategies as st

from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.document import LARGEST_BYTES, Document, read_document
from mislabel.sweeps.spec.model import seconds_from_text, spec_from_stored
from tests import specs
from tests.bowls import bowl_spec
from tests.examples import examples


@examples(60)
@given(specs.grids)
def test_a_stored_spec_reads_back_equal(values: dict[str, Any]) -> None:
    spec, _ = checked_spec(Document("a.yaml", values))
    read = spec_from_stored(spec.to_yaml())
    assert read == spec
    assert read.to_yaml() == spec.to_yaml()


@pytest.mark.long
@examples(40, deadline=None)
@given(specs.spaces("grid", "random", "qmc"))
def test_groups_steps_and_branches_read_back_equal(values: dict[str, Any]) -> None:
    try:
        spec, _ = checked_spec(Document("a.yaml", {"name": "a", "task": "bowl", **values}))
    except SpecError:
        reject()
    assert spec_from_stored(spec.to_yaml()) == spec
    again, _ = checked_spec(read_document(spec.to_yaml(), "stored.yaml"))
    assert again == spec


@pytest.mark.long
@examples(60)
@given(specs.grids)
def test_a_stored_spec_is_a_spec_that_can_be_run(values: dict[str, Any]) -> None:
    """A researcher may copy it out of a store."""
    spec, _ = checked_spec(Document("a.yaml", values))
    again, _ = checked_spec(read_document(spec.to_yaml(), "stored.yaml"))
    assert again == spec


@examples(60)
@given(specs.grids)
def test_every_value_keeps_its_type_in_the_store(values: dict[str, Any]) -> None:
    spec, task = checked_spec(Document("a.yaml", values))
    read = spec_from_stored(spec.to_yaml())
    for name, value in read.fixed().items():
        assert type(value) is task.parameters[name].type
    for name, axis in read.axes().items():
        assert all(type(value) is task.parameters[name].type for value in axis.values or [])


@pytest.mark.parametrize("name", ["1e3", "no", "2024-01-01", "null", "0x10", "1_000"])
def test_a_name_that_looks_like_a_number_stays_a_name(name: str) -> None:
    assert spec_from_stored(bowl_spec(name=name).to_yaml()).name == name


def test_a_stored_spec_is_complete_and_readable_by_any_yaml_reader() -> None:
    stored = yaml.safe_load(bowl_spec().to_yaml())
    assert list(stored)[:2] == ["name", "task"]
    assert stored["seeds"] == {"count": 2, "first": 0}
    assert stored["method"] == {"name": "grid", "seed": 0, "startup": 20, "population": 50}
    assert stored["parameters"] == {"x": {"values": [0.0, 1.0, 2.0], "scale": "linear", "grid": False}}


@pytest.mark.long
def test_a_stored_spec_may_be_longer_than_what_its_author_wrote() -> None:
    spec = bowl_spec()
    assert spec_from_stored(f"# {'-' * LARGEST_BYTES}\n{spec.to_yaml()}") == spec


@pytest.mark.parametrize(
    ("path", "value"),
    [("budget.cells", 10**12), ("resources.cpu", 1e300), ("parameters.frames", 10**12), ("parameters.frames", 10**9)],
)
def test_numbers_that_no_machine_can_handle_are_refused(path: str, value: float) -> None:
    section, key = path.split(".")
    fixed: dict[str, dict[str, Any]] = {
        "parameters": {"x": {"min": 0, "max": 1}, "steps": 10**12},
        "budget": {"cells": 9},
    }
    values = {**fixed, section: {**fixed.get(section, {}), key: value}}
    with pytest.raises(SpecError) as refused:
        bowl_spec(method="random", **values)
    assert [problem.path for problem in refused.value.problems] == [path]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("6h", 21600), ("2d", 172800), ("1.5 h", 5400), (90, 90), (0.5, 0.5)],
)
def test_times_are_read_in_seconds(text: object, seconds: float) -> None:
    assert seconds_from_text(text) == seconds


@pytest.mark.parametrize("text", ["6", "6 hours", "h", "-1h", "1h30m", "", "1e3s"])
def test_a_wrong_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        seconds_from_text(text)


@given(st.integers(1, 50), st.integers(0, 50))
def test_seeds_follow_the_first(count: int, first: int) -> None:
    seeds = list(bowl_spec(seeds={"count": count, "first": first}).seed_range)
    assert seeds == [first + i for i in range(count)]


def test_a_spec_separates_axes_and_fixed_parameters() -> None:
    spec = bowl_spec(parameters={"x": {"values": [1, 2]}, "rate": 0.25, "level": {"min": 1, "max": 3}})
    assert list(spec.axes()) == ["x", "level"]
    assert spec.fixed() == {"rate": 0.25}
