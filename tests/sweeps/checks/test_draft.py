"""Independent mistakes are all reported in one pass, each once and at its location."""

import contextlib
import copy
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.sweeps.checks.draft import Draft
from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.document import Document, Path, dotted, read_document, text_from_value
from mislabel.sweeps.spec.model import Spec
from tests.bowls import BOWL
from tests.examples import examples

GOOD: dict[str, Any] = {
    "name": "good",
    "task": "bowl",
    "method": {"name": "tpe", "seed": 1},
    "metric": [{"name": "loss", "goal": "minimize"}],
    "parameters": {
        "steps": 40,
        "frames": 10,
        "x": {"min": -1, "max": 1},
        "rate": {"min": 0.1, "max": 1},
        "width": {"values": [1, 2, 4]},
        "level": {"values": [1, 2, 3]},
        "tilted": {"values": [True, False]},
        "surface": "smooth",
    },
    "zip": [["width", "level"]],
    "exclude": ["x > 0.9", "rate < 0.2"],
    "try_first": [{"x": 0.5}, {"x": 0.25}],
    "start_from": ["other"],
    "seeds": {"count": 3, "up_to": 9},
    "early_terminate": {"type": "asha", "min_steps": 4},
    "budget": {"cells": 50, "runs": 100, "wall": "6h"},
    "resources": {"cpu": 1, "pack": 4},
    "keep": "results",
    "track": {"per": "cell"},
}

# A path, what is written there instead, and the path that is reported. No two share a part that a rule needs.
MISTAKES: list[tuple[Path, Any, Path]] = [
    (("name",), "a/b", ("name",)),
    (("method", "sed"), 1, ("method", "sed")),
    (("metric", 0, "name"), "speed", ("metric", 0, "name")),
    (("parameters", "x", "when"), "surface == rough", ("parameters", "x", "when")),
    (("parameters", "rate", "max"), 2, ("parameters", "rate", "max")),
    (("parameters", "width", "values"), [1, 2], ("zip", 0)),
    (("parameters", "tilted", "values", 1), 3, ("parameters", "tilted", "values", 1)),
    (("parameters", "surface"), "smoth", ("parameters", "surface")),
    (("parameters", "colour"), "red", ("parameters", "colour")),
    (("exclude", 0), "y > 0.9", ("exclude", 0)),
    (("exclude", 1), "rate <", ("exclude", 1)),
    (("try_first", 0, "level"), -1, ("try_first", 0, "level")),
    (("try_first", 1, "tall"), 3, ("try_first", 1, "tall")),
    (("start_from", 0), "../other", ("start_from", 0)),
    (("seeds", "up_to"), 2, ("seeds", "up_to")),
    (("early_terminate", "min_steps"), 40, ("early_terminate", "min_steps")),
    (("early_terminate", "patience"), 4, ("early_terminate", "patience")),
    (("budget", "cells"), None, ("budget", "cells")),
    (("budget", "runs"), 2, ("budget", "runs")),
    (("budget", "wall"), "soon", ("budget", "wall")),
    (("resources", "cpu"), 0, ("resources", "cpu")),
    (("resources", "pack"), "some", ("resources", "pack")),
    (("keep",), "weight", ("keep",)),
    (("track", "per"), "day", ("track", "per")),
    (("colour",), "red", ("colour",)),
]


def with_mistakes(chosen: Sequence[tuple[Path, Any, Path]]) -> str:
    values: Any = copy.deepcopy(GOOD)
    for path, value, _ in chosen:
        at = values
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = value
    return text_from_value(values)


def line_of(text: str, path: Path) -> str:
    return read_document(text, "a.yaml").problem(path, "").place


def test_the_spec_without_mistakes_is_accepted() -> None:
    checked_spec(read_document(with_mistakes([]), "a.yaml"))


