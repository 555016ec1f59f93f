"""The cost of refining labels: a step of SANE over a step of MoCo with vanilla mixup, and the share of augmentation."""

import time
from collections.abc import Callable, Iterator

import torch

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.self_labeling.batches import Batches
from mislabel.tasks.self_labeling.sane import Params, task
from tests.benchmarks.data import is_fetched
from tests.benchmarks.figure import Figure

_ROUNDS = 8


def sane_against_vanilla_mixup() -> Iterator[Figure]:
    """The fastest step on one thread, with the same networks and batch and the paper's dictionary."""
    torch.set_num_threads(1)
    settings = _settings()
    variants = {"SANE": {}, "MoCo with vanilla mixup": {"refinery": "none", "mixup": "vanilla"}}
    steps = {name: _step(task.settings({**settings, **more})) for name, more in variants.items()}
    seconds = _fastest(steps)
    for name, value in seconds.items():
        yield Figure(f"a step of {name}", 1e3 * value, "ms")
    yield Figure(
        "a step of SANE over one with vanilla mixup", seconds["SANE"] / seconds["MoCo with vanilla mixup"], "×", 1.10
    )


def share_of_augmentation() -> Iterator[Figure]:
    """The share of a step that creates the views: two weak ones, and a strong one if mixup uses it."""
    torch.set_num_threads(1)
    for kind, bound in (("same", 0.5), ("strong", 0.5)):
        params = task.settings({**_settings(), "mixup_views": kind})
        seconds = _fastest({"views": _views(params), "step": _step(params)})
        name = "with strong views" if kind == "strong" else "with weak views"
        yield Figure(f"augmentation's share of a step, {name}", seconds["views"] / seconds["step"], "", bound)


def _settings() -> dict[str, str | int]:
    usual: dict[str, str | int] = {"network": "resnet20", "batch": 64, "dictionary": 4096, "view_size": 32}
    if not is_fetched("cifar10", instead="measured with enlarged digits instead"):
        return usual
    return usual | {"data": "cifar10", "samples": 1000, "test_samples": 100}


def _step(params: Params) -> Callable[[], object]:
    lanes = Lanes([params], [0])
    state = task.init(lanes)
    return lambda: task.advance(lanes, state, 0, 1)


def _views(params: Params) -> Callable[[], object]:
    lanes = Lanes([params], [0])
    batches = Batches(lanes)

    def made() -> None:
        x = batches.images(batches.at(0))
        for name in ("query", "positive"):
            batches.views.weak(lanes, name, x, 0)
        if params.mixup_views == "strong":
            batches.views.strong(lanes, "strong", x, 0)

    return made


@torch.no_grad()
def _fastest(work: dict[str, Callable[[], object]]) -> dict[str, float]:
    """They take turns, so that other processes on the machine disturb all equally."""
    fastest = dict.fromkeys(work, float("inf"))
    for _ in range(_ROUNDS):
        for name, each in work.items():
            began = time.perf_counter()
            each()
            fastest[name] = min(fastest[name], time.perf_counter() - began)
    return fastest


MEASURES = (sane_against_vanilla_mixup, share_of_augmentation)
