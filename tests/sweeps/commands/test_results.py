import io
from collections.abc import Callable

import pandas as pd
import pytest

from mislabel import load
from tests.bowls import cut_short
from tests.sweeps.commands.conftest import Mislabel, Said

PARAMETERS = {"x": {"values": [0, 1, 2]}, "surface": {"values": ["smooth", "rough"]}}


@pytest.fixture
def bowls(ran: Callable[..., Said]) -> None:
    assert ran(parameters=PARAMETERS, seeds=3).code == 0


@pytest.mark.usefixtures("bowls")
def test_cells_are_printed_best_first_with_mean_and_interval(mislabel: Mislabel) -> None:
    said = mislabel("results", "bowls")
    assert said.code == 0
    assert [line for line in said.err.splitlines() if not line.startswith("note: ")] == []
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[0] == ["x", "surface", "seeds", "loss"]
    assert [line[0] for line in lines[1:]] == ["2", "2", "1", "1", "0", "0"]
    best = load("results", "bowls").cells("loss").sort_values("mean").iloc[0]
    assert lines[1][3:] == [f"{best['mean']:.4g}", "±", f"{best['high'] - best['mean']:.2g}"]


@pytest.mark.usefixtures("bowls")
def test_cells_are_printed_as_json_or_csv(mislabel: Mislabel) -> None:
    rows = mislabel("results", "bowls", "--json").json
    assert [row["x"] for row in rows] == [2, 2, 1, 1, 0, 0]
    assert set(rows[0]) == {
        "x", "surface", "cell_id", "runs", "diverged", "stopped", "step", "loss", "loss_std", "loss_low", "loss_high"
    }  # fmt: skip
    table = pd.read_csv(io.StringIO(mislabel("results", "bowls", "--csv").out))
    assert table.to_dict("records") == [{key: pytest.approx(value) for key, value in row.items()} for row in rows]


@pytest.mark.usefixtures("bowls")
def test_rows_can_average_over_parameters_and_show_other_metrics(mislabel: Mislabel) -> None:
    rows = mislabel("results", "bowls", "--by", "x", "-m", "height", "-m", "loss", "--json").json
    assert [(row["x"], row["runs"]) for row in rows] == [(0.0, 6), (1.0, 6), (2.0, 6)]
    for row in rows:
        assert row["height"] == pytest.approx(row["loss"] + 1)
    assert "surface" not in rows[0]


@pytest.mark.usefixtures("bowls")
def test_only_the_best_rows_are_printed_on_request(mislabel: Mislabel) -> None:
    assert len(mislabel("results", "bowls", "--top", "2", "--json").json) == 2


@pytest.mark.usefixtures("bowls")
def test_a_metric_given_twice_is_shown_once(mislabel: Mislabel) -> None:
    assert (
        mislabel("results", "bowls", "-m", "loss", "-m", "loss", "--json").json
        == mislabel("results", "bowls", "--json").json
    )


