"""The process beside a running sweep that keeps its MLflow view up to date; `view.following` starts it.

It syncs every few seconds until it is told that the sweep has ended, then once more, and leaves with 0 where that last
sync went well. It says on stdout what is wrong, once. It ends where the sweep's own process is no more.
"""

import os
import sys
import threading

from mislabel.analysis.mlflow_view.view import View
from mislabel.sweeps.store.store import Store


def follow(view: View, every_seconds: float) -> bool:
    """Returns whether MLflow shows everything."""
    over, alone = threading.Event(), threading.Event()

    def listen() -> None:
        if sys.stdin.readline():
            over.set()
            sys.stdin.readline()
        # The pipe has no more to say: the sweep's process is gone, or has lost patience.
        alone.set()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    complained = False
    while True:
        final = over.wait(every_seconds)
        if alone.is_set():
            return False
        try:
            view.sync(final, cancelled=alone.is_set)
        except Exception as error:  # whatever it is, a view is not worth a sweep
            if not complained:
                print(f"{error}; the sweep goes on, its results are in {view.files.address}", flush=True)  # noqa: T201
                complained = True
            if final:
                return False
        else:
            if final:
                return True


if __name__ == "__main__":
    os.nice(10)  # training goes first
    store, name, every_seconds = sys.argv[1:]
    view = View(Store(store).sweep(name), os.environ["MLFLOW_TRACKING_URI"])
    sys.exit(0 if follow(view, float(every_seconds)) else 1)
