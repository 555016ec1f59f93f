"""Evaluate features by nearest neighbours and by a linear probe, with true labels and with noisy labels.

Features are the backbone's, of images without augmentation. Test labels are always the true ones. Only the labels of
the training images, with which neighbours vote or which the probe learns, may be wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mislabel.tasks import corruption
from mislabel.tasks.data.images import Images
from mislabel.tasks.images.augmentation.views import Views
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.self_labeling.batches import loaded
from mislabel.tasks.self_labeling.classifiers import neighbour_classes, probe_classes, trained_probe
from mislabel.tasks.self_labeling.encoders import Encoder
from mislabel.tasks.task import Metric, State

_TOGETHER = 512


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Parameters of tasks that evaluate features: derive Params from it, in addition to those of training."""

    bank: int = shape(0, at_least=0, help="training images for neighbours and linear probe, evenly chosen; 0: all")
    neighbours: int = shape(50, at_least=1, help="number of nearest neighbours that vote (KNN)")
    vote_temperature: float = shape(0.05, at_least=1e-6, help="temperature of the votes exp(cosine/temperature)")
    probe: str = shape(
        "end",
        choices=("never", "end", "always"),
        help="when the slow linear probe trains: end: last step; always: at every frame",
    )
    probe_epochs: int = shape(200, at_least=1, help="training epochs of the linear probe")
    probe_rate: float = shape(
        0.01, at_least=1e-9, at_most=1e3, help="learning rate of the linear probe's optimizer (Adam)"
    )
    corruption: str = shape(
        "symmetric", choices=corruption.KINDS, help=f"only for noisy_… metrics; {corruption.CORRUPTION_HELP}"
    )
    noise_rate: float = knob(
        0.0,
        between=(0, 1),
        help="only for noisy_… metrics: share of each class's training labels that are wrong, fixed per run; training "
        "itself uses no labels",
    )


METRICS: Mapping[str, Metric] = {
    "knn_accuracy": Metric("KNN: share of test images whose class gets most votes of the nearest training images"),
    "noisy_knn_accuracy": Metric("the same with noisy labels of the training images"),
    "probe_accuracy": Metric("test accuracy of a linear probe trained on the true labels", may_be_absent=True),
    "noisy_probe_accuracy": Metric("test accuracy of a linear probe trained on the noisy labels", may_be_absent=True),
    **corruption.METRICS,
}


def feature_metrics(lanes: Lanes[Any], f: Encoder, views: Views, state: State, last: bool) -> dict[str, Tensor]:
    """The metrics; those of the probe are nan if it is not trained."""
    p, data = lanes.shape, loaded(lanes)
    k, count = len(data.classes), len(data.train_y)
    bank = min(p.bank or count, count)
    chosen = torch.arange(bank, device=lanes.device) * count // bank
    y, given = data.train_y[chosen], noisy_labels(lanes, data)[:, chosen]
    train = features(lanes, f, views, state, data.train_x, chosen)
    test = features(lanes, f, views, state, data.test_x)
    noisy = any(params.noise_rate for params in lanes.params)

    def accuracy(classes: Tensor) -> Tensor:
        return (classes == data.test_y).to(lanes.dtype).mean(dim=1)

    def voted(labels: Tensor) -> Tensor:
        return accuracy(neighbour_classes(train, labels, test, k, p.neighbours, p.vote_temperature))

    def learned(labels: Tensor) -> Tensor:
        probe = trained_probe(lanes, "probe", train, labels, k, epochs=p.probe_epochs, rate=p.probe_rate)
        return accuracy(probe_classes(probe, test))

    knn = voted(y)
    found = {
        "knn_accuracy": knn,
        "noisy_knn_accuracy": voted(given) if noisy else knn,
        "true_label": data.train_y.expand(len(lanes), -1),
        "given_label": noisy_labels(lanes, data),
    }
    nothing = torch.full_like(knn, torch.nan)
    if p.probe == "never" or (p.probe == "end" and not last):
        return found | {"probe_accuracy": nothing, "noisy_probe_accuracy": nothing}
    right = learned(y)
    return found | {"probe_accuracy": right, "noisy_probe_accuracy": learned(given) if noisy else right}


def features(lanes: Lanes[Any], f: Encoder, views: Views, state: State, x: Tensor, at: Tensor | None = None) -> Tensor:
    """The features of images x (n c h w), or of those at the indices `at`, without augmentation; (l n m)."""
    places = torch.arange(len(x), device=x.device) if at is None else at.to(x.device)
    found = torch.empty(0)
    for first in range(0, len(places), _TOGETHER):
        some = places[first : first + _TOGETHER]
        some_features = f.features(state, views.plain(x[some].to(lanes.device), lanes.dtype))
        if not first:  # features of a large data set fill half of a GPU, so there is no room for two copies
            found = some_features.new_empty(len(lanes), len(places), some_features.shape[2])
        found[:, first : first + _TOGETHER] = some_features
    return found


def noisy_labels(lanes: Lanes[Any], data: Images) -> Tensor:
    """The noisy labels of the training images; (l n)."""

    def inputs(part: slice) -> Tensor:
        return data.train_x[part].to(lanes.device, lanes.dtype).flatten(1) / 255

    return lanes.once("labels", lambda: corruption.corrupted(lanes, data.train_y, len(data.classes), inputs))
