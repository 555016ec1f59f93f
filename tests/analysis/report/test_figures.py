import re
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot as plt

import mislabel
from mislabel.analysis.report.figures import branch_figure, curve_figure, save
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import Store
from tests.bowls import run

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    store = Store(str(tmp_path_factory.mktemp("store")))
    parameters = {"x": {"values": [0, 1, 2]}, "surface": {"values": ["smooth", "rough"]}, "trouble": {"values": [0, 2]}}
    run(store, parameters=parameters, resources={"pack": 24})
    return mislabel.load(store.address, "bowls")


@pytest.mark.parametrize("metrics", [[], ["height"], ["loss", "height", "rest_step", "loss"]])
@pytest.mark.parametrize("by", [[], ["x"], ["surface", "x"]])
def test_a_figure_is_drawn_and_leaves_no_open_figure(
    sweep: Sweep, tmp_path: Path, metrics: list[str], by: list[str]
) -> None:
    path = tmp_path / "a.png"
    opened = plt.get_fignums()
    save(curve_figure(sweep, metrics, by), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert plt.get_fignums() == opened


def test_a_sweep_that_varies_nothing_has_one_line(store: Store, tmp_path: Path) -> None:
    run(store, parameters={})
    save(curve_figure(mislabel.load(store.address, "bowls")), tmp_path / "a.svg")
    assert "<svg" in (tmp_path / "a.svg").read_text()


def test_the_legend_says_how_many_lines_are_left_out(store: Store) -> None:
    run(store, parameters={"x": {"values": [i / 4 for i in range(12)]}}, seeds=1, resources={"pack": 12})
    figure = curve_figure(mislabel.load(store.address, "bowls"))
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 10
    assert "10 of 12" in legend.get_title().get_text()


def test_at_most_two_parameters_distinguish_lines(sweep: Sweep, tmp_path: Path) -> None:
    with pytest.raises(MislabelError, match="x, surface, trouble"):
        curve_figure(sweep, by=["x", "surface", "trouble"])


@pytest.mark.parametrize("file", ["a.nonsense", "no/such/folder.png"])
def test_a_file_that_can_not_be_written_is_named(sweep: Sweep, tmp_path: Path, file: str) -> None:
    opened = plt.get_fignums()
    with pytest.raises(MislabelError, match=re.escape(str(tmp_path / file))):
        save(curve_figure(sweep), tmp_path / file)
    assert plt.get_fignums() == opened


def test_an_array_is_drawn_as_a_histogram_at_the_nearest_snapshot(store: Store, tmp_path: Path) -> None:
    run(store, parameters={"x": {"values": [0, 1]}, "snapshots": 3, "steps": 20})
    kept = mislabel.load(store.address, "bowls")
    snapshots = sorted(kept.arrays["step"].unique())
    for at, shown in [(None, snapshots[-1]), (0, snapshots[0]), (snapshots[1] + 1, snapshots[1])]:
        save(curve_figure(kept, ["loss", "weight"], at=at), tmp_path / "a.svg")
        text = (tmp_path / "a.svg").read_text()
        assert f"weight at step {shown}" in text
        assert "loss at step" not in text


@pytest.mark.parametrize(("spacing", "scale"), [("log", "symlog"), ("linear", "linear")])
def test_the_axis_of_steps_has_their_spacing(store: Store, spacing: str, scale: str) -> None:
    run(store, parameters={"steps": 400, "frames": 9, "spacing": spacing})
    figure = curve_figure(mislabel.load(store.address, "bowls"), ["loss"])
    assert figure.axes[0].get_xscale() == scale


def test_drawing_keeps_the_backend(sweep: Sweep, tmp_path: Path) -> None:
    """A notebook shows its own figures with its own backend."""
    before = matplotlib.get_backend()
    plt.switch_backend("svg")
    try:
        curve_figure(sweep)
        assert matplotlib.get_backend() == "svg"
    finally:
        plt.switch_backend(before)


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
