"""Training on images, shared by all image tasks: the data set, the batches, and the optimizer.

A task derives its Params from `ImageTraining`, and then:

    data = image_training.loaded(lanes)                        # tensors on the device, shared by all lanes
    net = build(lanes.shape, data.size, outputs=len(data.classes))
    state = image_training.initial_state(lanes, net)           # weights and optimizer state
    image_training.train(lanes, net, state, start, stop, loss) # in place

Each lane shuffles the training images in every epoch, by its own seed.
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
from mislabel.tasks.images.build_network import NetworkParams, build, network_conflicts
from mislabel.tasks.images.dense import DenseNetwork, NonzeroPixels, NonzeroTraining
from mislabel.tasks.images.derivatives import step
from mislabel.tasks.images.network import Descent, Network
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.training import Training

_EVERY = "every "
_VELOCITY = "velocity."

BATCH_HELP = "images per step; 0: all of them (full-batch gradient descent)"
DROPS_HELP = 'epochs at which the learning rate drops: a list, as in "100, 150", or "every 5"; empty: never'
OPTIMIZER_HELP = "SGD without or with momentum"
RATE_HELP = "learning rate of SGD (with or without momentum), before any drops"
PIXELS_HELP = "pixel values: from 0 to 1, or with mean 0 and standard deviation 1 in each channel"
SAMPLES_HELP = "training images, equally many per class; 0: all"
CLASSES_HELP = 'classes to use, by name or number, as in "7, 9"; empty: all'


@dataclass(frozen=True, kw_only=True)
class ImageTraining(Training):
    """Parameters that the image tasks share. Tasks set their own defaults."""

    data: str = shape("digits", help="data set: digits, mnist, fashion_mnist, cifar10, or images or images/NAME (own)")
    classes: str = shape("", help=CLASSES_HELP)
    samples: int = shape(0, at_least=0, help=SAMPLES_HELP)
    test_samples: int = shape(0, at_least=0, help="test images, equally many per class; 0: all")
    subset: int = shape(0, at_least=0, help="seed for choosing samples and test_samples images; same for all runs")
    pixels: str = shape("unit", choices=("unit", "standardized"), help=PIXELS_HELP)
    batch: int = shape(256, at_least=0, help=BATCH_HELP)
    optimizer: str = shape("sgd", choices=("sgd", "momentum"), help=OPTIMIZER_HELP)
    drops: str = shape("", help=DROPS_HELP)
    autocast: str = shape("none", choices=AUTOCASTS, help="bfloat16: mixed precision; faster on GPUs, less exact")
    compiled: bool = shape(False, help="train with torch.compile; needs a C++ compiler, less exact")
    learning_rate: float = knob(0.1, above=0, help=RATE_HELP)
    drop: float = knob(0.5, above=0, help="factor on the learning rate at each of the drops")
    momentum: float = knob(0.9, at_least=0, below=1, help="momentum of SGD; unused if optimizer is sgd")
    weight_decay: float = knob(0.0, at_least=0, help="weight decay (L2 penalty, as in torch's SGD)")


P = TypeVar("P", bound=ImageTraining)

Loss = Callable[[Tensor, int, Tensor], Tensor]
"""From the indices of the training images (l b), the step and the outputs (l b k) to a loss per lane (l)."""
Augmentation = Callable[[Tensor, int], Tensor]
"""From a step's images, as bytes (l b c h w), and the step to augmented images."""


def data_of(params: ImageTraining) -> dict[str, str]:
    """For a task's `data`: check that the run's data exists and fits the network; the data set's checksum."""
    whole = images(params.data)
    found = subset(whole, class_words(params.classes), params.samples, params.test_samples, params.subset)
    if len(found.classes) < 2:
        raise DataError(f"classes: only {found.classes[0]} of {params.data}; name at least two classes")
    if params.batch > len(found.train_y):
        text = f"batch: {params.batch:,} images per step are more than the {len(found.train_y):,} training images"
        raise DataError(f"{text}; make it smaller, or 0 for all")
    if isinstance(params, NetworkParams):
        _check_network_fits(params, found)
    return {params.data: whole.checksum}


