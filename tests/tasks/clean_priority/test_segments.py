"""Segments and their gradients, compared with loops over single samples."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from mislabel.tasks.clean_priority import segments
from mislabel.tasks.clean_priority.images import Params, _network, _segments, task
from mislabel.tasks.clean_priority.segments import CLEAN, NOISY, class_angles
from mislabel.tasks.images import image_training
from mislabel.tasks.lanes import Lanes

SMALL: dict[str, Any] = {"samples": 60, "test_samples": 20, "batch": 8, "depth": 1, "width": 6, "precision": "float64"}
BINARY = Params(**SMALL, measured_samples=0)
THREE = Params(**SMALL, measured_samples=0, classes="1, 4, 6", network="cnn")
SETTINGS = pytest.mark.parametrize("params", [BINARY, THREE], ids=["two classes", "three classes"])


def lanes_of(params: Params, *rates: float) -> Lanes[Params]:
    given = [Params(**{**vars(params), "noise_rate": rate}) for rate in rates]
    return Lanes(given, range(len(rates)))


def members(lanes: Lanes[Params], lane: int, class_: int, kind: int) -> list[int]:
    """The samples of a segment, by its definition."""
    true, given = image_training.loaded(lanes).train_y.tolist(), _segments(lanes).given[lane].tolist()
    return [i for i, (y, z) in enumerate(zip(true, given, strict=True)) if y == class_ and (y != z) == (kind == NOISY)]


def one_sample(
    lanes: Lanes[Params], state: Mapping[str, Tensor], lane: int, sample: int, class_: int
) -> dict[str, Any]:
    """A sample's (f - y)∇h on a class's logit as one vector, its loss, error and |f - y|, by autograd."""
    data, network = image_training.loaded(lanes), _network(lanes)
    own = {name: tensor[lane : lane + 1].clone().requires_grad_() for name, tensor in network.trained(state).items()}
    x = data.train_x[sample].double()[None, None] / 255
    with torch.enable_grad():
        h = network.forward(own, x).outputs[0, 0]
        y = int(_segments(lanes).given[lane, sample])
        if len(data.classes) == 2:
            f, wanted, said, logit = h.sigmoid(), torch.tensor([float(y)]).double(), int(h[0] > 0), 0
            loss = -(torch.log(f[0]) if y else torch.log(1 - f[0]))
        else:
            f, wanted = h.softmax(dim=0), torch.eye(len(data.classes)).double()[y]
            said, logit, loss = int(h.argmax()), class_, -torch.log(f[y])
        grads = torch.autograd.grad(h[logit], list(own.values()))
    residual = (f - wanted).detach()
    row = torch.cat([grad.flatten() for grad in grads]) * residual[logit]
    return {"row": row, "error": float(said != y), "loss": float(loss.detach()), "residual": float(residual.norm())}


def angle(one: Tensor, other: Tensor) -> float:
    # From half the chord, because arccos loses small angles.
    one, other = one / one.norm(), other / other.norm()
    return float(2 * torch.atan2((one - other).norm(), (one + other).norm()))


@SETTINGS
def test_every_sample_is_in_the_segment_of_its_class_and_kind(params: Params) -> None:
    lanes = lanes_of(params, 0.3, 0.1, 0.0)
    found = _segments(lanes)
    for class_ in range(len(image_training.loaded(lanes).classes)):
        for kind in (CLEAN, NOISY):
            index, count = found.rows(class_, kind)
            for lane in range(3):
                expected = members(lanes, lane, class_, kind)
                assert sorted(index[lane][count[lane] > 0].tolist()) == expected
                assert count[lane].sum() == found.counts[lane, class_, kind] == len(expected)


def test_a_few_samples_represent_a_whole_segment() -> None:
    lanes = lanes_of(BINARY, 0.3, 0.1)  # of 30 samples, 9 and 3 are noisy
    index, count = _segments(lanes).rows(1, NOISY, most=4)
    assert index.shape == (2, 4)
    assert count.tolist() == [[9 / 4] * 4, [1.0, 1.0, 1.0, 0.0]]
    assert len(set(index[0].tolist())) == 4


@SETTINGS
@pytest.mark.parametrize("measured", [0, 24])
def test_gradients_and_sums_equal_a_loop_over_samples(params: Params, measured: int) -> None:
    lanes = lanes_of(Params(**{**vars(params), "measured_samples": measured}), 0.3, 0.1)
    state, parts = task.advance(lanes, task.init(lanes), 0, 5), _segments(lanes)
    classes = len(image_training.loaded(lanes).classes)
    for class_, kind in [(0, CLEAN), (classes - 1, NOISY)]:
        all_sums, gradient, full = segments.measure_segment(lanes, _network(lanes), state, parts, class_, kind)
        index, count = parts.rows(class_, kind, measured // (2 * classes))
        for lane in range(2):
            samples = [
                (one_sample(lanes, state, lane, int(i), class_), float(n))
                for i, n in zip(index[lane], count[lane], strict=True)
            ]
            row = torch.cat([tensor[lane].flatten() for tensor in gradient.values()])
            torch.testing.assert_close(row, torch.stack([n * each["row"] for each, n in samples]).sum(dim=0))
            logits = range(classes) if classes > 2 else range(1)
            whole = torch.cat([tensor[lane].flatten() for tensor in full.values()])
            all_logits = [
                n * one_sample(lanes, state, lane, int(i), logit)["row"]
                for i, n in zip(index[lane], count[lane], strict=True)
                for logit in logits
            ]
            torch.testing.assert_close(whole, torch.stack(all_logits).sum(dim=0))
            sums = [sum(n * each[name] for each, n in samples) for name in segments.SUMMED]
            assert all_sums[lane].tolist() == pytest.approx(sums)


@SETTINGS
def test_angles_of_samples_are_those_to_the_clean_gradient(params: Params) -> None:
    lanes = lanes_of(Params(**{**vars(params), "histogram_samples": 5}), 0.3, 0.05)
    state, parts, network = task.init(lanes), _segments(lanes), _network(lanes)
    classes, class_, lane = len(image_training.loaded(lanes).classes), 1, 0
    clean = segments.measure_segment(lanes, network, state, parts, class_, CLEAN)[1]
    found = class_angles(lanes, network, state, parts, class_, clean)
    reference = sum(one_sample(lanes, state, lane, i, class_)["row"] for i in members(lanes, lane, class_, CLEAN))
    assert isinstance(reference, Tensor)
    for name, kind in (("clean", CLEAN), ("noisy", NOISY)):
        index, count = parts.rows(class_, kind, 5)
        for place in range(5):
            expected = math.nan
            if place < index.shape[1] and count[lane, place]:
                expected = angle(one_sample(lanes, state, lane, int(index[lane, place]), class_)["row"], reference)
            assert float(found[name][lane, place]) == pytest.approx(expected, nan_ok=True)
    others = [other for other in range(classes) if other != class_]
    first = [parts.rows(other, CLEAN, 5)[0][lane] for other in others]
    expected_others = [first[i % len(others)][i // len(others)] for i in range(5)]
    for place, sample in enumerate(expected_others):
        row = one_sample(lanes, state, lane, int(sample), class_)["row"]
        assert float(found["other"][lane, place]) == pytest.approx(angle(row, reference))
    rows = [one_sample(lanes, state, lane, int(sample), class_)["row"] for sample in expected_others]
    assert float(found["others"][lane]) == pytest.approx(angle(torch.stack(rows).sum(dim=0), reference))


def test_a_lane_with_few_noisy_samples_has_nan_for_the_rest() -> None:
    lanes = lanes_of(Params(**{**vars(BINARY), "histogram_samples": 5}), 0.05, 0.0)
    state, parts, network = task.init(lanes), _segments(lanes), _network(lanes)
    clean = segments.measure_segment(lanes, network, state, parts, 0, CLEAN)[1]
    found = class_angles(lanes, network, state, parts, 0, clean)
    assert found["noisy"].isnan().sum(dim=1).tolist() == [3, 5]  # 2 of 30 are noisy
    assert found["clean"].isfinite().all()
    assert found["other"].isfinite().all()


def test_angles_and_norms_include_all_weights() -> None:
    one = {"a": torch.tensor([[3.0, 0.0]]), "b": torch.tensor([[[4.0]]])}
    other = {"a": torch.tensor([[0.0, 2.0]]), "b": torch.tensor([[[0.0]]])}
    assert segments.products([one, other]).tolist() == [[[25, 0], [0, 4]]]
    assert float(segments.ratio(segments.products([one, other]))) == 2 / 5
    assert math.degrees(float(segments.angle(segments.products([one, other])))) == pytest.approx(90)
    assert float(segments.angle(segments.products([one, segments.sum_of(one, one)]))) == pytest.approx(0, abs=1e-7)
