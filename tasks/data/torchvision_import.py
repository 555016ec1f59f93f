"""torchvision, also where its compiled operators can't be loaded.

Beside a CPU build of torch, the torchvision of a package registry has operators for CUDA that don't load, and its
import then fails on two that it takes for granted. Its data sets, transforms and models use none of them: declaring the
two is enough.
"""

import importlib
import sys
import warnings
from functools import cache
from types import ModuleType

import torch

_MISSING = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


@cache
def _declared() -> torch.library.Library:
    """Kept for good: what a library declares goes with it."""
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for schema in _MISSING:
        library.define(schema)  # type: ignore[no-untyped-call]
    return library


def vision(module: str) -> ModuleType:
    """torchvision's module of that name, such as `datasets` or `models.resnet`."""
    try:
        return _imported(module)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    _declared()
    return _imported(module)


def _imported(module: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"torchvision.{module}")
