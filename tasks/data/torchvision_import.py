"""Import torchvision even if its compiled operators can't be loaded.

With a CPU build of torch, the torchvision of a package registry has operators for CUDA that don't load. Its import then
fails, because it expects two of them to exist. Its data sets, transforms and models use none of them, so declaring the
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
    """Cached forever, because declarations end with their library object."""
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for schema in _MISSING:
        library.define(schema)  # type: ignore[no-untyped-call]
    return library


def vision(module: str) -> ModuleType:
    """torchvision's module with this name, such as `datasets` or `models.resnet`."""
    try:
        return imported_silently(f"torchvision.{module}")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    _declared()
    return imported_silently(f"torchvision.{module}")


@cache
def imported_silently(name: str) -> ModuleType:
    """The module, imported without the warnings that libraries raise about their own modules."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)
