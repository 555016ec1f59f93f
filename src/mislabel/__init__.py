"""Sweeps for research on learning with label noise.

    import mislabel
    sweep = mislabel.load("results", "quickstart")
    sweep.runs                                        # one row per run
    sweep.cells("test_accuracy")                      # mean, std, n, 95 % interval per cell
    sweep.curve("noisy_accuracy", by="noise_rate")    # mean and interval per step
    sweep.best(by="noise_rate")                       # the best cell for each value
    sweep.compare({"width": 10}, {"width": 20})       # paired by seed, with effect sizes and corrected p-values
    sweep.sql("select status, count(*) from runs group by status")    # DuckDB over the same files
    sweep.front()                                     # the Pareto front of several objectives
    sweep.importance("test_accuracy")                 # how much each parameter matters, with an interval
    sweep.study()                                     # the sweep as an Optuna study, one trial per cell
    mislabel.load("results", "a", "b")                # several sweeps: the same methods, with a column `sweep`

The folders `tasks`, `sweeps`, `cluster` and `analysis` at the top of the repository are imported as `mislabel.tasks`,
`mislabel.sweeps` and so on, through the links beside this file. A user's own `tasks.py` or `analysis/` does not get in
the way.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mislabel.analysis.sweep import Sweep, Sweeps, load

    __version__: str

__all__ = ["Sweep", "Sweeps", "load"]


def __getattr__(name: str) -> Any:
    """Import the public names on first use: the command line starts without pandas."""
    if name in __all__:
        from mislabel.analysis import sweep

        return getattr(sweep, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("mislabel")
    raise AttributeError(f"module 'mislabel' has no attribute {name!r}")
