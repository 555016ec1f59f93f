"""Training on images, as all tasks of images do it: which data, in which batches, by which steps.

A task derives its Params from `Pictures`, and then:

    data = pictures.loaded(lanes)                        # tensors on the device, shared by all lanes
    net = build(lanes.shape, data.size, outputs=len(data.classes))
    state = pictures.started(lanes, net)                 # weights, and what SGD keeps
    pictures.train(lanes, net, state, start, stop, loss) # in place

Each lane goes through the training images in an order of its own, anew in every epoch.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.data.images import DataError, Images, class_words, images, is_own, names, part, subset
from mislabel.tasks.images.accelerated import AUTOCASTS, accelerated
from mislabel.tasks.images.augmentation.views import statistics
from mislabel.tasks.images.build_network import NetworkParams, build
from mislabel.tasks.images.dense import DenseNetwork
from mislabel.tasks.images.derivatives import step
from mislabel.tasks.images.network import Network
from mislabel.tasks.images.zero_pixels import LitPixels, LitTraining
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.training import Training

_EVERY = "every "


@dataclass(frozen=True, kw_only=True)
class Pictures(Training):
    """Parameters that the tasks of images share; they give their own defaults."""

    data: str = shape("digits", help="data set: digits, mnist, fashion_mnist, cifar10, or images of your own")
    classes: str = shape("", help='the classes taken, by name or number, as in "7, 9"; empty: all')
    samples: int = shape(0, at_least=0, help="training images, as many of each class; 0: all there are")
    test_samples: int = shape(0, at_least=0, help="test images, as many of each class; 0: all there are")
    subset: int = shape(0, at_least=0, help="seed by which images are chosen where not all are taken")
    pixels: str = shape(
        "unit", choices=("unit", "standardized"), help="pixels go from 0 to 1, or have mean 0 and deviation 1"
    )
    batch: int = shape(256, at_least=0, help="images per step; 0: all at every step")
    optimizer: str = shape("sgd", choices=("sgd", "momentum"), help="plain steps, or steps with momentum")
    drops: str = shape("", help='epochs after which the rate drops, as in "100, 150" or "every 5"; empty: never')
    autocast: str = shape("none", choices=AUTOCASTS, help="train in half precision where that is safe: less exact")
    compiled: bool = shape(False, help="train with networks that torch compiles: needs a C++ compiler, less exact")
    learning_rate: float = knob(0.1, above=0, help="learning rate")
    drop: float = knob(0.5, above=0, help="what the rate is multiplied by at each of the drops")
    momentum: float = knob(0.9, at_least=0, below=1, help="momentum, where the optimizer has it")
    weight_decay: float = knob(0.0, at_least=0, help="weight decay")


P = TypeVar("P", bound=Pictures)

Loss = Callable[[Tensor, Tensor, int], Tensor]
"""From outputs (l b k), which training images they are of (l b) and the step to a loss per lane (l)."""
Augmentation = Callable[[Tensor, int], Tensor]
"""From a step's images, of bytes (l b c h w), and the step to images that are as good."""


def data_of(params: Pictures) -> dict[str, str]:
    """For a task's `data`: that there is what the run asks for."""
    whole = images(params.data)
    found = subset(whole, class_words(params.classes), params.samples, params.test_samples, params.subset)
    if len(found.classes) < 2:
        raise DataError(f"classes: {found.classes[0]} alone, of {params.data}; at least two classes are needed")
    if params.batch > len(found.train_y):
        text = f"batch: {params.batch:,} images per step are more than the {len(found.train_y):,} for training"
        raise DataError(f"{text}; ask for fewer, or for 0, which takes all")
    if isinstance(params, NetworkParams):
        _refuse_unfit(params, found)
    return {params.data: whole.checksum}


def conflicts(params: Pictures) -> Iterator[str]:
    """For a task's `conflicts`."""
    if params.data not in names() and not is_own(params.data):
        yield f"data: {params.data!r} is not a data set; choose from {', '.join(names())}"
    try:
        _drop_epochs(params.drops, 1)
    except ValueError:
        yield f'drops: {params.drops!r} is neither epochs, as in "100, 150", nor a distance, as in "every 5"'


