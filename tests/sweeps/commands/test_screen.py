import pytest

from mislabel.sweeps.commands.screen import columns, pairs, progress_line, progress_text
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.store import Store
from tests.bowls import prepared
from tests.sweeps.run.test_driver import finished, next_order


def test_columns_are_aligned_with_numbers_to_the_right() -> None:
    assert columns([("a", 1), ("longer", 1234)], ("name", "n")).splitlines() == [
        "name       n",
        "a          1",
        "longer  1234",
    ]
    assert columns([], ("name", "n")) == "name  n"


def test_values_of_pairs_are_aligned_to_the_left_although_all_are_numbers() -> None:
    assert pairs([("cells", "4"), ("in store", "12")]).splitlines() == ["cells     4", "in store  12"]


def test_progress_is_one_line(store: Store) -> None:
    launch = prepared(store)
    assert progress_text(launch.driver) == "0/6 runs"
    order = next_order(launch.driver)
    assert progress_text(launch.driver) == "0/6 runs · 4 running"
    launch.driver.report(finished(order, 0.5))
    shown = progress_text(launch.driver)
    assert shown.startswith("4/6 runs · ")
    assert "best loss 0.5" in shown
    launch.driver.stop(INTERRUPTED)
    assert progress_text(launch.driver).split(" · ")[-1].startswith("stopping")


def test_without_a_terminal_a_line_is_written_every_few_seconds(
    store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mislabel.sweeps.commands.screen._LINE_SECONDS", 600.0)
    launch = prepared(store)
    capfd.readouterr()
    with progress_line(launch.driver) as show:
        show()
        assert capfd.readouterr() == ("", "")
        monkeypatch.setattr("mislabel.sweeps.commands.screen._LINE_SECONDS", 0.0)
        show()
        assert capfd.readouterr() == ("", "0/6 runs\n")
