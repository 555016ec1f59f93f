"""Tune's searcher and scheduler: they pass packs and reports between Tune and the driver."""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from mislabel.cluster.ray_private import release_idle_actors
from mislabel.cluster.tune.capacity import PATIENCE_SECONDS, PackLimit
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.driver import Driver

# How often a pack whose worker or machine was lost is restarted.
RESTARTS = 5


class PackSearcher(Searcher):
    """Gives Tune the driver's packs as trials, and the driver the reports of the trials."""

    def __init__(self, driver: Driver, pack_limit: PackLimit, config: dict[str, Any], show: Callable[[], None]) -> None:
        super().__init__()
        self._driver = driver
        self._pack_limit = pack_limit
        self._config = {**config, "halt_key": pack_limit.key}
        self._show = show
        self._packs: dict[str, PackOrder] = {}
        self._dry = False
        self._idle_since: float | None = None

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self._idle_since is None else time.monotonic() - self._idle_since

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._driver.stopping:
            self._pack_limit.halt()
        most = self._pack_limit.packs(len(self._packs), self._dry)
        self._pack_limit.enforce([order.id for order in self._packs.values()], most)
        order = self._driver.next() if len(self._packs) < most else None
        if order is None:
            self._dry = len(self._packs) < most
            self._idle_since = self._idle_since or time.monotonic()
            return Searcher.FINISHED if self._driver.over else None
        self._dry, self._idle_since = False, None
        self._packs[trial_id] = order
        return {"order": asdict(order), **self._config}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self._driver.report(result["report"])
        self._show()
        if self._driver.stopping:
            self._pack_limit.halt()

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        order = self._packs.pop(trial_id)
        if error:
            self._driver.lost(order.id, f"its worker died {RESTARTS + 1} times")
        elif result is not None:
            self.on_trial_result(trial_id, result)

    # Tune pickles and saves the searcher for a restore that never happens: the store has everything.

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def save(self, checkpoint_path: str) -> None:
        pass

    def restore(self, checkpoint_path: str) -> None:
        pass


class PackScheduler(FIFOScheduler):
    """Runs packs in order, and releases the actors that Tune keeps once no pack has come for a while."""

    def __init__(self, searcher: PackSearcher) -> None:
        super().__init__()
        self._searcher = searcher

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        if self._searcher.idle_seconds > PATIENCE_SECONDS:
            release_idle_actors(tune_controller)
        return super().choose_trial_to_run(tune_controller)

    def __getstate__(self) -> dict[str, Any]:
        return {}
