from typing import Any

import numpy as np
import pytest

from mislabel.sweeps.formatting import (
    amount,
    axis_text,
    count,
    duration,
    estimated,
    value_text,
    values_text,
    with_interval,
)  # fmt: skip
from mislabel.sweeps.spec.model import Axis


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "under 1 s"), (1, "1 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h"),
        (172799, "48.0 h"), (172800, "2.0 days"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_an_estimate_under_a_second_is_not_about_anything() -> None:
    assert [estimated(seconds) for seconds in (0.2, 1, 180)] == ["under 1 s", "about 1 s", "about 3 min"]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (2.5e9, "2 GB"), (3e13, "30.0 TB")]
)
def test_amounts(size: float, text: str) -> None:
    assert amount(size) == text


def test_counts_have_their_plural() -> None:
    assert (count(1, "run"), count(0, "run"), count(12_345, "run")) == ("1 run", "0 runs", "12,345 runs")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (np.bool_(False), "false"),
        (0.123456, "0.1235"),
        (3, "3"),
        ("word", "word"),
        (np.float64(2), "2"),
    ],
)
def test_values_are_written_as_in_a_spec(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_values_can_have_more_or_all_digits() -> None:
    assert value_text(1 / 3, digits=6) == "0.333333"
    assert float(value_text(np.float64(1 / 3), digits=None)) == 1 / 3
    assert value_text(7, digits=None) == "7"


@pytest.mark.parametrize(
    ("mean", "high", "text"),
    [(0.97, 0.984, "0.97 ± 0.014"), (0.5, float("nan"), "0.5"), (float("nan"), float("nan"), "–"), (1.0, 1.0, "1 ± 0")],
)
def test_means_have_half_of_their_interval(mean: float, high: float, text: str) -> None:
    assert with_interval(mean, high) == text


@pytest.mark.parametrize(
    ("axis", "text"),
    [
        ({"values": [0.1, True, "word"]}, "0.1, true, word"),
        ({"min": 0.01, "max": 1, "scale": "log"}, "0.01 … 1 (log scale)"),
        ({"min": 1, "max": 9, "points": 5}, "1 … 9 (5 points)"),
        ({"min": 0, "max": 1, "step": 0.25}, "0 … 1 (in steps of 0.25)"),
        ({"min": 0, "max": 1}, "0 … 1"),
    ],
)
def test_axes_are_written_in_one_line(axis: dict[str, Any], text: str) -> None:
    assert axis_text(Axis.model_validate(axis, strict=False)) == text


def test_long_lists_are_shortened() -> None:
    assert values_text(range(12)).endswith("10, 11")
    assert values_text(range(13)).endswith("10, 11, … (13 values)")
