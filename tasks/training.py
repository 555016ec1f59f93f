"""The parameters that all tasks share: length of training, when it is measured, precision."""

from dataclasses import dataclass

import numpy as np

from mislabel.tasks.parameters import shape


@dataclass(frozen=True, kw_only=True)
class Training:
    """Parameters that all tasks share. A task's Params derive from it and may set other defaults."""

    steps: int = shape(1000, at_least=1, help="training steps")
    frames: int = shape(50, at_least=2, help="how many times metrics are measured, including step 0 and the last step")
    spacing: str = shape("log", choices=("linear", "log"), help="spacing of the measured steps")
    snapshots: int = shape(0, at_least=0, help="at how many of these times arrays (per neuron, …) are stored too")
    precision: str = shape("float32", choices=("float32", "float64"), help="floating-point type of all computations")


def measured_steps(training: Training) -> list[int]:
    """The steps at which metrics are measured, from 0 to the last; each step occurs once."""
    if training.spacing == "linear":
        at = np.linspace(0, training.steps, training.frames)
    else:
        at = np.concatenate([[0], np.geomspace(1, training.steps, training.frames - 1)])
        at[-1] = training.steps
    return [int(step) for step in np.unique(np.rint(at))]


def snapshot_steps(training: Training) -> set[int]:
    """The measured steps at which arrays are stored: spread evenly over the frames, always including the last."""
    at = measured_steps(training)
    if training.snapshots == 1:
        return {at[-1]}
    chosen = np.rint(np.linspace(0, len(at) - 1, min(training.snapshots, len(at)))).astype(int)
    return {at[i] for i in chosen}
