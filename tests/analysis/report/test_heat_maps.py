from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle

import mislabel
from mislabel.analysis.report.figures import save
from mislabel.analysis.report.heat_maps import branch_figure, difference_map, heat_map
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import Store
from tests.bowls import cut_short, run

pytestmark = pytest.mark.long


def hatched(axis: Any) -> dict[tuple[float, float], str]:
    """The hatches of squares by column and row."""
    squares = [patch for patch in axis.patches if isinstance(patch, Rectangle) and patch.get_hatch()]
    return {(square.get_x() + 0.5, square.get_y() + 0.5): square.get_hatch() for square in squares}


def colours(axis: Any) -> np.ma.MaskedArray:
    (image,) = axis.images
    return np.ma.asarray(image.get_array())


def test_diverged_cells_are_hatched(store: Store) -> None:
    """All runs diverge at x = 2, and those of one of two cells at x = 1."""
    parameters = {
        "x": {"values": [0, 1, 2]}, "level": {"values": [0, 10]}, "surface": {"values": ["smooth", "rough"]},
        "trouble": {"values": [0, 2]},
    }  # fmt: skip
    exclude = [
        "x == 0 and trouble == 2",
        "x == 2 and trouble == 0",
        "x == 1 and (surface == 'rough') != (trouble == 2)",
    ]
    run(store, parameters=parameters, exclude=exclude, seeds=2, resources={"pack": 100})
    figure = heat_map(mislabel.load(store.address, "bowls"), "loss", "x", "level")
    axis = figure.axes[0]
    assert hatched(axis) == {(1, 0): "//", (1, 1): "//", (2, 0): "////", (2, 1): "////"}
    assert np.ma.getmaskarray(colours(axis)).tolist() == [[False, False, True]] * 2
    assert "Hatched" in figure.get_supxlabel()


def test_a_square_averages_cells_and_leaves_out_stopped_ones(store: Store) -> None:
    parameters = {"x": {"values": [0, 1]}, "level": {"values": [0, 10]}, "width": {"values": [1, 2]}}
    run(store, parameters=parameters, seeds=2, resources={"pack": 100})
    sweep = mislabel.load(store.address, "bowls")
    cut_short(sweep.files, sweep.read("runs", ["run_id"], {"x": 0, "level": 0, "width": 1})["run_id"].tolist(), 1)
    sweep = mislabel.load(store.address, "bowls")
    figure = heat_map(sweep, "height", "x", "level")
    runs = sweep.runs[(sweep.runs["x"] == 0) & (sweep.runs["level"] == 0) & (sweep.runs["width"] == 2)]
    assert colours(figure.axes[0])[0, 0] == pytest.approx(runs["height"].mean())
    caption = " ".join(figure.get_supxlabel().split())
    assert "averages the cells that differ in width" in caption
    assert "Left out: 1 cell stopped early." in caption


def test_differences_that_are_not_significant_have_no_colour(store: Store) -> None:
    """The surface does not change the height. The level does."""
    parameters = {
        "x": {"values": [0, 1]}, "level": {"values": [0, 10]}, "surface": {"values": ["smooth", "rough"]},
    }  # fmt: skip
    run(store, parameters=parameters, seeds=4, resources={"pack": 100})
    sweep = mislabel.load(store.address, "bowls")
    none = difference_map(sweep, {"surface": "smooth"}, {"surface": "rough"}, "height", "x", "level")
    assert np.ma.getmaskarray(colours(none.axes[0])).all()
    all_ = difference_map(sweep, {"level": 0}, {"level": 10}, "height", "x", "surface")
    assert colours(all_.axes[0]).tolist() == [pytest.approx([10.0, 10.0])] * 2
    assert "not significant" in all_.get_supxlabel()


def test_a_difference_needs_one_cell_per_square(store: Store) -> None:
    parameters = {
        "x": {"values": [0, 1]},
        "level": {"values": [0, 10]},
        "width": {"values": [1, 2]},
        "rate": {"values": [0.1, 0.2]},
    }
    run(store, parameters=parameters, seeds=1, resources={"pack": 100})
    with pytest.raises(MislabelError, match="differ in rate"):
        difference_map(mislabel.load(store.address, "bowls"), {"level": 0}, {"level": 10}, "loss", "x", "width")


def test_a_heat_map_needs_two_parameters(store: Store) -> None:
    run(store)
    sweep = mislabel.load(store.address, "bowls")
    with pytest.raises(MislabelError, match="two parameters"):
        heat_map(sweep)
    with pytest.raises(MislabelError, match="both x"):
        heat_map(sweep, "loss", "x", "x")


@pytest.mark.parametrize("grids", [1, 2, 3])
def test_a_heat_map_has_a_square_for_each_branch(store: Store, tmp_path: Path, grids: int) -> None:
    axes = {"surface": ["smooth", "rough"], "level": [0, 10], "width": [1, 2, 4]}
    branches = {name: {"values": values, "grid": True} for name, values in list(axes.items())[-grids:]}
    run(store, parameters={"x": {"values": [0, 3]}, **branches}, seeds=2, resources={"pack": 100})
    figure = branch_figure(mislabel.load(store.address, "bowls"), "height")
    texts = [text.get_text() for axis in figure.axes for text in axis.texts]
    assert len(texts) == (3, 6, 12)[grids - 1]
    assert all(text.endswith("\nx 3") for text in texts)
    save(figure, tmp_path / "a.png")
    assert len(figure.axes) == 1 + (2 if grids == 3 else 1)


def test_a_heat_map_has_at_most_three_parameters(store: Store) -> None:
    axes = {"surface": ["smooth"], "level": [0], "width": [4], "rate": [0.5, 1.0]}
    branches = {name: {"values": values, "grid": True} for name, values in axes.items()}
    run(store, parameters={"x": {"values": [0, 3]}, **branches}, seeds=1)
    with pytest.raises(MislabelError, match="4 parameters"):
        branch_figure(mislabel.load(store.address, "bowls"))
