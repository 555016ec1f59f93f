"""Run a sweep in this process, one pack after the other, without Ray: for tests, debuggers and small sweeps."""

from collections.abc import Callable

import torch

from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.lane_stopper import lane_stopper_of
from mislabel.sweeps.run.worker import reports
from mislabel.sweeps.store.store import SweepFiles


def run_inline(driver: Driver, files: SweepFiles, device: torch.device, show: Callable[[], None]) -> None:
    """Run until the driver is over or stopping; `show` is called after every report."""
    lane_stopper = lane_stopper_of(driver.plan.spec, driver.stopper)
    while (order := driver.next()) is not None:
        for report in reports(order, files, device, driver.means.names, lane_stopper, lambda: driver.stopping):
            driver.report(report)
            show()
