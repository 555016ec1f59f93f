"""Run a sweep in this process, one pack after the other, without Ray: for tests, debuggers and small things."""

import traceback
from collections.abc import Callable

import torch

from sweeps.errors import StoreError
from sweeps.feed import Feed
from sweeps.store import SweepFiles
from sweeps.worker import Report, Worker

STRETCH_SECONDS = 1.0


def run_inline(feed: Feed, files: SweepFiles, device: torch.device, show: Callable[[], None]) -> None:
    while (order := feed.next()) is not None:
        try:
            worker = Worker(order, files, device, feed.means.names)
            while not worker.finished:
                feed.report(worker.work(STRETCH_SECONDS))
                show()
                if feed.stopping and not worker.finished:
                    worker.save()
                    feed.report(Report(order.id, halted=True))
                    break
        except StoreError as error:
            feed.break_off(error)
        except Exception as error:
            feed.report(Report(order.id, error=reason(error)))
            show()


def reason(error: BaseException) -> str:
    """The error in a line, then where it was raised."""
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error))}"
