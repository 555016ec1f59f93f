"""Training on images: the speedup of packs, the time per step of the papers' networks, and the overhead of measuring.

Times are CPU times of one thread, so that other processes on the machine disturb them less.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mislabel.tasks.data.images import images
from mislabel.tasks.device import allocator
from mislabel.tasks.images import image_training
from mislabel.tasks.images.build_network import NetworkParams, build
from mislabel.tasks.images.image_training import ImageTraining
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Pack
from mislabel.tasks.registry import find_task
from tests.benchmarks.data import is_fetched
from tests.benchmarks.figure import Figure

_LANES = 16
_STEPS = 4
_ROUNDS = 8


@dataclass(frozen=True, kw_only=True)
class Params(ImageTraining, NetworkParams):
    pass


def fully_connected_in_packs() -> Iterator[Figure]:
    """Two hidden layers on MNIST's 7 and 9, batches of 256: a pack of 16 lanes, one lane, and plain torch."""
    torch.set_num_threads(1)
    if not is_fetched("mnist"):
        return
    for width, bound in ((64, 2.0), (512, 1.0)):
        settings = {"data": "mnist", "classes": "7, 9", "batch": 256, "network": "fc", "width": width}
        steps = _LANES * _STEPS
        alone, packed, plain = _fastest(
            _training(settings, 1, steps), _training(settings, _LANES, _STEPS), _plain_training(width, 256, steps)
        )
        name = f"2 hidden layers of {width}"
        yield Figure(f"{name}, alone", 1e3 * alone / steps, "ms per run-step")
        yield Figure(f"{name}, {_LANES} lanes", 1e3 * packed / steps, "ms per run-step")
        yield Figure(f"{name}, plain torch", 1e3 * plain / steps, "ms per run-step")
        yield Figure(f"{name}, faster when packed by", alone / packed, "×", bound, "at least")
        yield Figure(f"{name}, faster than plain torch by", plain / packed, "×", 1.0, "at least")


def steps_of_convolutions() -> Iterator[Figure]:
    """A step of one network, at the sizes of the papers."""
    torch.set_num_threads(1)
    for network, data, batch in (("cnn", "mnist", 512), ("resnet9", "cifar10", 64), ("wide_resnet", "cifar10", 256)):
        if is_fetched(data):
            settings = {"data": data, "batch": batch, "network": network}
            (seconds,) = _fastest(_training(settings, 1, 1), rounds=3)
            yield Figure(f"{network}, a batch of {batch}", seconds, "s per step")


def segment_measurement() -> Iterator[Figure]:
    """The time that one frame of clean-priority learning adds to an epoch."""
    torch.set_num_threads(1)
    if not is_fetched("mnist"):
        return
    task = find_task("clean_priority.images")
    for network in ("fc", "cnn"):
        settings = task.settings({"data": "mnist", "network": network, "noise_rate": 0.4, "steps": 10_000})
        lanes: Lanes[Any] = Lanes([settings], [0])
        pack = Pack(task, lanes)
        steps = image_training.epoch_steps(lanes)
        some = min(steps, 8)  # all steps of an epoch take the same time
        with torch.no_grad():
            stretch, frame = _fastest(
                partial(task.advance, lanes, pack.state, 1, 1 + some),
                partial(task.measure, lanes, pack.state),
                rounds=3,
            )
        epoch = stretch * steps / some
        yield Figure(f"clean_priority.images, {network}, an epoch", epoch, "s")
        yield Figure(f"clean_priority.images, {network}, a frame adds", 100 * frame / epoch, "% of an epoch", 15)


def _training(settings: dict[str, Any], lanes: int, steps: int) -> Callable[[], None]:
    """Train for this many steps as a task does in a worker."""
    allocator.keep_freed_memory()
    pack = Lanes([Params(learning_rate=0.01, **settings)] * lanes, range(lanes))
    data = image_training.loaded(pack)
    network = build(pack.shape, data.size, outputs=len(data.classes))
    state = image_training.initial_state(pack, network)

    def loss(index: Tensor, step: int, outputs: Tensor) -> Tensor:
        return functional.cross_entropy(outputs.mT, data.train_y[index], reduction="none").mean(dim=1)

    return lambda: image_training.train(pack, network, state, 1, 1 + steps, loss)


def _plain_training(width: int, batch: int, steps: int) -> Callable[[], None]:
    """Train one network with plain torch."""
    whole = images("mnist")
    of = (whole.train_y == 7) | (whole.train_y == 9)
    x, y = whole.train_x[of].flatten(1) / 255, (whole.train_y[of] == 9).long()
    layers = [nn.Linear(x.shape[1], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)]
    network = nn.Sequential(*layers)
    descent = torch.optim.SGD(network.parameters(), lr=0.01)

    def train() -> None:
        order = torch.randperm(len(y))
        for index in order.repeat(1 + steps * batch // len(y)).split(batch)[:steps]:
            descent.zero_grad()
            functional.cross_entropy(network(x[index]), y[index]).backward()
            descent.step()

    return train


def _fastest(*works: Callable[[], object], rounds: int = _ROUNDS) -> list[float]:
    """The fastest time of each, in seconds. They take turns, so that other processes disturb all equally."""
    seconds = [float("inf")] * len(works)
    for work in works:
        work()
    for _ in range(rounds):
        for i, work in enumerate(works):
            began = time.process_time()
            work()
            seconds[i] = min(seconds[i], time.process_time() - began)
    return seconds


MEASURES = (fully_connected_in_packs, steps_of_convolutions, segment_measurement)
