"""Tune's searcher and scheduler: they pass packs and reports between Tune and the driver."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from mislabel.cluster.process import oom_kills
from mislabel.cluster.ray_private import release_idle_actors
from mislabel.cluster.tune.capacity import PATIENCE_SECONDS, PackLimit
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.sweep_log import DETAILS

_log = logging.getLogger(__name__)
_details = logging.getLogger(DETAILS)

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


class WorkerDeaths(tune.Callback):
    """Reports each death of a worker in one line. The sweep's log also gets what Ray knows about it."""

    def __init__(self, count: Callable[[], int] = oom_kills) -> None:
        """`count` says how many processes of this machine were killed because memory ran out."""
        self._count = count
        self._oom_kills = count()

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        error = self._error(trial)
        pack, cause = _pack_of(trial), self.cause(error)
        _log.warning(
            "pack %s: its worker died (%s); restarting it, %d of %d", pack, cause, trial.num_failures, RESTARTS
        )
        _details.info("pack %s: %s", pack, error)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        _details.info("pack %s: %s", _pack_of(trial), self._error(trial))

    def _error(self, trial: Any) -> Exception:
        return trial.get_pickled_error() or trial.get_error() or RuntimeError("unknown")

    def cause(self, error: Exception) -> str:
        """Why the worker died, as far as Ray or the system knows."""
        before, self._oom_kills = self._oom_kills, self._count()
        text = str(error)
        if isinstance(error, ray.exceptions.RayTaskError):
            return text.strip().splitlines()[-1]
        if isinstance(error, ray.exceptions.OutOfMemoryError) or "running low on memory" in text:
            return "out of memory: killed by Ray"
        if "its node has died" in text:
            return "its machine was lost"
        if self._oom_kills > before and f"ip: {ray.util.get_node_ip_address()}" in text:
            return "out of memory: killed by the system"
        return "killed or crashed"


def _pack_of(trial: Any) -> str:
    return PackOrder(**trial.config["order"]).id


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