def loaded(lanes: Lanes[P]) -> Images:
    """The images that the run names, on the lanes' device; the same tensors for all that ask."""
    p = lanes.shape
    return part(p.data, p.classes, p.samples, p.test_samples, p.subset, lanes.device)


def epoch_steps(lanes: Lanes[P]) -> int:
    """Steps in an epoch. Its last batch is smaller where batches don't divide the images."""
    return math.ceil(len(loaded(lanes).train_y) / lanes.shape.batch) if lanes.shape.batch else 1


def scaled(lanes: Lanes[P], x: Tensor) -> Tensor:
    """Images of bytes as a network gets them; the same size."""
    p = lanes.shape
    x = x.to(lanes.dtype)
    if p.pixels == "unit":
        return x.mul_(1 / 255)
    mean, deviation = _moments(p.data, p.classes, p.samples, p.test_samples, p.subset, lanes.device)
    return x.sub_(mean.to(x.dtype)[:, None, None]).div_(deviation.to(x.dtype)[:, None, None])


def started(lanes: Lanes[P], network: Network) -> dict[str, Tensor]:
    """Weights, buffers, each lane's order of images, and the velocity where the optimizer has one."""
    state = network.init(lanes)
    if lanes.shape.optimizer == "momentum":
        state |= {_velocity(name): torch.zeros_like(state[name]) for name in network.weights}
    if lanes.shape.batch:
        state["order"] = _order(lanes, epoch=0)
    return state


