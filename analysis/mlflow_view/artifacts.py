"""The files of a sweep's parent run: its report and figures, and an order of its parameters by importance.

A process of their own makes them while the nested runs are written: that takes seconds, most of them to load libraries.

    python -m mislabel.analysis.mlflow_view.artifacts STORE NAME FOLDER
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mislabel.analysis.statistics.tables import SweepTables
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import Store, SweepFiles

_IMPORTANCE = ".importance.json"
_POLL_SECONDS = 0.2


class Artifacts:
    """The process that makes the files, and their folder."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self._process = process
        self.folder = folder

    def are_made(self, cancelled: Callable[[], bool]) -> bool:
        """Wait for the process; whether it has made the files."""
        while not cancelled():
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(_POLL_SECONDS) == 0
        return False

    def important(self) -> list[str]:
        """The varying parameters, the most important first, and remove the file that contains them."""
        file = self.folder / _IMPORTANCE
        names: list[str] = json.loads(file.read_text())
        file.unlink()
        return names


@contextmanager
def making(files: SweepFiles) -> Iterator[Artifacts]:
    """Start to make the files. They are removed at the end."""
    with tempfile.TemporaryDirectory(prefix="mislabel-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, files.store, files.name, folder],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield Artifacts(process, Path(folder))
        finally:
            process.kill()
            process.wait()


def make(sweep: SweepTables, folder: Path) -> None:
    """Write the report, the figures and the importances. What the sweep has too few results for is left out."""
    from mislabel.analysis.report.figures import curve_figure, save
    from mislabel.analysis.report.heat_maps import branch_figure
    from mislabel.analysis.report.report import Report
    from mislabel.analysis.studies.importance import importance_of

    figures = folder / "figures"
    figures.mkdir()
    (folder / "report.html").write_text(Report(sweep).html())
    with suppress(MislabelError):
        save(curve_figure(sweep), figures / "curves.png")
    with suppress(MislabelError):
        save(branch_figure(sweep), figures / "branches.png")
    important: list[str] = []
    with suppress(MislabelError):
        if sweep.spec.metric:
            found = importance_of(sweep, sweep.spec.metric[0].name, goal=sweep.spec.metric[0].goal)
            # Zipped parameters change together and have one row.
            important = [name for names in found["parameter"] for name in names.split(", ")]
    (folder / _IMPORTANCE).write_text(json.dumps(important))


if __name__ == "__main__":
    store, name, folder = sys.argv[1:]
    make(SweepTables(Store(store).existing(name)), Path(folder))
