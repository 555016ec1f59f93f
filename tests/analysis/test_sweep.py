from pathlib import Path

import pytest

import mislabel
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.formatting import with_interval
from mislabel.sweeps.store.store import Store
from tests.bowls import cut_short, run


def test_a_sweep_is_loaded_by_its_name(store: Store, tmp_path: Path) -> None:
    run(store)
    assert repr(mislabel.load(store.address, "bowls")).startswith("Sweep('bowls', task bowl, 6 runs in ")
    with pytest.raises(MislabelError, match=r"\bbowls\?"):
        mislabel.load(store.address, "bowl")
    with pytest.raises(MislabelError, match=str(tmp_path / "empty")):
        mislabel.load(str(tmp_path / "empty"), "bowls")


def test_importances_use_all_cells_at_the_step_of_the_first_stop(store: Store) -> None:
    parameters = {"x": {"values": [0, 1, 2, 3, 4, 5]}, "frames": 9, "spacing": "linear"}
    run(store, parameters=parameters, resources={"pack": 20})
    sweep = mislabel.load(store.address, "bowls")
    cut_short(sweep.files, sweep.read("runs", ["run_id"], {"x": 0})["run_id"].tolist(), 5)
    stopped = mislabel.load(store.address, "bowls")
    table = stopped.importance(method="ped_anova")
    assert table.attrs["step"] == 5
    assert table.attrs["cells"] == {"loss": 6}
    assert stopped.importance(method="ped_anova", step=8).attrs["cells"] == {"loss": 5}
    assert table["importance"].sum() == pytest.approx(1)


@pytest.fixture
def two(store: Store) -> Store:
    run(store, parameters={"x": {"values": [0, 1]}}, seeds=3)
    run(store, name="others", parameters={"x": {"values": [1, 3]}, "surface": {"values": ["smooth", "rough"]}}, seeds=2)
    return store


def test_several_sweeps_are_loaded_as_one_with_the_same_methods(two: Store) -> None:
    both = mislabel.load(two.address, "bowls", "others")
    assert isinstance(both, mislabel.Sweeps)
    assert both.runs["sweep"].value_counts().to_dict() == {"others": 8, "bowls": 6}
    assert len(both.curves) == len(both["bowls"].curves) + len(both["others"].curves)
    assert both["bowls"].runs.columns[0] == "run_id"
    cells = both.cells("loss")
    assert (
        cells[["sweep", "x"]].to_numpy().tolist()
        == [["bowls", 0], ["bowls", 1]] + [["others", 1]] * 2 + [["others", 3]] * 2
    )
    assert cells["surface"].isna().tolist() == [True] * 2 + [False] * 4
    assert both.best()[["sweep", "x"]].to_numpy().tolist() == [["bowls", 1], ["others", 3]]
    assert both.cells("loss", by="x", at=1)["step"].tolist() == [1, 1, 1, 1]
    assert set(both.curve("loss", by="x")["sweep"]) == {"bowls", "others"}
    assert both.compare("bowls", "others")["x"].tolist() == [1]
    with pytest.raises(MislabelError, match=r"\bothers\?"):
        both.compare("bowls", "other")


def test_tables_can_be_pasted_into_papers(two: Store) -> None:
    sweep = mislabel.load(two.address, "others")
    best = sweep.best().iloc[0]
    text = with_interval(best["loss"], best["loss_high"])
    markdown = sweep.to_markdown()
    assert markdown.splitlines()[0] == "| x | surface | seeds | loss |"
    assert markdown.count("**") == 2 * markdown.count(f"**{text}**") > 0
    latex = sweep.to_latex(by="x")
    assert latex.startswith("\\begin{tabular}{rrrr}\n\\toprule\nx & cells & seeds & loss \\\\")
    assert latex.count("\\textbf") == 1
    both = mislabel.load(two.address, "bowls", "others")
    assert isinstance(both, mislabel.Sweeps)
    assert "| sweep |" in both.to_markdown()
    assert "toprule" in both.to_latex()


def test_a_notebook_shows_the_first_cells(two: Store) -> None:
    html = mislabel.load(two.address, "others")._repr_html_()
    assert "<b>others</b>: task bowl, 8 runs" in html
    assert html.count("<tr>") == 1 + 4
    assert "more cell" not in html
    store = Store(two.address)
    run(store, name="many", parameters={"x": {"values": [i / 4 for i in range(12)]}}, seeds=1, resources={"pack": 12})
    assert "… and 2 more cells" in mislabel.load(two.address, "many")._repr_html_()
    store.sweep("none").write_text("spec.yaml", "name: none\ntask: bowl\n")
    assert "0 runs" in mislabel.load(two.address, "none")._repr_html_()
