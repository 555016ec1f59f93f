"""The papers' predictions for what the tasks measure, as functions of the parameters.

Angles are in radians, times in steps. All functions take numbers or arrays. Tasks that measure a distance from theory
have their own formulas; the tests compare the two.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def feature_angle(input_angle: ArrayLike, hidden_layers: int) -> Floats:
    """Angle between two inputs' features after this many ReLU layers of infinite width (Equation 14)."""
    angle = _floats(input_angle)
    for _ in range(hidden_layers):
        angle = np.arccos(np.clip((1 - angle / np.pi) * np.cos(angle) + np.sin(angle) / np.pi, -1, 1))
    return angle


def gradient_angle(input_angle: ArrayLike, hidden_layers: int, activation: str = "relu") -> Floats:
    """Angle θ_h between the derivatives of an infinitely wide network at two inputs (Equation 13).

    Every layer of a linear network preserves the angle of the inputs, so θ_h is that angle.
    """
    angle = _floats(input_angle)
    if activation == "linear":
        return angle
    angles = [feature_angle(angle, layer) for layer in range(hidden_layers + 1)]
    terms = [
        np.cos(angles[layer]) * np.prod([1 - later / np.pi for later in angles[layer:-1]], axis=0)
        for layer in range(hidden_layers + 1)
    ]
    return _floats(np.arccos(np.clip(np.mean(terms, axis=0), -1, 1)))
