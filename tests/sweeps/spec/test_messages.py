from typing import Any

import pytest

from mislabel.sweeps.spec.messages import read_section, whole
from mislabel.sweeps.spec.model import Axis, Budget, Method, Objective, Resources


def test_a_good_section_is_its_model() -> None:
    assert read_section(Budget, {"cells": 3, "wall": "2m"}, ("budget",)) == (Budget(cells=3, wall=120.0), [])


def test_what_is_right_is_kept_beside_what_is_wrong() -> None:
    section, mistakes = read_section(Axis, {"min": "a", "max": 2, "points": 0, "scal": "log"}, ("parameters", "x"))
    assert section == Axis(max=2.0)
    assert mistakes == [
        (("parameters", "x", "min"), "'a' is not a number"),
        (("parameters", "x", "points"), "0 is not at least 1"),
        (("parameters", "x", "scal"), "not a key of parameters.x; did you mean scale?"),
    ]


def test_a_section_without_what_it_needs_is_none() -> None:
    section, mistakes = read_section(Objective, {"goal": "minimize"}, ("metric", 1))
    assert section is None
    assert mistakes == [(("metric", 1, "name"), "is missing")]


@pytest.mark.parametrize(
    ("pack", "text"),
    [
        (0, "0 is not at least 1, nor auto"),
        (1.5, "1.5 is not a whole number, nor auto"),
        ("aut", "'aut' is not a whole number, nor auto; did you mean auto?"),
        (None, "has no value"),
        ([1], "a list is not a whole number, nor auto"),
        (True, "True is not a whole number, nor auto"),
    ],
)
def test_a_value_that_may_be_of_several_kinds_has_one_mistake(pack: Any, text: str) -> None:
    _, mistakes = read_section(Resources, {"pack": pack}, ("resources",))
    assert [said.replace("[1]", "a list") for _, said in mistakes] == [text]


def test_an_unknown_key_without_a_near_one_is_told_the_keys_there_are() -> None:
    _, mistakes = read_section(Method, {"zzz": 1}, ("method",))
    assert mistakes == [(("method", "zzz"), "not a key of method; there are name, seed, startup, population")]


@pytest.mark.parametrize(("value", "shown"), [(3.0, 3), (0.5, 0.5), (-2.0, -2), (float("inf"), float("inf"))])
def test_numbers_are_shown_as_a_researcher_writes_them(value: float, shown: float) -> None:
    assert repr(whole(value)) == repr(shown)
