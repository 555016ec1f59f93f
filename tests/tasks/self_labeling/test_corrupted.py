"""Corrupted labels, compared with one run by autograd, with labels refined crop by crop."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mislabel.analysis.theory.self_labeling import recoverable_corruption, refined_error_bound
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Pack
from mislabel.tasks.self_labeling.corrupted import Params, _data, _nearest, conflicts, task
from mislabel.tasks.self_labeling.samples import cap_share, crops

pytestmark = pytest.mark.long

SMALL = Params(
    samples=4,
    classes=3,
    crops=6,
    test_crops=3,
    dim=5,
    width=10,
    steps=60,
    frames=7,
    snapshots=7,
    corruption=0.35,
    separation=0.6,
    alpha=0.7,
    step_size=0.5,
    precision="float64",
)
POSITIVES = ["other", "fresh", "fixed", "centre", "same"]


def frames_of(settings: Sequence[Params], seeds: Sequence[int]) -> list[Frame]:
    pack, frames = Pack(task, Lanes(settings, seeds)), []
    while not pack.finished:
        frames += pack.advance(seconds=10)
    return frames


class Plain:
    """One run on the task's data, which other tests check."""

    def __init__(self, params: Params, seed: int) -> None:
        self.params, self.lanes = params, Lanes([params], [seed])
        data = _data(self.lanes)
        self.centres, self.x, self.test_x = data.centres[0], data.x[0], data.test_x[0]
        self.truth, self.given = data.truth[0].tolist(), data.given[0].tolist()
        self.gammas = [params.separation * (j - (params.classes - 1) / 2) for j in range(params.classes)]
        self.y = torch.tensor([self.gammas[j] for j in self.given], dtype=torch.float64)
        self.y_true = torch.tensor([self.gammas[j] for j in self.truth], dtype=torch.float64)
        half = params.width // 2
        self.v = torch.tensor([1.0] * half + [-1.0] * half, dtype=torch.float64) / params.width**0.5
        self.start = params.init_scale * self.lanes.normal("w", params.width, params.dim)[0]
        self.w, self.step = self.start, 0
        self.recovery_step = np.nan
        self.note()

    def activated(self, z: Tensor) -> Tensor:
        if self.params.activation == "softplus":
            return torch.log(1 + torch.exp(z))
        return 1 / (1 + torch.exp(-z)) if self.params.activation == "sigmoid" else torch.tanh(z)

    def output(self, w: Tensor, x: Tensor) -> Tensor:
        f: Tensor = self.activated(x @ w.T) @ self.v
        return f

    def positives(self) -> Tensor:
        p, lanes = self.params, self.lanes
        if p.positive == "same":
            return self.x
        if p.positive == "centre":
            return torch.stack([self.centres[i // p.crops] for i in range(len(self.x))])
        if p.positive == "other":
            steps = range(self.step, self.step + 1)
            further = 1 + lanes.integers("other", p.crops - 1, len(self.x), steps=steps)[0, 0]
            by_sample = self.x.view(p.samples, p.crops, -1)
            return torch.stack([by_sample[i // p.crops, (i + by) % p.crops] for i, by in enumerate(further.tolist())])
        at = self.step if p.positive == "fresh" else 0
        return crops(lanes, self.centres[None], "positive", p.crops, at)[0]

    def alpha(self) -> float:
        p = self.params
        if p.alpha_steps == 0:
            return p.alpha
        return p.alpha_start + (p.alpha - p.alpha_start) * min(1, self.step / p.alpha_steps)

    def refined(self) -> Tensor:
        return (1 - self.alpha()) * self.y + self.alpha() * self.output(self.w, self.positives())

    def train(self) -> None:
        w = self.w.clone().requires_grad_()
        loss = ((self.refined() - self.output(w, self.x)) ** 2).sum() / 2
        loss.backward()
        assert w.grad is not None
        self.w = self.w - self.params.step_size * self.params.samples / len(self.x) * w.grad
        self.step += 1
        self.note()

    def note(self) -> None:
        if np.isnan(self.recovery_step) and self.classes(self.refined()) == self.truth:
            self.recovery_step = self.step

    def classes(self, labels: Tensor) -> list[int]:
        return [int(np.argmin([abs(label - gamma) for gamma in self.gammas])) for label in labels.tolist()]

    def metrics(self) -> dict[str, Any]:
        refined, f, test = self.refined(), self.output(self.w, self.x), self.output(self.w, self.test_x)
        test_truth = [i // self.params.test_crops % self.params.classes for i in range(len(test))]
        test_label = torch.tensor([self.gammas[j] for j in test_truth], dtype=torch.float64)
        wrong = [i for i, (one, other) in enumerate(zip(self.given, self.truth, strict=True)) if one != other]
        recovered = np.equal(self.classes(refined), self.truth)
        return {
            "label_error": (refined - self.y_true).square().mean().sqrt().item(),
            "given_label_error": (self.y - self.y_true).square().mean().sqrt().item(),
            "recovered_share": recovered.mean(),
            "wrong_recovered_share": recovered[wrong].mean(),
            "recovery_step": self.recovery_step,
            "train_loss": (refined - f).square().mean().item() / 2,
            "train_error": (f - self.y_true).square().mean().sqrt().item(),
            "largest_train_error": (f - self.y_true).abs().max().item(),
            "train_accuracy": np.equal(self.classes(f), self.truth).mean(),
            "memorized_share": np.equal(self.classes(f), self.given)[wrong].mean(),
            "test_error": (test - test_label).square().mean().sqrt().item(),
            "largest_test_error": (test - test_label).abs().max().item(),
            "test_accuracy": np.equal(self.classes(test), test_truth).mean(),
            "weight_distance": (self.w - self.start).square().sum().sqrt().item(),
            "smallest_eigenvalue": self.smallest_eigenvalue(),
            "centre_distance": min((a - b).norm().item() for i, a in enumerate(self.centres) for b in self.centres[:i]),
            "centre_norm": np.linalg.svd(self.centres.numpy())[1].max(),
            "true_label": self.y_true.numpy(),
            "given_label": self.y.numpy(),
            "refined_label": refined.numpy(),
            "output": f.numpy(),
        }

    def smallest_eigenvalue(self) -> float:
        total = torch.zeros(len(self.centres), len(self.centres), dtype=torch.float64)
        for neuron in self.start:
            z = (self.centres @ neuron).requires_grad_()
            self.activated(z).sum().backward()
            assert z.grad is not None
            total += torch.outer(z.grad, z.grad) * (self.centres @ self.centres.T) / len(self.start)
        return float(torch.linalg.eigvalsh(total)[0])


@pytest.mark.parametrize("activation", ["softplus", "sigmoid", "tanh"])
@pytest.mark.parametrize("positive", POSITIVES)
def test_a_run_equals_the_slow_reference(positive: str, activation: str) -> None:
    params = replace(SMALL, positive=positive, activation=activation)
    rising = replace(params, alpha_start=0.2, alpha_steps=25, corruption=0.2)
    frames = frames_of([params, rising], [1, 2])
    for lane, (settings, seed) in enumerate(((params, 1), (rising, 2))):
        plain = Plain(settings, seed)
        for frame in frames:
            while plain.step < frame.step:
                plain.train()
            found, expected = {**frame.metrics, **frame.arrays}, plain.metrics()
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_allclose(
                    found[name][lane], value, rtol=1e-8, atol=1e-10, err_msg=f"{name} at {plain.step}"
                )


def test_crops_lie_on_the_sphere_around_their_samples() -> None:
    params = replace(SMALL, samples=20, crops=50, dim=4, radius=0.4)
    data = _data(Lanes([params, replace(params, radius=0.0)], [0, 0]))
    distance = (data.x.view(2, 20, 50, 4) - data.centres[:, :, None]).norm(dim=3)
    torch.testing.assert_close(data.x.norm(dim=2), torch.ones(2, 1000, dtype=torch.float64))
    assert distance[1].max() < 1e-12
    # Uniform in a three-dimensional ball.
    shares = (distance[0] / 0.4) ** 3
    assert shares.max() <= 1 + 1e-12
    assert shares.mean().item() == pytest.approx(0.5, abs=0.04)


def test_crops_for_training_testing_and_positives_differ() -> None:
    lanes = Lanes([replace(SMALL, positive="fixed", test_crops=SMALL.crops)], [0])
    data = _data(lanes)
    assert data.fixed is not None
    later = crops(lanes, data.centres, "positive", SMALL.crops, step=1)
    points = [data.x, data.test_x, data.fixed, later]
    assert all((one - other).abs().max() > 0.01 for i, one in enumerate(points) for other in points[:i])


@pytest.mark.parametrize(("corruption", "wrong"), [(0.0, 0), (0.3, 3), (0.35, 3), (0.39999, 3), (0.4, 4), (1.0, 10)])
def test_the_same_number_of_labels_is_wrong_in_each_sample(corruption: float, wrong: int) -> None:
    params = Params(samples=6, classes=4, crops=10, separation=0.5, corruption=corruption)
    data = _data(Lanes([params], [0]))
    assert (data.given != data.truth).view(6, 10).sum(dim=1).tolist() == [wrong] * 6
    assert data.truth.view(6, 10)[:, 0].tolist() == [0, 1, 2, 3, 0, 1]
    assert set(data.given.unique().tolist()) <= {0, 1, 2, 3}


def test_the_nearest_class_is_the_one_with_the_nearest_label() -> None:
    lanes = Lanes([replace(SMALL, separation=0.6)], [0])
    labels = torch.tensor([[-5.0, -0.6, -0.31, -0.29, 0.0, 0.29, 0.31, 0.6, 5.0]], dtype=torch.float64)
    assert _nearest(lanes, labels).tolist() == [[0, 0, 0, 1, 1, 1, 2, 2, 2]]


def test_with_alpha_0_every_positive_trains_on_the_given_labels() -> None:
    plain = Plain(replace(SMALL, alpha=0.0, positive="same"), 3)
    for _ in range(SMALL.steps):
        plain.train()
    for positive in POSITIVES:
        last = frames_of([replace(SMALL, alpha=0.0, positive=positive)], [3])[-1]
        np.testing.assert_allclose(last.arrays["output"][0], plain.metrics()["output"], rtol=1e-8)
        np.testing.assert_array_equal(last.arrays["refined_label"], last.arrays["given_label"])


def test_runs_with_and_without_refinement_have_the_same_data_and_initial_weights() -> None:
    lanes = Lanes([SMALL, replace(SMALL, alpha=0.0)], [5, 5])
    data = _data(lanes)
    for tensor in (data.start, data.centres, data.x, data.test_x, data.given):
        torch.testing.assert_close(tensor[0], tensor[1], rtol=0, atol=0)


def test_same_as_positive_is_gradient_descent_with_a_smaller_step_size() -> None:
    same = replace(SMALL, positive="same", alpha=0.75)
    shorter = replace(SMALL, positive="same", alpha=0.0, step_size=0.25 * SMALL.step_size)
    last = frames_of([same, shorter], [0, 0])[-1]
    np.testing.assert_allclose(last.arrays["output"][0], last.arrays["output"][1], rtol=1e-9)


def test_refined_labels_satisfy_the_bound_of_theorem_2() -> None:
    for frame in frames_of([replace(SMALL, positive="same")] * 3, range(3)):
        m = frame.metrics
        bound = refined_error_bound(SMALL.alpha, m["given_label_error"], m["train_error"])
        assert (m["label_error"] <= bound + 1e-12).all()


def test_samples_are_two_radii_apart_and_stay_as_they_are_if_they_were_before() -> None:
    params = Params(samples=6, dim=4, radius=0.3)
    kinds = [replace(params, centres=kind) for kind in ("separated", "independent")]
    apart, free = (_data(Lanes([each] * 50, range(50))).centres for each in kinds)
    distance = torch.stack([torch.pdist(each).min() for each in free])
    assert 0 < (distance < 0.6).sum() < 50
    assert all(torch.pdist(each).min() >= 0.6 for each in apart)
    torch.testing.assert_close(apart[distance >= 0.6], free[distance >= 0.6], rtol=0, atol=0)
    torch.testing.assert_close(apart.norm(dim=2), torch.ones(50, 6))


@pytest.mark.parametrize(
    ("dim", "angle", "share"), [(2, 1.0, 1 / np.pi), (3, 1.0, (1 - np.cos(1.0)) / 2), (20, np.pi / 2, 0.5)]
)
def test_the_share_of_a_cap_is_known_in_two_and_three_dimensions(dim: int, angle: float, share: float) -> None:
    assert cap_share(angle, dim) == pytest.approx(share, rel=2e-3)


def test_samples_without_room_are_refused() -> None:
    assert list(conflicts(Params(samples=6, dim=4, radius=0.3))) == []
    assert list(conflicts(Params(samples=30, dim=4, radius=0.3))) == [
        "radius: 30 samples on a sphere in 4 dimensions have no room to be 2ε = 0.6 apart; make it smaller, or centres "
        "independent"
    ]
    assert list(conflicts(Params(samples=30, dim=4, radius=0.3, centres="independent"))) == []


def test_settings_that_contradict_each_other_are_refused() -> None:
    assert list(conflicts(Params())) == []
    assert list(conflicts(Params(samples=3, classes=5, crops=1, width=7, separation=0.75))) == [
        "width: 7 neurons can't be split into two equal halves; make it even",
        "classes: 5 classes need as many samples, not 3",
        "separation: 5 labels 0.75 apart don't fit into [-1, 1]; make it at most 0.5",
        "crops: a single crop has no other; make it at least 2",
    ]


CLAIM: dict[str, Any] = {"samples": 6, "test_crops": 10, "dim": 12, "width": 60, "steps": 1000, "radius": 0.1}


def claim(seeds: int = 4, **settings: Any) -> dict[str, np.ndarray]:
    params = Params(**{**CLAIM, "frames": 2, **settings})
    return dict(frames_of([params] * seeds, range(seeds))[-1].metrics)


@pytest.mark.claims
def test_refined_labels_are_closer_to_the_truth_than_given_ones() -> None:
    for corruption in (0.1, 0.2, 0.3):
        last = claim(corruption=corruption)
        assert (last["label_error"] < 0.7 * last["given_label_error"]).all()
        # Nearly as close as the mean label of all crops of the sample.
        ideal = 0.2 * last["given_label_error"] + 0.8 * corruption
        assert last["label_error"].mean() < 1.1 * ideal.mean()


@pytest.mark.claims
@pytest.mark.parametrize("alpha", [0.8, 0.9])
def test_below_a_level_of_corruption_all_labels_are_recovered(alpha: float) -> None:
    level = float(recoverable_corruption(alpha))
    below, above = (np.floor(20 * level) / 20 - 0.1, np.ceil(20 * level) / 20)
    assert (claim(alpha=alpha, corruption=below)["recovered_share"] == 1).all()
    assert (claim(alpha=alpha, corruption=above)["wrong_recovered_share"] < 0.9).all()


@pytest.mark.claims
def test_theorem_2_holds_for_several_classes() -> None:
    last = claim(classes=3, separation=1.0, alpha=0.9, corruption=0.05, radius=0.05)
    assert (last["recovered_share"] == 1).all()
    assert (last["test_accuracy"] == 1).all()


@pytest.mark.claims
def test_given_labels_are_memorized_and_refined_ones_are_not_if_positives_differ() -> None:
    late: dict[str, Any] = {"radius": 0.5, "corruption": 0.3, "steps": 3000, "samples": 4, "width": 40}
    refined, given, same = claim(**late), claim(alpha=0.0, **late), claim(positive="same", **late)
    assert refined["test_accuracy"].mean() > 0.95
    assert given["test_accuracy"].mean() < 0.85
    assert refined["memorized_share"].mean() < 0.1
    assert given["memorized_share"].mean() > 0.5
    assert (refined["memorized_share"] < same["memorized_share"]).all()


@pytest.mark.claims
def test_the_sample_itself_as_positive_hurts_if_crops_are_far_from_it() -> None:
    last = claim(positive="centre", radius=0.9, alpha=0.95, centres="independent")
    assert (last["label_error"] > last["given_label_error"]).all()


def test_a_lane_that_starts_at_infinity_diverges_alone() -> None:
    settings = replace(SMALL, precision="float32")
    frames = frames_of([settings, replace(settings, init_scale=3.5e38)], [0, 1])
    assert frames[0].labels[frames[0].diverged].tolist() == [1]
    assert frames[-1].labels.tolist() == [0]
