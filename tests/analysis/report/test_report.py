"""Reports of all kinds of sweeps show what is in the store, in one file."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest

import mislabel
from mislabel.analysis.report.html import table
from mislabel.analysis.report.report import Report
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.formatting import with_interval
from mislabel.sweeps.store.store import Store
from tests.bowls import cut_short, run

pytestmark = pytest.mark.long

TWO = [{"name": "loss", "goal": "minimize"}, {"name": "height", "goal": "maximize"}]
EVEN: dict[str, Any] = {"frames": 11, "spacing": "linear"}
VOID = ("meta", "br", "img", "link")


class Nesting(HTMLParser):
    """Checks that tags are nested correctly. Collects ids, headings, and addresses that would be loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.headings: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not str(value).startswith(("#", "data:")):
                self.loaded.append(str(value))
            if name == "id":
                self.ids.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def made(store: Store, **changes: Any) -> Sweep:
    run(store, resources={"pack": 100}, **changes)
    return mislabel.load(store.address, "bowls")


def test_a_report_is_one_file_with_everything_in_it(store: Store) -> None:
    parameters = {
        "x": {"min": -2, "max": 5}, "rate": {"min": 0.01, "max": 1, "scale": "log"}, "level": {"values": [1, 10]},
        "surface": {"values": ["smooth", "rough"]},
    }  # fmt: skip
    sweep = made(store, parameters=parameters, seeds=3, method="random", budget={"cells": 30})
    text = Report(sweep).html()
    read = Nesting(text)
    assert read.loaded == []
    assert "<script" not in text
    assert re.findall(r"url\((?!#)|@import", text) == []
    assert len(read.ids) == len(set(read.ids))
    assert read.headings == [
        "Best cells", "loss over training", "What loss depends on", "All cells", "Parameters", "Provenance"
    ]  # fmt: skip
    assert text.count("<svg") == 6
    best = sweep.cells("loss").sort_values("mean").iloc[0]
    assert with_interval(best["mean"], best["high"]) in text
    assert "0.01 … 1 (log scale)" in text


def test_the_front_has_a_section(store: Store) -> None:
    sweep = made(store, parameters={"x": {"values": [0, 1, 2, 3]}, "level": {"values": [0, 10]}}, metric=TWO)
    text = Report(sweep).html()
    assert "Pareto front" in Nesting(text).headings
    assert f"{len(sweep.front())} of 8 cells" in text
    assert text.count('<tr class="mark">') == len(sweep.front())


def test_without_an_objective_cells_are_not_ranked(store: Store) -> None:
    text = Report(made(store, metric=None, parameters={"x": {"values": [0, 1, 2, 3]}})).html()
    headings = Nesting(text).headings
    assert headings[0] == "Cells"
    assert "no objective" in text
    assert "best so far" not in text


def test_one_cell_has_a_report(store: Store) -> None:
    text = Report(made(store, parameters={"x": 1.0})).html()
    assert Nesting(text).headings == ["Best cells", "loss over training", "Parameters", "Provenance"]


def test_a_sweep_without_ended_runs_has_a_report(store: Store) -> None:
    store.sweep("bowls").write_text("spec.yaml", "name: bowls\ntask: bowl\nparameters:\n  x: {values: [1, 2]}\n")
    text = Report(mislabel.load(store.address, "bowls")).html()
    assert Nesting(text).headings == ["Results", "Parameters", "Provenance"]


def test_failed_runs_are_reported_with_their_error(store: Store) -> None:
    text = Report(made(store, parameters={"trouble": 1})).html()
    assert Nesting(text).headings == ["Results", "Failures", "Parameters", "Provenance"]
    assert "RuntimeError: the bowl broke" in text


def test_the_example_of_a_failure_has_its_active_parameters(store: Store) -> None:
    parameters = {
        "x": {"values": [0, 1]}, "level": {"values": [7, 9], "when": "x == 1"},
        "trouble": {"values": [1], "when": "x == 0"},
    }  # fmt: skip
    text = Report(made(store, parameters=parameters, seeds=1)).html()
    assert "x = 0, trouble = 1, seed 0 (run" in text