@pytest.mark.long
@examples(150, deadline=None)
@given(st.lists(st.sampled_from(MISTAKES), min_size=1, unique_by=lambda mistake: mistake[0]))
def test_independent_mistakes_give_exactly_one_message_each(chosen: list[tuple[Path, Any, Path]]) -> None:
    text = with_mistakes(chosen)
    with pytest.raises(SpecError) as caught:
        checked_spec(read_document(text, "a.yaml"))
    found = sorted((problem.place, problem.path) for problem in caught.value.problems)
    assert found == sorted((line_of(text, where), dotted(where)) for _, _, where in chosen)


keys = st.sampled_from([*Spec.model_fields, "seed", "x"])
words = st.sampled_from(
    ["x", "rate", "width", "surface", "rough", "x > 1", "x > y", "grid", "tpe", "loss", "6h", "a,b", "1,2", ""]
)
scalars = st.none() | st.booleans() | st.integers(-3, 70) | st.floats() | st.integers() | words
parts = st.sampled_from(
    [
        "name",
        "goal",
        "values",
        "min",
        "max",
        "step",
        "points",
        "scale",
        "when",
        "grid",
        "x",
        "rate",
        "width",
        "level",
        "count",
        "up_to",
        "cells",
        "runs",
        "type",
        "pack",
    ]
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(parts, inner, max_size=4), max_leaves=8
)


@examples(300, deadline=None)
@given(st.dictionaries(keys, anything, max_size=6), st.sampled_from(["grid", "tpe", "qmc", "nsga2"]))
def test_anything_is_accepted_or_refused_with_mistakes(changes: dict[str, Any], method: str) -> None:
    values = {**GOOD, "method": method, **changes}
    with contextlib.suppress(SpecError):
        checked_spec(Document("a.yaml", values))


def test_a_wrong_value_of_a_fixed_parameter_is_the_only_mistake_under_a_stopping_rule() -> None:
    values = {key: GOOD[key] for key in ("name", "task", "metric", "early_terminate")} | {"seeds": 2}
    with pytest.raises(SpecError) as refused:
        checked_spec(Document("a.yaml", {**values, "parameters": {"steps": 40, "frames": 10, "x": "x"}}))
    assert [problem.path for problem in refused.value.problems] == ["parameters.x"]


@pytest.mark.parametrize("value", ["1,[", "1,2", "*a,b", "{,"])
def test_a_text_with_commas_is_one_mistake_at_its_place(value: str) -> None:
    with pytest.raises(SpecError) as refused:
        checked_spec(Document("a.yaml", {"name": "a", "task": "bowl", "parameters": {"x": value}}))
    assert (refused.value.source, [problem.path for problem in refused.value.problems]) == ("a.yaml", ["parameters.x"])


def test_a_part_is_sound_without_mistakes_in_it_and_around_it() -> None:
    draft = Draft({"name": "a", "task": "bowl", "budget": {"cels": 3, "wall": "soon"}, "parameters": [1]})
    assert not draft.sound("budget")
    assert not draft.sound("budget.wall")
    assert not draft.sound("budget.cells"), "it was probably meant by cels"
    assert draft.sound("budget.runs", "seeds")
    assert not draft.sound("parameters.x")


def test_a_parameter_whose_condition_reads_a_wrong_one_is_not_used_either() -> None:
    parameters = {"x": {"values": [1], "when": "rate > 0"}, "rate": {"values": []}, "level": {"values": [1, 2]}}
    draft = Draft({"name": "a", "task": "bowl", "parameters": parameters, "exclude": ["x > 1", "level > 1"]})
    assert draft.wrong_parameters() == {"x", "rate"}
    assert list(draft.space(BOWL).axes) == ["level"]
    assert draft.space(BOWL).spec.exclude == ("level > 1",)


def test_the_items_of_a_list_keep_their_index() -> None:
    draft = Draft({"name": "a", "task": "bowl", "exclude": ["x >", "x > 1"], "zip": [["x"], ["x", "rate"]]})
    assert draft.items("exclude") == {1: "x > 1"}
    assert draft.items("zip") == {1: ["x", "rate"]}
    assert draft.items("try_first") == {}
