"""Ticks, their labels and grid lines, drawn as a few artists per axis.

Matplotlib makes five artists for every tick. In a small drawing they take more time than everything else.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Axes are at 0. Legends make way for the artists of their axes, so ticks belong to the figure.
_BELOW_AXES = -1
# A tick is inside of an axis if it is outside by less than this share of the axis.
_ROUNDING = 1e-10


def draw_ticks(every: Iterable["Axes"]) -> None:
    """Draw the ticks of these axes, which have their final limits, in place of matplotlib's own."""
    from matplotlib.ticker import NullLocator

    found = [_Axis(axes, along) for axes in every if axes.get_visible() for along in ("x", "y")]
    # Axes that share a scale share their locators, so none is removed before all ticks are drawn.
    for axis in [axis for axis in found if axis.draw()]:
        axis.axis.set_major_locator(NullLocator())
        axis.axis.set_minor_locator(NullLocator())


def plain(text: str) -> str:
    """A power of ten as plain text, such as 10⁻³. Matplotlib's mathematical text is slow."""
    if not text.startswith(r"$\mathdefault{"):
        return text
    text = text.removeprefix(r"$\mathdefault{").removesuffix("}$").replace(r"\times", "×")
    base, _, power = text.partition("^")
    return base.replace("-", "−") + power.strip("{}").translate(_SUPERSCRIPTS)


class _Axis:
    def __init__(self, axes: "Axes", along: str) -> None:
        import matplotlib

        self.axes = axes
        self.figure: Any = axes.figure
        self.axis: Any = getattr(axes, f"{along}axis")
        self.along = along
        self.style: Any = matplotlib.rcParams

    def draw(self) -> bool:
        """Draw the ticks and move the axis label away from them; False if matplotlib must draw them.

        It must if the labels have a common factor, which is drawn next to them.
        """
        ticks = {"major": self.axis.get_majorticklocs(), "minor": self.axis.get_minorticklocs()}
        formatters = {"major": self.axis.get_major_formatter(), "minor": self.axis.get_minor_formatter()}
        texts = {which: formatters[which].format_ticks(places) for which, places in ticks.items()}
        if formatters["major"].get_offset():
            return False
        self.axis.labelpad += max(self._drawn(which, np.asarray(ticks[which], float), texts[which]) for which in ticks)
        return True

    def _drawn(self, which: str, places: np.ndarray, texts: Sequence[str]) -> float:
        """Draw the major or the minor ticks. Returns how far they reach out of the axes, in points."""
        given, style = self.axis.get_tick_params(which=which), self.style
        length = given.get("length", style[f"{self.along}tick.{which}.size"])
        inside = self._inside(places)
        at = places[inside]
        if len(at) and given.get("gridOn", style["axes.grid"] and which == "major"):
            self._draw_grid(at)
        if len(at) and length:
            self._draw_marks(at, length, style[f"{self.along}tick.{which}.width"])
        labels = [(places[i], plain(texts[i])) for i in np.flatnonzero(inside).tolist() if texts[i]]
        if not labels or not given.get("labelbottom" if self.along == "x" else "labelleft", True):
            return float(length) if len(at) else 0.0
        pad = length + given.get("pad", style[f"{self.along}tick.{which}.pad"])
        return float(pad + self._draw_labels(labels, pad))

    def _inside(self, places: np.ndarray) -> np.ndarray:
        ends = sorted(self.axis.get_view_interval())
        found = self.axis.get_transform().transform(np.array([*ends, *places]))
        low, high = found[:2]
        rounding = _ROUNDING * abs(high - low)
        return np.asarray((found[2:] >= low - rounding) & (found[2:] <= high + rounding))

    def _transform(self, which: str) -> Any:
        return getattr(self.axes, f"get_{self.along}axis_transform")(which=which)

    def _points(self, at: np.ndarray, across: float) -> np.ndarray:
        """Points at these places of the axis, with this share of the other axis."""
        columns = [at, np.full(len(at), across)]
        return np.column_stack(columns if self.along == "x" else columns[::-1])

    def _draw_grid(self, at: np.ndarray) -> None:
        from matplotlib.collections import LineCollection

        style = self.style
        lines = LineCollection(
            list(np.stack([self._points(at, end) for end in (0, 1)], axis=1)), transform=self._transform("grid"),
            colors=style["grid.color"], linewidths=style["grid.linewidth"], alpha=style["grid.alpha"],
            zorder=_BELOW_AXES,
        )  # fmt: skip
        self.figure.add_artist(lines)

    def _draw_marks(self, at: np.ndarray, length: float, width: float) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.markers import TICKDOWN, TICKLEFT

        marker: Any = TICKDOWN if self.along == "x" else TICKLEFT
        marks = Line2D(
            *self._points(at, 0).T, linestyle="none", marker=marker, markersize=length, markeredgewidth=width,
            color=self.style[f"{self.along}tick.color"], transform=self._transform("tick1"), zorder=_BELOW_AXES,
        )  # fmt: skip
        self.figure.add_artist(marks)

    def _draw_labels(self, labels: Sequence[tuple[float, str]], pad: float) -> float:
        """Returns the height of a line, or the width of the widest label, in points."""
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path

        font = FontProperties(size=self.style[f"{self.along}tick.labelsize"])
        transform, vertical, horizontal = getattr(self.axes, f"get_{self.along}axis_text1_transform")(pad)
        points = self._points(np.array([place for place, _ in labels]), 0)
        for (x, y), (_, text) in zip(points, labels, strict=True):
            self.figure.text(x, y, text, transform=transform, va=vertical, ha=horizontal, fontproperties=font)
        if self.along == "x":
            return float(text_to_path.get_text_width_height_descent("lp", font, ismath=False)[1])
        sizes = [text_to_path.get_text_width_height_descent(text, font, ismath=False) for _, text in labels]
        return float(max(width for width, _, _ in sizes))
