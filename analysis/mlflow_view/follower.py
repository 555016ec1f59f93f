"""The process that keeps the MLflow view of a running sweep up to date; `view.following` starts it.

It syncs every few seconds until it reads on stdin that the sweep has ended, then once more. It exits with 0 if that
last sync succeeded. It prints the first error to stdout. It also ends when the sweep's process does, and when MLflow
can't use its database.
"""

import gc
import os
import sys
import threading
import time

from mislabel.analysis.mlflow_view.database import DamagedDatabaseError
from mislabel.analysis.mlflow_view.view import DAMAGED, View
from mislabel.sweeps.redaction import redacted
from mislabel.sweeps.store.store import Store


def follow(view: View, every_seconds: float) -> int:
    """Sync until the sweep ends; returns the exit code."""
    over, alone = threading.Event(), threading.Event()

    def listen() -> None:
        if sys.stdin.readline():
            over.set()
            sys.stdin.readline()
        # The pipe is closed: the sweep's process has ended, or no longer waits.
        alone.set()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    complained = False
    pause = every_seconds
    while True:
        final = over.wait(pause)
        began = time.monotonic()
        if alone.is_set():
            return 1
        try:
            view.sync(final, cancelled=alone.is_set, report=final)
        except Exception as error:  # no failure of the view may end the sweep
            if not complained:
                text = f"{error}; the sweep continues, its results are in {view.files.address}"
                print(redacted(text), flush=True)  # noqa: T201
                complained = True
            if isinstance(error, DamagedDatabaseError):
                return DAMAGED
            if final:
                return 1
        else:
            if final:
                return 0
        # A large sweep takes long to read, and must leave time for training.
        pause = max(every_seconds, time.monotonic() - began)


if __name__ == "__main__":
    os.nice(10)  # training has priority
    gc.freeze()  # modules need no garbage collection
    store, name, every_seconds = sys.argv[1:]
    view = View(Store(store).sweep(name), os.environ["MLFLOW_TRACKING_URI"])
    sys.exit(follow(view, float(every_seconds)))
