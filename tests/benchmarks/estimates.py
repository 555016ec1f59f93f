"""The expected time of `plan` and the time that `run` takes, both as commands in a new process and a new store."""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.figure import Figure

_README = Path(__file__).parents[2] / "README.md"
# The longer of the two times over the shorter one.
_BOUND = 1.5
_SWEEPS: tuple[tuple[str, ...], ...] = (
    ("noise.yaml", "--inline"),
    ("search.yaml", "--inline"),
    ("noise.yaml",),
    ("quickstart",),
    ("misclassification/search", "--quick"),
)


def expecting_the_time_of_a_sweep() -> Iterator[Figure]:
    """A race may give contenders more seeds: then the plan gives a range, and the nearest time in it counts."""
    with tempfile.TemporaryDirectory() as folder:
        for file, text in re.findall(r"```yaml\n# (\S+)\n(.*?)```", _README.read_text(), re.DOTALL):
            Path(folder, file).write_text(text)
        for number, sweep in enumerate(_SWEEPS):
            yield from _figures(sweep, folder, f"store{number}", "")
        # The store now has a launch of this kind.
        yield from _figures(("noise.yaml", "--inline", "--set", "parameters.spread=0.5", "--set", "name=again"), folder,
                            "store0", ", after another launch")  # fmt: skip


def _figures(sweep: tuple[str, ...], folder: str, store: str, when: str) -> Iterator[Figure]:
    planned = json.loads(_output("plan", sweep, folder, "--store", store, "--json"))
    began = time.monotonic()
    _output("run", sweep, folder, "--store", store)
    seconds = time.monotonic() - began
    least, most = planned["expected_seconds"], planned["expected_seconds_at_most"]
    nearest = min(max(seconds, least), most)
    name = " ".join(word for word in sweep[:2] if word != "--set") + when
    yield Figure(f"{name}: time", seconds, "s")
    yield Figure(f"{name}: expected time", nearest, "s")
    yield Figure(f"{name}: longer over shorter", max(seconds / nearest, nearest / seconds), "×", _BOUND)


def _output(command: str, sweep: tuple[str, ...], folder: str, *more: str) -> str:
    line = [sys.executable, "-P", "-m", "mislabel.sweeps.commands.main", command, *sweep, *more]
    return subprocess.run(line, cwd=folder, check=True, text=True, stdout=subprocess.PIPE).stdout


MEASURES = (expecting_the_time_of_a_sweep,)
