import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow as pa
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import mislabel
from mislabel.analysis.report.figures import curve_figure, default_grouping, save
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.parts import TABLES
from mislabel.sweeps.store.store import Store
from tests.bowls import cut_short, run

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


def caption_of(figure: Figure) -> str:
    """The caption, without line breaks."""
    found = figure.get_supxlabel()
    return " ".join(found.split())


def labels_of(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_fifteen_lines_are_all_drawn(store: Store) -> None:
    run(store, parameters={"x": {"values": [i / 4 for i in range(15)]}}, seeds=1, resources={"pack": 15})
    figure = curve_figure(mislabel.load(store.address, "bowls"))
    assert len(labels_of(figure)) == 15
    assert caption_of(figure) == "Mean and 95 % interval over 1 seed."


def test_many_numbers_are_drawn_as_quarters(store: Store) -> None:
    run(store, parameters={"level": {"values": list(range(40))}}, seeds=1, resources={"pack": 40})
    figure = curve_figure(mislabel.load(store.address, "bowls"), by=["level"])
    assert labels_of(figure) == ["0 … 9.75", "9.75 … 19.5", "19.5 … 29.25", "29.25 … 39"]
    assert caption_of(figure) == "Mean and 95 % interval over 1 seed. A line averages 10 cells."


def test_the_caption_says_how_many_lines_are_left_out(store: Store) -> None:
    parameters = {"x": {"values": [i / 4 for i in range(6)]}, "level": {"values": list(range(5))}}
    run(store, parameters=parameters, seeds=1, resources={"pack": 100})
    figure = curve_figure(mislabel.load(store.address, "bowls"), by=["x", "level"])
    assert "15 of 30 lines are drawn." in caption_of(figure)
    assert len(labels_of(figure)) == 15


def test_lines_that_differ_in_the_second_parameter_have_different_markers(store: Store) -> None:
    parameters = {"level": {"values": list(range(8))}, "x": {"values": [0, 1]}}
    run(store, parameters=parameters, seeds=1, resources={"pack": 100})
    axis = curve_figure(mislabel.load(store.address, "bowls"), by=["x", "level"]).axes[0]
    looks = {(str(line.get_color()), line.get_marker()) for line in axis.lines if np.size(line.get_xdata())}
    assert len(looks) == 16


def test_a_pooled_line_says_how_many_cells_and_seeds_it_has(sweep: Sweep) -> None:
    caption = caption_of(curve_figure(sweep, ["loss"], ["x"]))
    assert caption.startswith("Mean and 95 % interval over 2 seeds. A line averages 4 cells.")


def test_a_line_is_dashed_after_runs_were_stopped(store: Store) -> None:
    run(store, parameters={"x": {"values": [0, 1]}, "frames": 9, "spacing": "linear"}, seeds=3)
    whole = curve_figure(mislabel.load(store.address, "bowls"))
    assert "Dashed" not in caption_of(whole)
    files = mislabel.load(store.address, "bowls").files
    runs = mislabel.load(store.address, "bowls").read("runs", ["run_id"], {"x": 0, "seed": [0, 1]})["run_id"].tolist()
    cut_short(files, runs, 3)
    figure = curve_figure(mislabel.load(store.address, "bowls"))
    dashed = [np.asarray(line.get_xdata()).tolist() for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert [steps for steps in dashed if steps] == [[3, 4, 5, 6, 7, 8]]
    assert "Dashed" in caption_of(figure)
    assert "2 runs stopped" in caption_of(figure)


def with_values(store: Store, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Sweep:
    """The sweep with changed rows of curves."""
    files = store.sweep(name)
    tables = {table: files.read(table) for table in TABLES}
    rows = [{**row, **change(row)} for row in tables["curves"].to_pylist()]
    tables["curves"] = pa.Table.from_pylist(rows, tables["curves"].schema)
    files.write_results(tables, replaces=files.parts("runs"))
    return mislabel.load(store.address, name)


def test_one_diverging_run_does_not_stretch_the_axis(store: Store) -> None:
    run(store, parameters={"x": {"values": [0, 1, 2]}, "frames": 9, "spacing": "linear"}, seeds=2)
    first = mislabel.load(store.address, "bowls").runs["run_id"].min()
    change = {7: 1e12, 8: 1e33}
    grown = with_values(
        store, "bowls", lambda row: {"loss": change.get(row["step"], row["loss"])} if row["run_id"] == first else {}
    )
    figure = curve_figure(grown, ["loss"], ["x"])
    low, high = figure.axes[0].get_ylim()
    assert -1e3 < low < high < 1e3
    assert "outside of the axis" in caption_of(figure)
    one_line = curve_figure(grown, ["loss"], ["task"])
    assert one_line.axes[0].get_ylim()[1] < 1e8


def test_late_growth_does_not_leave_the_axis(store: Store) -> None:
    """Most values are near 0, as the accuracy on flipped labels is for most of the training."""
    run(store, parameters={"x": {"values": [0, 1, 2]}, "steps": 400, "frames": 20}, seeds=2)
    last = mislabel.load(store.address, "bowls").curves["step"].max()
    late = with_values(store, "bowls", lambda row: {"loss": 0.6 if row["step"] in (0, last) else 1e-3})
    figure = curve_figure(late, ["loss"], ["x"])
    low, high = figure.axes[0].get_ylim()
    assert low < 1e-3 < 0.6 < high
    assert "outside of the axis" not in caption_of(figure)
    assert figure.axes[0].get_xlim()[0] > -1


def test_the_band_of_a_share_stays_between_0_and_1(store: Store) -> None:
    """Two seeds with 0.9 and 1 have an interval up to 1.6."""
    run(store, parameters={"x": 1.0}, seeds=2)
    files = store.sweep("bowls")
    tables = {table: files.read(table) for table in TABLES}
    for name in ("runs", "curves"):
        shares = pa.array([0.9 if seed else 1.0 for seed in tables[name]["seed"].to_pylist()])
        tables[name] = tables[name].append_column("clean_accuracy", shares)
    files.write_results(tables, replaces=files.parts("runs"))
    axis = curve_figure(mislabel.load(store.address, "bowls"), ["clean_accuracy"]).axes[0]
    (band,) = axis.collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
    assert heights.max() == 1.0
    assert 0 <= heights.min() < 0.9
    assert axis.get_ylim()[1] < 1.1


def test_long_titles_are_not_cut(store: Store) -> None:
    name = "a-very-long-name-of-a-sweep-" * 3 + "end"
    run(store, name=name, parameters={"x": {"values": [0, 1]}}, seeds=1)
    figure = curve_figure(mislabel.load(store.address, name))
    figure.draw_without_rendering()
    (title,) = [text for text in figure.texts if "end" in text.get_text()]
    box = title.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_lines_differ_by_the_most_important_parameters(store: Store) -> None:
    """The level and the surface do not change the loss."""
    parameters = {
        "surface": {"values": ["smooth", "rough"]}, "level": {"values": [0, 1]}, "x": {"values": [0, 1, 2]},
        "rate": {"values": [0.01, 0.1]},
    }  # fmt: skip
    run(store, parameters=parameters, seeds=2, resources={"pack": 100})
    sweep = mislabel.load(store.address, "bowls")
    assert sorted(default_grouping(sweep, ["loss"])) == ["rate", "x"]
    assert default_grouping(sweep, ["height"])[0] != "surface"


def test_without_importances_lines_differ_by_the_first_parameters(store: Store) -> None:
    run(store, parameters={"x": {"values": [0, 1]}, "surface": "rough"}, seeds=1)
    assert default_grouping(mislabel.load(store.address, "bowls"), ["loss"]) == ["x"]


def test_a_parameter_that_is_inactive_has_its_own_line(store: Store) -> None:
    run(store, parameters={"x": {"values": [0, 1]}, "level": {"values": [3, 5], "when": "x == 1"}}, seeds=1)
    assert labels_of(curve_figure(mislabel.load(store.address, "bowls"), ["loss"], ["level"])) == ["3", "5", "–"]


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
