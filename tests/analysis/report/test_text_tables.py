import math

import pandas as pd
import pytest

from mislabel.analysis.report.text_tables import best_rows, text_rows, to_html, to_latex, to_markdown

GOALS = {"loss_of_a": "minimize"}


def cells(**changes: object) -> pd.DataFrame:
    table = {
        "x": [1, 2, 3], "name": ["a|b", "c_d", "<e>"], "cell_id": [*"abc"], "runs": 3, "diverged": 0, "stopped": 0,
        "step": 8, "loss_of_a": [2.0, 1.0, math.nan], "loss_of_a_std": 0.1, "loss_of_a_low": 0.0,
        "loss_of_a_high": [2.5, 1.25, math.nan],
    }  # fmt: skip
    return pd.DataFrame({**table, **changes})


def test_the_best_mean_is_bold() -> None:
    assert to_markdown(cells(), GOALS).splitlines() == [
        "| x | name | seeds | loss_of_a |",
        "| ---: | --- | ---: | ---: |",
        "| 1 | a\\|b | 3 | 2 ± 0.5 |",
        "| 2 | c_d | 3 | **1 ± 0.25** |",
        "| 3 | <e> | 3 | – |",
    ]
    assert r"2 & c\_d & 3 & \textbf{1 $\pm$ 0.25} \\" in to_latex(cells(), GOALS)
    assert '<td style="text-align: left">&lt;e&gt;</td>' in to_html(cells(), GOALS)
    assert "**" not in to_markdown(cells(), {})


def test_a_stopped_cell_is_not_the_best() -> None:
    table = cells(stopped=[0, 3, 0])
    assert best_rows(table, "loss_of_a", "minimize").tolist() == [True, False, False]
    header, _ = text_rows(table)
    assert header == ["x", "name", "seeds", "stopped", "step", "loss_of_a"]


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_without_values_no_row_is_the_best(goal: str) -> None:
    assert not best_rows(cells(loss_of_a=math.nan), "loss_of_a", goal).any()