def weights(network: Network, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For a task's `weights`: the network, without what SGD keeps."""
    return {name: state[name] for name in (*network.weights, *network.buffers)}


def train(
    lanes: Lanes[P],
    network: Network,
    state: dict[str, Tensor],
    start: int,
    stop: int,
    loss: Loss,
    augmented: Augmentation | None = None,
) -> None:
    """Train from one step to another, in place; clone the state's tensors before."""
    p, x, per_epoch = lanes.shape, loaded(lanes).train_x, epoch_steps(lanes)
    network = accelerated(network, p.autocast, p.compiled)
    decay = lanes["weight_decay"] if any(params.weight_decay for params in lanes.params) else None
    whole = scaled(lanes, x) if not p.batch and augmented is None else None
    lit, moved = None, state
    if isinstance(network, DenseNetwork) and p.pixels == "unit" and p.batch and augmented is None:
        pixels = _lit(p.data, p.classes, p.samples, p.test_samples, p.subset, lanes.device)
        lit = LitTraining(pixels, state)
        x, moved = pixels.x, lit.state
    velocity = {name: moved[_velocity(name)] for name in network.weights} if p.optimizer == "momentum" else None
    for at in range(start, stop):
        index = chosen(lanes, state, at)
        if whole is None:
            batch = taken(x, index)
            batch = scaled(lanes, augmented(batch, at) if augmented else batch)
        else:
            batch = whole
        told, rate = partial(_told, loss, index, at), rate_at(lanes, at / per_epoch)
        state |= step(network, moved, batch, told, rate, decay, lanes["momentum"], velocity)
        if lit is not None and decay is not None:
            lit.decay_dark(rate, decay, lanes["momentum"])
    if lit is not None:
        lit.end()


def _told(loss: Loss, index: Tensor, step: int, outputs: Tensor) -> Tensor:
    return loss(outputs, index, step)


def chosen(lanes: Lanes[P], state: dict[str, Tensor], step: int) -> Tensor:
    """Which training images a step takes, (l b); call it at every step, as it shuffles when an epoch begins."""
    p, count = lanes.shape, len(loaded(lanes).train_y)
    if not p.batch:
        return torch.arange(count, device=lanes.device).expand(len(lanes), -1)
    epoch, place = divmod(step, epoch_steps(lanes))
    if place == 0:
        state["order"] = _order(lanes, epoch)
    return state["order"][:, place * p.batch : (place + 1) * p.batch]


def taken(x: Tensor, index: Tensor) -> Tensor:
    """Each lane's rows of what all lanes share, x (n ...), at its own index (l b); (l b ...)."""
    return x.index_select(0, index.flatten()).view(*index.shape, *x.shape[1:])


def filled_up(lanes: Lanes[P], y: Tensor) -> Tensor:
    """Labels of a step (l b), as many as a whole batch has.

    An epoch's last batch may be smaller: were fewer numbers drawn for it, they would be those of other steps.
    """
    return functional.pad(y, (0, max(0, lanes.shape.batch - y.shape[1])))


def rate_at(lanes: Lanes[P], epochs: float) -> Tensor:
    """The learning rate after so many epochs; (l)."""
    drops = _drop_epochs(lanes.shape.drops, epochs)
    return lanes["learning_rate"] * lanes["drop"] ** drops if drops else lanes["learning_rate"]


def parts(count: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover `count` images, to look at them a part at a time."""
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


def _order(lanes: Lanes[Any], epoch: int) -> Tensor:
    count = len(loaded(lanes).train_y)
    drawn = lanes.uniform("order", count, steps=range(epoch, epoch + 1)).squeeze(1)
    return drawn.argsort(dim=1, stable=True).int()


def _velocity(name: str) -> str:
    return f"velocity.{name}"


def _drop_epochs(drops: str, epochs: float) -> int:
    """How many drops there are in so many epochs; ValueError where the text makes no sense."""
    if drops.startswith(_EVERY):
        distance = float(drops.removeprefix(_EVERY))
        if not distance > 0:
            raise ValueError(drops)
        return math.floor(epochs / distance)
    return sum(epochs >= float(word) for word in drops.split(",") if word.strip())


def _refuse_unfit(params: Any, found: Images) -> None:
    """DataError where the network can't be trained on images of that size, or not in batches of that size."""
    size, depth = "×".join(map(str, found.size)), f" of depth {params.depth}" if params.depth else ""
    try:
        network = build(params, found.size, len(found.classes))
    except RuntimeError:
        text = f"network: images of {size} are too small for {params.network}{depth}"
        raise DataError(f"{text}; take a smaller depth or larger images") from None
    if _takes_one(params, len(found.train_y)) and not _trains_on_one(network, found.size):
        text = f"batch: some steps take a single image of {size}, with which {params.network}'s batch norm can't train"
        raise DataError(f"{text}; take another batch, or another number of samples")


def _takes_one(params: Pictures, count: int) -> bool:
    """Whether some step takes one image: each, or the one that is left over at the end of an epoch."""
    batch = params.batch or count
    return batch == 1 or (count % batch == 1 and params.steps > count // batch)


def _trains_on_one(network: Network, size: tuple[int, int, int]) -> bool:
    """Whether a batch may be one image: batch norm has no variance where its features are a single pixel."""
    if not network.buffers:
        return True
    state = {name: torch.zeros(1, *weight.size) for name, weight in {**network.weights, **network.buffers}.items()}
    try:
        with torch.no_grad():
            network.forward(state, torch.zeros(1, 1, *size), training=True)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=16)
def _lit(data: str, classes: str, samples: int, test_samples: int, subset: int, device: torch.device) -> LitPixels:
    return LitPixels(part(data, classes, samples, test_samples, subset, device).train_x)


@lru_cache(maxsize=16)
def _moments(
    data: str, classes: str, samples: int, test_samples: int, subset: int, device: torch.device
) -> tuple[Tensor, Tensor]:  # each c
    """Mean and deviation of the training pixels of each channel.

    They don't depend on the test images, but these belong to the part that `loaded` has on the device.
    """
    found = statistics(part(data, classes, samples, test_samples, subset, device).train_x)
    mean, deviation = (255 * torch.tensor(numbers, dtype=torch.float64, device=device) for numbers in found)
    return mean, deviation.clamp(min=1e-6)
