"""Ticks, compared with matplotlib's own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mislabel.analysis.report.ticks import draw_ticks, plain


def linear(axes: Any) -> None:
    axes.plot([-0.3, 12], [0.511, 0.987])
    axes.grid(True)


def logarithmic(axes: Any) -> None:
    axes.plot([0.003, 0.4], [3, 7000])
    axes.set(xscale="log", yscale="log")


def within_a_decade(axes: Any) -> None:
    axes.plot([0.2, 0.7], [3, 8])
    axes.set(xscale="log", yscale="log")


def steps(axes: Any) -> None:
    axes.plot([0, 5000], [0, 1])
    axes.set_xscale("symlog", linthresh=1)


def listed(axes: Any) -> None:
    axes.set(xlim=(0, 3), ylim=(4, 0))
    axes.set_xticks([0, 1, 2, 9], ["one", "two", "", "outside"])
    axes.set_yticks([])
    axes.tick_params(length=0, pad=14)


def boxes(texts: Any) -> dict[str, np.ndarray]:
    return {plain(t.get_text()): t.get_window_extent().extents for t in texts if t.get_visible() and t.get_text()}


def drawn(prepare: Callable[[Any], None], ours: bool) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The boxes of the tick labels, and of the two axis labels."""
    figure = Figure(figsize=(4, 3))
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    prepare(axes)
    axes.set(xlabel="across", ylabel="up")
    if ours:
        draw_ticks([axes])
    figure.canvas.draw()
    labels = np.array([axis.label.get_window_extent().extents for axis in (axes.xaxis, axes.yaxis)])
    if ours:
        return boxes(figure.texts), labels
    every = [
        tick.label1
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        if min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    ]
    return boxes(every), labels


@pytest.mark.long
@pytest.mark.parametrize("prepare", [linear, logarithmic, within_a_decade, steps, listed])
def test_labels_are_where_matplotlib_has_them(prepare: Callable[[Any], None]) -> None:
    """Powers of ten as plain text are a few pixels smaller."""
    (ours, our_labels), (theirs, their_labels) = drawn(prepare, ours=True), drawn(prepare, ours=False)
    assert ours
    assert ours.keys() == theirs.keys()
    for text, box in ours.items():
        assert box == pytest.approx(theirs[text], abs=8), text
    assert our_labels == pytest.approx(their_labels, abs=8)


def test_labels_of_plain_numbers_are_exactly_where_matplotlib_has_them() -> None:
    (ours, our_labels), (theirs, their_labels) = drawn(linear, ours=True), drawn(linear, ours=False)
    assert {text: box.tolist() for text, box in ours.items()} == {text: box.tolist() for text, box in theirs.items()}
    assert our_labels == pytest.approx(their_labels, abs=1)


def test_axes_that_share_a_scale_have_the_same_grid_and_one_has_labels() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2, sharey=True)
    for axes in (left, right):
        axes.set_xticks([])
        axes.grid(True)
    right.plot([0, 1], [0, 1])
    draw_ticks([left, right])
    grids: list[Any] = [artist for artist in figure.get_children() if hasattr(artist, "get_segments")]
    assert [len(grid.get_segments()) for grid in grids] == [6, 6]
    assert [text.get_text() for text in figure.texts] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]


def test_numbers_with_a_common_factor_are_left_to_matplotlib() -> None:
    figure = Figure()
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([1e9, 3e9], [0, 1])
    draw_ticks([axes])
    figure.canvas.draw()
    assert axes.xaxis.get_offset_text().get_text() == "1e9"
    assert len(axes.get_xticks()) > 2
    assert len(axes.get_yticks()) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"$\mathdefault{10^{-3}}$", "10⁻³"),
        (r"$\mathdefault{2\times10^{12}}$", "2×10¹²"),
        (r"$\mathdefault{-10^{0}}$", "−10⁰"),
        (r"$\mathdefault{0}$", "0"),
        ("$x$", "$x$"),
        ("-1", "-1"),
    ],
)
def test_powers_are_plain_text(text: str, expected: str) -> None:
    assert plain(text) == expected