def test_the_steps_saved_by_early_stopping_are_reported(store: Store) -> None:
    sweep = made(store, parameters={"x": {"values": [0, 1, 2, 3, 4]}, "steps": 100, **EVEN}, seeds=2)
    cut_short(sweep.files, sweep.read("runs", ["run_id"], {"x": [0, 1]})["run_id"].tolist(), 10)
    text = Report(mislabel.load(store.address, "bowls")).html()
    assert "Early stopping" in Nesting(text).headings
    assert re.search(r"\b4 of 10 runs\b.*\b640\b.*\b1,000\b.*\b36%", text)


def test_a_search_is_judged_at_the_end_of_training(store: Store) -> None:
    """The cells that were stopped at step 10 are shown as such, and all others at their last step."""
    parameters = {"x": {"values": [0, 1, 2, 3, 4]}, "level": {"values": [0, 1]}, "steps": 100, "rate": 0.01, **EVEN}
    sweep = made(store, parameters=parameters, seeds=2)
    cut_short(sweep.files, sweep.read("runs", ["run_id"], {"x": [0, 1]})["run_id"].tolist(), 10)
    report = Report(mislabel.load(store.address, "bowls"))
    cells = report.cells[report.cells["complete"]]
    ends = sweep.cells("loss").set_index("cell_id")["mean"]
    assert cells["x"].tolist() == [2, 2, 3, 3, 4, 4]
    assert cells.set_index("cell_id")["mean"].to_dict() == pytest.approx(ends[cells["cell_id"]].to_dict())
    text = report.html()
    assert "Hollow: 4 cells stopped early" in text
    assert "The line is the mean" not in text
    assert "Dashed: some runs were stopped or diverged" in text


def test_inactive_parameters_are_not_shown(store: Store) -> None:
    parameters = {"x": {"values": [0, 3]}, "level": {"values": [7, 9], "when": "x == 0"}}
    text = Report(made(store, parameters=parameters)).html()
    assert "over 2 seeds, at x = 3." in text
    assert text.count('<td class="number">–</td>') == 1


def test_diverged_runs_are_counted(store: Store) -> None:
    text = Report(made(store, parameters={"x": {"values": [0, 1, 2]}, "trouble": {"values": [0, 2]}})).html()
    assert "6 runs in 3 cells" in text
    assert "Failures" in Nesting(text).headings


def test_texts_of_the_sweep_are_escaped(store: Store) -> None:
    sweep = made(store, parameters={"x": {"values": [0, 1]}, "level": {"values": [1, 2], "when": "x < 1 and 0 < 1"}})
    text = Report(sweep).html()
    assert "x &lt; 1" in text
    assert "x < 1" not in text


def test_conditional_and_categorical_parameters_are_drawn(store: Store) -> None:
    parameters = {
        "x": {"values": [0, 1, 2, 3]}, "tilted": {"values": [True, False]},
        "level": {"values": [1, 2, 5], "when": "x > 1"}, "surface": {"values": ["smooth", "rough"]},
    }  # fmt: skip
    text = Report(made(store, parameters=parameters)).html()
    assert "PED-ANOVA" in text
    Nesting(text)


def test_a_report_can_have_other_metrics(store: Store) -> None:
    sweep = made(store, parameters={"x": {"values": [0, 1, 2, 3]}})
    assert "What height depends on" in Report(sweep, ["height"]).html()
    assert "rest_step" in Report(sweep, ["rest_step"]).html()
    with pytest.raises(MislabelError, match=r"'los'.*\bloss\?"):
        Report(sweep, ["los"]).html()


def test_columns_of_numbers_are_right_aligned() -> None:
    text = table(["a", "b", "c"], [["1,000", "0.1 ± 0.02", "1, 2"], ["-3e-05", "–", "3 words"]])
    assert text.count('class="number"') == 6