def conflicts(params: ImageTraining) -> Iterator[str]:
    """For a task's `conflicts`: what is wrong with the parameters of training and of the network."""
    if params.data not in names() and not is_own(params.data):
        yield f"data: {params.data!r} is not a data set; choose from {', '.join(names())}"
    try:
        _drop_epochs(params.drops, 1)
    except ValueError:
        yield f'drops: {params.drops!r} is neither a list of epochs, as in "100, 150", nor an interval, as in "every 5"'
    if isinstance(params, NetworkParams):
        yield from network_conflicts(params)


def loaded(lanes: Lanes[P]) -> Images:
    """The run's images, on the lanes' device. All callers share the same tensors."""
    p = lanes.shape
    return part(p.data, p.classes, p.samples, p.test_samples, p.subset, lanes.device)


def epoch_steps(lanes: Lanes[P]) -> int:
    """The number of steps per epoch. The last batch of an epoch may be smaller."""
    return math.ceil(len(loaded(lanes).train_y) / lanes.shape.batch) if lanes.shape.batch else 1


def scaled(lanes: Lanes[P], x: Tensor) -> Tensor:
    """Images of bytes as network inputs; the same size."""
    x = x.to(lanes.dtype)
    if lanes.shape.pixels == "unit":
        return x.mul_(1 / 255)
    mean, deviation = _moments(loaded(lanes).train_x)
    return x.sub_(mean.to(x.dtype)[:, None, None]).div_(deviation.to(x.dtype)[:, None, None])


def initial_state(lanes: Lanes[P], network: Network) -> dict[str, Tensor]:
    """The initial state: weights, buffers, velocities of the optimizer, and each lane's order of images."""
    state = network.init(lanes)
    state |= initial_velocities(lanes, network, state)
    if lanes.shape.batch:
        state["order"] = _order(lanes, epoch=0)
    return state


