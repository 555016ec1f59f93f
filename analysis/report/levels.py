"""The values of a parameter as a few levels, for the lines of a figure."""

import itertools
from typing import Any

import numpy as np
import pandas as pd

from mislabel.sweeps.formatting import value_text

MISSING = "–"


def levels_of(values: "pd.Series[Any]", most: int) -> "pd.Series[Any]":
    """The values as ordered categories of texts. More numbers than `most` are divided into quarters of equal size.

    Cells in which the parameter is inactive have the level "–".
    """
    known = values.dropna()
    distinct = sorted(known.unique(), key=lambda value: (isinstance(value, str), value))
    numeric = not any(isinstance(value, str | bool | np.bool_) for value in distinct)
    if len(distinct) <= most or not numeric:
        names = [value_text(value) for value in distinct]
        texts = known.map(dict(zip(distinct, names, strict=True)))
    else:
        numbers = known.astype(float)
        edges = np.unique(np.quantile(numbers, [0, 0.25, 0.5, 0.75, 1]))
        names = [f"{value_text(float(a))} … {value_text(float(b))}" for a, b in itertools.pairwise(edges)]
        parts = np.clip(np.searchsorted(edges, numbers, side="right") - 1, 0, len(names) - 1)
        texts = pd.Series([names[part] for part in parts], known.index)
    categories = [*dict.fromkeys(names), *([MISSING] if len(known) < len(values) else [])]
    return texts.reindex(values.index).fillna(MISSING).astype(pd.CategoricalDtype(categories, ordered=True))
