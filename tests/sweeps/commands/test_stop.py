from collections.abc import Callable

import pytest

from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.store.outcome import ASKED
from mislabel.sweeps.store.store import Store
from tests.bowls import prepared, run, runs_of
from tests.sweeps.commands.conftest import Mislabel, Said


def test_a_running_sweep_checkpoints_and_its_driver_finishes(
    mislabel: Mislabel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Normally the command runs in another process than the driver; here it runs between two of the driver's steps."""
    # The first stretch ends before the pack does.
    monkeypatch.setattr("mislabel.sweeps.run.worker.STRETCH_SECONDS", 0.0)
    store = Store("results")

    def stop(launch: Launch) -> None:
        if launch.files.read_text("stop") is None:
            said = mislabel("stop", "bowls")
            assert said.code == 0
            assert said.err.startswith("bowls: ")
        launch.heartbeat._last = 0.0  # it checks for the request every two seconds
        launch.heartbeat.beat()

    launch = run(store, stop)
    assert launch.driver.stop_reason == ASKED
    assert list(launch.files.checkpoints())
    status = mislabel("status", "bowls", "--json").json
    assert (status["state"], status["stopped_because"]) == ("stopped", ASKED.text)
    again = run(store)
    assert again.driver.stop_reason is None
    assert set(runs_of(again.files)["status"]) == {"done"}


def test_only_a_running_sweep_can_be_stopped(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    ran()
    assert mislabel("stop", "bowls").code == 2
    assert "did you mean bowls?" in mislabel("stop", "bowl").err
    assert Store("results").sweep("bowls").read_text("stop") is None


def test_a_driver_that_died_is_not_running(mislabel: Mislabel) -> None:
    prepared(Store("results")).lease.release()
    assert mislabel("stop", "bowls").code == 2