@pytest.mark.usefixtures("bowls")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bowl",), "did you mean bowls?"),
        (("bowls", "-m", "los"), "did you mean loss?"),
        (("bowls", "--by", "surfce"), "did you mean surface?"),
    ],
)
def test_unknown_names_are_reported_with_the_nearest_known_one(
    mislabel: Mislabel, arguments: tuple[str, ...], message: str
) -> None:
    said = mislabel("results", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert message in said.err


def test_missing_numbers_are_null(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    """One seed has no interval and a diverged cell has no mean; JSON has no NaN for them."""
    ran(seeds=1, parameters={"trouble": {"values": [0, 2]}})
    done, diverged = mislabel("results", "bowls", "--json").json
    assert (done["runs"], done["loss_low"], done["loss_high"]) == (1, None, None)
    assert (diverged["diverged"], diverged["loss"]) == (1, None)
    shown = [line.split() for line in mislabel("results", "bowls").out.splitlines()]
    assert shown[0] == ["trouble", "seeds", "diverged", "loss"]
    assert shown[2] == ["2", "1", "1", "–"]


def test_a_sweep_without_results_is_refused(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    ran(parameters={"trouble": 1})
    said = mislabel("results", "bowls")
    assert said.code == 2
    assert said.out == ""
    assert "bowls" in said.err


@pytest.mark.long
def test_the_front_of_several_objectives_comes_first(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    both = [{"name": "loss", "goal": "minimize"}, {"name": "height", "goal": "maximize"}]
    ran(metric=both, parameters={"x": {"values": [0, 3]}, "level": {"values": [0, 10]}, "rate": 1.0})
    rows = mislabel("results", "bowls", "--json").json
    assert [(row["x"], row["level"], row["front"]) for row in rows] == [
        (3, 10, True), (0, 10, True), (3, 0, False), (0, 0, False)
    ]  # fmt: skip
    front = [{key: value for key, value in row.items() if key != "front"} for row in rows[:2]]
    assert mislabel("results", "bowls", "--front", "--json").json == front
    lines = [line.split() for line in mislabel("results", "bowls").out.splitlines()]
    assert lines[0] == ["x", "level", "front", "seeds", "loss", "height"]
    assert [line[2] for line in lines[1:]] == ["yes", "yes", "–", "–"]


@pytest.mark.usefixtures("bowls")
def test_the_front_of_one_objective_has_the_best_cells(mislabel: Mislabel) -> None:
    rows = mislabel("results", "bowls", "--json").json
    best = [row for row in rows if row["loss"] == rows[0]["loss"]]
    assert len(best) < len(rows)
    assert mislabel("results", "bowls", "--front", "--json").json == best


@pytest.mark.usefixtures("bowls")
def test_the_front_has_single_cells(mislabel: Mislabel) -> None:
    said = mislabel("results", "bowls", "--front", "--by", "x")
    assert said.code == 2
    assert "--by" in said.err


def test_without_an_objective_there_is_no_front(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    ran(metric=None)
    said = mislabel("results", "bowls", "--front")
    assert said.code == 2
    assert "--front" in said.err


@pytest.mark.usefixtures("bowls")
def test_stopped_cells_come_last_with_their_step(mislabel: Mislabel) -> None:
    sweep = load("results", "bowls")
    cut_short(sweep.files, sweep.read("runs", ["run_id"], {"x": 2})["run_id"].tolist(), 1)
    lines = [line.split() for line in mislabel("results", "bowls").out.splitlines()]
    assert lines[0] == ["x", "surface", "seeds", "stopped", "step", "loss"]
    assert [line[0] for line in lines[1:]] == ["1", "1", "0", "0", "2", "2"]
    assert [line[3:5] for line in lines[4:6]] == [["0", "8"], ["3", "1"]]


def test_the_best_cell_of_each_branch_is_printed(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    surfaces = {"values": ["smooth", "rough"], "grid": True}
    ran(parameters={**PARAMETERS, "surface": surfaces}, seeds=2)
    rows = mislabel("results", "bowls", "--branches", "--json").json
    assert [(row["surface"], row["x"]) for row in rows] == [("rough", 2.0), ("smooth", 2.0)]
    for other in (("--by", "x"), ("--front",)):
        assert mislabel("results", "bowls", "--branches", *other).code == 2


@pytest.mark.usefixtures("bowls")
def test_rows_that_join_cells_show_how_many_cells_and_seeds_they_have(mislabel: Mislabel) -> None:
    lines = [line.split() for line in mislabel("results", "bowls", "--by", "x").out.splitlines()]
    assert lines[0] == ["x", "cells", "seeds", "loss"]
    assert [line[:3] for line in lines[1:]] == [["2", "2", "3"], ["1", "2", "3"], ["0", "2", "3"]]


@pytest.mark.usefixtures("bowls")
def test_a_stopped_cell_is_left_out_of_its_row_and_counted(mislabel: Mislabel) -> None:
    sweep = load("results", "bowls")
    where = {"x": 2, "surface": "rough", "seed": 0}
    cut_short(sweep.files, sweep.read("runs", ["run_id"], where)["run_id"].tolist(), 1)
    rows = {row["x"]: row for row in mislabel("results", "bowls", "--by", "x", "--json").json}
    assert {row["step"] for row in rows.values()} == {8}
    assert (rows[2]["cells"], rows[2]["stopped_cells"], rows[1]["stopped_cells"]) == (1, 1, 0)
    smooth = load("results", "bowls").cells("loss", by="x", where={"x": 2, "surface": "smooth"})
    assert rows[2]["loss"] == pytest.approx(smooth["mean"].item())
    assert "stopped cells" in mislabel("results", "bowls", "--by", "x").out
    at_one = {row["x"]: row for row in mislabel("results", "bowls", "--by", "x", "--at", "1", "--json").json}
    assert (at_one[2]["cells"], at_one[2]["stopped_cells"], at_one[2]["step"]) == (2, 0, 1)
    assert mislabel("results", "bowls", "--at", "soon").code == 2


def test_a_branch_axis_shows_the_best_cell_by_default(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    ran(parameters={**PARAMETERS, "surface": {"values": ["smooth", "rough"], "grid": True}}, seeds=2)
    said = mislabel("results", "bowls", "--by", "surface", "--json")
    assert [(row["surface"], row["x"]) for row in said.json] == [("rough", 2.0), ("smooth", 2.0)]
    assert "--average" in said.err
    pooled = mislabel("results", "bowls", "--by", "surface", "--average", "--json").json
    assert [(row["surface"], row["cells"], "x" in row) for row in pooled] == [("rough", 3, False), ("smooth", 3, False)]
    assert "x" not in mislabel("results", "bowls", "--by", "seed", "--json").json[0]


def test_an_inactive_parameter_is_not_shown(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    ran(parameters={"x": {"values": [0, 1]}, "level": {"values": [3, 5], "when": "x == 1"}}, seeds=1)
    lines = [line.split() for line in mislabel("results", "bowls").out.splitlines()]
    assert sorted(line[:2] for line in lines[1:]) == [["0", "–"], ["1", "3"], ["1", "5"]]
    assert [row["level"] for row in mislabel("results", "bowls", "--json").json if row["x"] == 0] == [None]
