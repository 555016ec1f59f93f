"""What every run's training has, whatever is trained: its length, when it is measured, its precision."""

from dataclasses import dataclass

import numpy as np

from mislabel.tasks.parameters import shape


@dataclass(frozen=True, kw_only=True)
class Training:
    """Parameters that all tasks share; a task's Params derive from it and may give other defaults."""

    steps: int = shape(1000, at_least=1, help="training steps")
    frames: int = shape(50, at_least=2, help="how often metrics are measured, first and last step included")
    spacing: str = shape("log", choices=("linear", "log"), help="how the measured steps are spaced")
    snapshots: int = shape(0, at_least=0, help="how many of the frames also keep arrays (per-neuron values)")
    precision: str = shape("float32", choices=("float32", "float64"), help="floating point type of training")


def measured_steps(training: Training) -> list[int]:
    """The steps at which metrics are measured: from 0 to the last, no step twice."""
    if training.spacing == "linear":
        at = np.linspace(0, training.steps, training.frames)
    else:
        at = np.concatenate([[0], np.geomspace(1, training.steps, training.frames - 1)])
        at[-1] = training.steps
    return [int(step) for step in np.unique(np.rint(at))]


def snapshot_steps(training: Training) -> set[int]:
    """The measured steps at which arrays are kept: spread evenly over the frames, the last one always among them."""
    at = measured_steps(training)
    if training.snapshots == 1:
        return {at[-1]}
    chosen = np.rint(np.linspace(0, len(at) - 1, min(training.snapshots, len(at)))).astype(int)
    return {at[i] for i in chosen}
