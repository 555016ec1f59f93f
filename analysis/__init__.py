"""Read sweeps into pandas.

import analysis
sweep = analysis.load("results", "quickstart")
sweep.runs                                        # one row per run
sweep.cells("test_accuracy")                      # mean, std, n, 95 % interval per cell
sweep.curve("noisy_accuracy", by="noise_rate")    # mean and interval per step
sweep.front()                                     # cells on the Pareto front of several objectives
sweep.importance("test_accuracy")                 # how much each parameter matters, with an interval
sweep.study()                                     # the sweep as an Optuna study, a trial per cell
"""

from analysis.sweep import Sweep, load

__all__ = ["Sweep", "load"]
