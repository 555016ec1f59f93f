"""Run a sweep in this process, one pack after the other, without Ray: for tests, debuggers and small things."""

import traceback
from collections.abc import Callable, Iterator

import torch

from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.lane_stopper import lane_stopper_of
from mislabel.sweeps.run.report import Report
from mislabel.sweeps.run.worker import Worker
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.device.memory import device_name, is_out_of_memory, memory_of

STRETCH_SECONDS = 1.0


def run_inline(driver: Driver, files: SweepFiles, device: torch.device, show: Callable[[], None]) -> None:
    """Run until the driver is over or stopping; `show` is called after every report."""
    while (order := driver.next()) is not None:
        try:
            for report in _reports(order, driver, files, device):
                driver.report(report)
                show()
        except StoreError as error:
            driver.break_off(error)


def _reports(order: PackOrder, driver: Driver, files: SweepFiles, device: torch.device) -> Iterator[Report]:
    """What a worker on Ray would report of this pack, while it trains."""
    try:
        watch = lane_stopper_of(driver.plan.spec, driver.stopper)
        worker = Worker(order, files, device, driver.means.names, watch)
        while True:
            report = worker.work(STRETCH_SECONDS)
            yield report
            if report.finished or report.parked:
                return
            if driver.stopping:
                worker.save()
                yield Report(order.id, halted=True)
                return
    except StoreError:
        raise
    except Exception as error:
        yield failure(order, error, device)


def failure(order: PackOrder, error: Exception, device: torch.device, share: float = 1.0) -> Report:
    """What is reported of a pack that raised; `share` is the part of the device that it had."""
    if not is_out_of_memory(error):
        return Report(order.id, error=reason(error))
    runs = "one run of this shape" if len(order) == 1 else f"a pack of {len(order)} runs"
    share = min(share, 1.0) if device.type == "cuda" else 1.0
    has = f"the {share * memory_of(device) / 2**30:.1f} GiB of {device_name(device)}"
    return Report(order.id, error=f"out of memory: {runs} needs more than {has}\n{reason(error)}", out_of_memory=True)


def reason(error: BaseException) -> str:
    """The error in a line, then where it was raised; as text that can be stored whatever the error says."""
    text = f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error))}"
    return text.encode("utf-8", "replace").decode()