def initial_velocities(lanes: Lanes[P], network: Network, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The optimizer's part of the state: zeros for each weight with momentum, else nothing."""
    names = network.weights if lanes.shape.optimizer == "momentum" else ()
    return {f"{_VELOCITY}{name}": torch.zeros_like(state[name]) for name in names}


def velocities(lanes: Lanes[P], network: Network, state: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The state's velocities by the names of the weights; None without momentum."""
    if lanes.shape.optimizer != "momentum":
        return None
    return {name: state[f"{_VELOCITY}{name}"] for name in network.weights}


def weights(network: Network, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For a task's `weights`: the network's weights and buffers, without optimizer state."""
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
    """Train from step `start` to step `stop`, in place. Clone the state's tensors before."""
    p, x, per_epoch = lanes.shape, loaded(lanes).train_x, epoch_steps(lanes)
    network = accelerated(network, p.autocast, p.compiled)
    decay = lanes["weight_decay"] if any(params.weight_decay for params in lanes.params) else None
    whole = scaled(lanes, x) if not p.batch and augmented is None else None
    nonzero, moved = None, state
    if isinstance(network, DenseNetwork) and p.pixels == "unit" and p.batch and augmented is None:
        nonzero = NonzeroTraining(_nonzero_pixels(x), state)
        x, moved = nonzero.pixels.x, nonzero.state
    velocity = velocities(lanes, network, moved)
    for at in range(start, stop):
        index = chosen(lanes, state, at)
        batch = whole
        if batch is None:
            batch = shared_rows(x, index)
            batch = scaled(lanes, augmented(batch, at) if augmented else batch)
        descent = Descent(rate_at(lanes, at / per_epoch), decay, lanes["momentum"], velocity)
        state |= step(network, moved, batch, partial(loss, index, at), descent)
        if nonzero is not None and decay is not None:
            nonzero.decay_zero_pixels(descent)
    if nonzero is not None:
        nonzero.write_back()


def chosen(lanes: Lanes[P], state: dict[str, Tensor], step: int) -> Tensor:
    """The indices of a step's training images, (l b). Call it at every step: it shuffles when an epoch begins."""
    p, count = lanes.shape, len(loaded(lanes).train_y)
    if not p.batch:
        return torch.arange(count, device=lanes.device).expand(len(lanes), -1)
    epoch, place = divmod(step, epoch_steps(lanes))
    if place == 0:
        state["order"] = _order(lanes, epoch)
    return state["order"][:, place * p.batch : (place + 1) * p.batch]


def shared_rows(x: Tensor, index: Tensor) -> Tensor:
    """Each lane's rows of a tensor x (n ...) that all lanes share, at the lane's indices (l b); (l b ...)."""
    return x.index_select(0, index.flatten()).view(*index.shape, *x.shape[1:])


def padded_to_batch(lanes: Lanes[P], y: Tensor) -> Tensor:
    """Labels of a step (l b), padded to the size of a full batch.

    The last batch of an epoch may be smaller. It must draw as many random numbers as the others, or its numbers would
    be those of other steps.
    """
    return functional.pad(y, (0, max(0, lanes.shape.batch - y.shape[1])))


def rate_at(lanes: Lanes[P], epochs: float) -> Tensor:
    """The learning rate after this many epochs; (l)."""
    drops = _drop_epochs(lanes.shape.drops, epochs)
    return lanes["learning_rate"] * lanes["drop"] ** drops if drops else lanes["learning_rate"]


def parts(count: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover `count` images."""
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


def _order(lanes: Lanes[Any], epoch: int) -> Tensor:
    return epoch_order(lanes, "order", len(loaded(lanes).train_y), epoch).int()


def epoch_order(lanes: Lanes[Any], name: str, count: int, epoch: int) -> Tensor:
    """A random order of `count` samples for this epoch; (l, count)."""
    drawn = lanes.uniform(name, count, steps=range(epoch, epoch + 1)).squeeze(1)
    return drawn.argsort(dim=1, stable=True)


def _drop_epochs(drops: str, epochs: float) -> int:
    """The number of drops within this many epochs; ValueError if the text is not valid."""
    if drops.startswith(_EVERY):
        distance = float(drops.removeprefix(_EVERY))
        if not distance > 0:
            raise ValueError(drops)
        return math.floor(epochs / distance)
    return sum(epochs >= float(word) for word in drops.split(",") if word.strip())


def _check_network_fits(params: Any, found: Images) -> None:
    """Raise DataError if the network can't be trained on images or batches of this size."""
    size, depth = "×".join(map(str, found.size)), f" of depth {params.depth}" if params.depth else ""
    try:
        network = build(params, found.size, len(found.classes))
    except RuntimeError:
        text = f"network: images of {size} are too small for {params.network}{depth}"
        raise DataError(f"{text}; use a smaller depth or larger images") from None
    if _has_single_image_steps(params, len(found.train_y)) and not _trains_on_single_images(network, found.size):
        text = f"some steps have a single image of {size}, on which the batch norm of {params.network} can't train"
        raise DataError(f"batch: {text}; use another batch size or number of samples")


def _has_single_image_steps(params: ImageTraining, count: int) -> bool:
    """Whether some step has a single image: every step, or the last step of an epoch."""
    batch = params.batch or count
    return batch == 1 or (count % batch == 1 and params.steps > count // batch)


def _trains_on_single_images(network: Network, size: tuple[int, int, int]) -> bool:
    """Whether a batch may be a single image. Batch norm has no variance over a single image of 1×1 features."""
    if not network.buffers:
        return True
    state = {name: torch.zeros(1, *weight.size) for name, weight in {**network.weights, **network.buffers}.items()}
    try:
        with torch.no_grad():
            network.forward(state, torch.zeros(1, 1, *size), training=True)
    except ValueError:
        return False
    return True


# These caches compare tensors by identity: `loaded` gives the same tensors each time.
_nonzero_pixels = lru_cache(maxsize=16)(NonzeroPixels)


@lru_cache(maxsize=16)
def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the pixels of each channel of x (n c h w); (c) each."""
    mean, deviation = (255 * torch.tensor(each, dtype=torch.float64, device=x.device) for each in statistics(x))
    return mean, deviation.clamp(min=1e-6)
