"""Evaluation of features: true and noisy labels, and when the probe is trained."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.self_labeling.batches import Batches
from mislabel.tasks.self_labeling.classifiers import neighbour_classes
from mislabel.tasks.self_labeling.evaluation import feature_metrics, features, noisy_labels
from mislabel.tasks.self_labeling.sane import Params, _encoder, task

SMALL = Params(samples=200, test_samples=100, batch=32, depth=2, width=4, neighbours=7, probe_epochs=5, steps=10)


def measured(*settings: Params, last: bool = True) -> dict[str, Tensor]:
    lanes = Lanes(settings, range(len(settings)))
    return feature_metrics(lanes, _encoder(lanes), Batches(lanes).views, task.init(lanes), last)


def test_accuracies_are_those_of_the_features_of_whole_images() -> None:
    lanes = Lanes([SMALL] * 2, range(2))
    f, batches, state = _encoder(lanes), Batches(lanes), task.init(lanes)
    train, test = (features(lanes, f, batches.views, state, x) for x in (batches.data.train_x, batches.data.test_x))
    assert train.shape == (2, 200, 8)
    voted = neighbour_classes(train, batches.data.train_y, test, 10, neighbours=7)
    found = feature_metrics(lanes, f, batches.views, state, last=True)
    assert torch.equal(found["knn_accuracy"], (voted == batches.data.test_y).float().mean(dim=1))
    assert (found["probe_accuracy"] > 0.15).all()


def test_features_do_not_depend_on_the_size_of_the_parts() -> None:
    lanes = Lanes([SMALL], [0])
    f, batches, state = _encoder(lanes), Batches(lanes), task.init(lanes)
    x = batches.data.train_x[:20]
    alone = torch.cat([features(lanes, f, batches.views, state, each[None]) for each in x], dim=1)
    torch.testing.assert_close(features(lanes, f, batches.views, state, x), alone)


def test_wrong_labels_lower_only_the_noisy_metrics() -> None:
    found = measured(*(replace(SMALL, noise_rate=rate) for rate in (0.0, 0.9)))
    for name in ("knn_accuracy", "probe_accuracy"):
        assert found[f"noisy_{name}"][0] == found[name][0]
        assert found[f"noisy_{name}"][1] < found[name][1] - 0.1
    wrong = (found["given_label"] != found["true_label"]).double().mean(dim=1)
    assert wrong.tolist() == pytest.approx([0.0, 0.9])


def test_noise_may_depend_on_the_images() -> None:
    settings = replace(SMALL, noise_rate=0.4, corruption="instance")
    lanes = Lanes([settings], [0])
    wrong = (noisy_labels(lanes, Batches(lanes).data) != Batches(lanes).data.train_y).double().mean().item()
    assert wrong == pytest.approx(0.4, abs=0.15)


@pytest.mark.parametrize(("probe", "last", "trained"), [("never", True, False), ("end", False, False),
                                                        ("end", True, True), ("always", False, True)])  # fmt: skip
def test_the_probe_is_trained_when_asked_for(probe: str, last: bool, trained: bool) -> None:
    found = measured(replace(SMALL, probe=probe), last=last)
    assert bool(found["probe_accuracy"].isfinite().all()) == trained
    assert found["knn_accuracy"].isfinite().all()


def test_a_bank_is_spread_over_the_training_images() -> None:
    whole, some = measured(replace(SMALL, bank=200)), measured(replace(SMALL, bank=50))
    assert torch.equal(whole["knn_accuracy"], measured(SMALL)["knn_accuracy"])
    assert not torch.equal(whole["knn_accuracy"], some["knn_accuracy"])
