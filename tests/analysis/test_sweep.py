from pathlib import Path

import pytest

import mislabel
from mislabel.sweeps.errors import MislabelError
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
