from collections.abc import Callable

from mislabel.sweeps.store.store import Store
from tests.bowls import prepared
from tests.sweeps.commands.conftest import Mislabel, Said


def test_an_empty_store_has_no_sweeps(mislabel: Mislabel) -> None:
    said = mislabel("list")
    assert said.code == 0
    assert said.out == ""
    assert "results" in said.err
    assert mislabel("list", "--json").json == []


def test_sweeps_are_listed_with_their_progress(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    ran()
    ran(name="other", seeds=1)
    Store("results").sweep("new").write_text("spec.yaml", "name: new\ntask: bowl\n")
    said = mislabel("list")
    assert said.code == 0
    assert [line.split()[:4] for line in said.out.splitlines()[1:]] == [
        ["bowls", "done", "6", "6"],
        ["new", "not", "started", "0"],
        ["other", "done", "3", "3"],
    ]
    rows = mislabel("list", "--json").json
    assert [(row["name"], row["state"], row["done"], row["runs"]) for row in rows] == [
        ("bowls", "done", 6, 6), ("new", "not started", None, None), ("other", "done", 3, 3)
    ]  # fmt: skip


def test_a_sweep_whose_driver_is_gone_has_died(mislabel: Mislabel) -> None:
    launch = prepared(Store("results"))
    assert mislabel("list", "--json").json[0]["state"] == "running"
    launch.lease.release()
    assert mislabel("list", "--json").json[0]["state"] == "died"
