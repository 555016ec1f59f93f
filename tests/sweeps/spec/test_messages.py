from typing import Any

import pytest
from pydantic import ValidationError

from mislabel.sweeps.spec.document import Path
from mislabel.sweeps.spec.messages import Mistake, hint_from, mistakes_in, unknown_name, whole
from mislabel.sweeps.spec.model import Spec


def mistakes(**values: Any) -> list[Mistake]:
    values = {"name": "a", "task": "bowl", **values}
    with pytest.raises(ValidationError) as caught:
        Spec.model_validate(values)
    return mistakes_in(caught.value, values)


@pytest.mark.parametrize(
    ("values", "paths"),
    [
        ({"metric": {"goal": "minimize"}}, [("metric", "name")]),
        ({"metric": [{"name": "a", "goal": "minimize"}, {"goal": "minimize"}]}, [("metric", 1, "name")]),
        ({"method": "rnd"}, [("method", "name")]),
        ({"seeds": 0}, [("seeds", "count")]),
        ({"exclude": "x >"}, [("exclude",)]),
        ({"exclude": ["x > 1", "x >"]}, [("exclude", 1)]),
        ({"parameters": {"x": {"min": "a", "points": 0}}}, [("parameters", "x", "min"), ("parameters", "x", "points")]),
        ({"parameters": {"x": {"values": [1, None]}}}, [("parameters", "x", "values", 1)]),
        ({"resources": {"pack": 0}}, [("resources", "pack")]),
        ({"zip": [["a", 3], ["b"]]}, [("zip", 0, 1), ("zip", 1)]),
    ],
)  # fmt: skip
def test_a_mistake_has_its_path_in_the_document_also_in_short_forms(values: dict[str, Any], paths: list[Path]) -> None:
    assert [mistake.path for mistake in mistakes(**values)] == paths


@pytest.mark.parametrize("pack", [0, 1.5, "aut", [1], True])
def test_a_value_that_may_have_several_types_has_one_mistake(pack: Any) -> None:
    (mistake,) = mistakes(resources={"pack": pack})
    assert "auto" in mistake.text


@pytest.mark.parametrize(
    ("values", "path", "meant"),
    [
        ({"budget": {"cels": 3}}, ("budget", "cels"), ("budget", "cells")),
        ({"parameters": {"x": {"values": [1], "whn": ""}}}, ("parameters", "x", "whn"), ("parameters", "x", "when")),
        ({"seed": 3}, ("seed",), ("seeds",)),
        ({"method": {"zzz": 1}}, ("method", "zzz"), None),
    ],
)  # fmt: skip
def test_an_unknown_key_names_the_key_that_was_probably_meant(
    values: dict[str, Any], path: Path, meant: Path | None
) -> None:
    (mistake,) = mistakes(**values)
    assert (mistake.path, mistake.meant) == (path, meant)


@pytest.mark.parametrize(
    ("word", "choices", "close"),
    [
        ("lr", ["learning_rate", "width"], "learning_rate"),
        ("lr", ["step_size", "width"], "step_size"),
        ("wd", ["width", "weight_decay"], "weight_decay"),
        ("noise", ["noise_rate", "width"], "noise_rate"),
        ("epochs", ["steps", "width"], "steps"),
        ("Noise-Rate", ["noise_rate", "width"], "noise_rate"),
        ("sane", ["self_labeling.sane", "xor_clusters"], "self_labeling.sane"),
    ],
)
def test_abbreviations_synonyms_and_parts_of_names_are_understood(word: str, choices: list[str], close: str) -> None:
    assert unknown_name(("parameters", word), choices, "a task").meant == ("parameters", close)
    assert close in hint_from(word, choices)


@pytest.mark.parametrize(("value", "shown"), [(3.0, 3), (0.5, 0.5), (-2.0, -2), (float("inf"), float("inf"))])
def test_numbers_are_shown_as_a_researcher_writes_them(value: float, shown: float) -> None:
    assert repr(whole(value)) == repr(shown)
