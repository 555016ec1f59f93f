from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mislabel.tasks import corruption
from mislabel.tasks.corruption import LabelNoise
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.training import Training
from tests.examples import examples


@dataclass(frozen=True, kw_only=True)
class Params(Training, LabelNoise):
    pass


def lanes_with(*rates: float, corruption: str = "symmetric", precision: str = "float32") -> Lanes[Params]:
    settings = [Params(noise_rate=rate, corruption=corruption, precision=precision) for rate in rates]
    return Lanes(settings, range(len(rates)))


def labels(*counts: int) -> torch.Tensor:
    """Labels with these numbers of samples per class, shuffled."""
    y = np.repeat(np.arange(len(counts)), counts)
    return torch.from_numpy(np.random.default_rng(0).permutation(y))


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_each_class_has_the_exact_count_of_wrong_labels(kind: str, precision: str) -> None:
    y = labels(10, 100, 37)
    lanes = lanes_with(0.0, 0.35, 0.5, 1.0, corruption=kind, precision=precision)
    given = corruption.corrupted(lanes, y, 3)
    wrong = [[int((given[lane] != y)[y == c].sum()) for c in range(3)] for lane in range(4)]
    assert wrong == [[0, 0, 0], [4, 35, 13], [5, 50, 19], [10, 100, 37]]
    assert given.min() >= 0
    assert given.max() < 3


def test_counts_of_large_classes_are_exact_in_single_precision() -> None:
    y = labels(30_010, 3)  # 0.35 of the first is 10,503.5, but slightly less in single precision
    given = corruption.corrupted(lanes_with(0.35), y, 2)
    assert int((given[0] != y)[y == 0].sum()) == 10_504


@examples(30)
@given(
    counts=st.lists(st.integers(0, 40), min_size=2, max_size=6).filter(sum),
    rates=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=4),
)
def test_the_chosen_samples_are_those_of_a_slow_reference(counts: list[int], rates: list[float]) -> None:
    """The reference shuffles each class by the drawn numbers and takes the first ones."""
    y, lanes = labels(*counts), lanes_with(*rates)
    found = corruption.chosen(lanes, y, len(counts), lanes["noise_rate"])
    u = lanes.uniform("corruption", len(y))
    for lane, rate in enumerate(rates):
        expected = set()
        for c, count in enumerate(counts):
            members = sorted((i for i in range(len(y)) if y[i] == c), key=lambda i: float(u[lane, i]))
            expected |= set(members[: int(rate * count + 0.5 + 1e-4)])
        assert set(found[lane].nonzero()[:, 0].tolist()) == expected


def test_lanes_may_have_different_labels() -> None:
    y = torch.stack([labels(20, 30), labels(25, 25)])
    lanes = lanes_with(0.2, 0.4)
    together = corruption.symmetric(lanes, y, 2, lanes["noise_rate"])
    for lane in range(2):
        alone = lanes.select([lane])
        assert torch.equal(corruption.symmetric(alone, y[lane], 2, alone["noise_rate"])[0], together[lane])


def test_a_higher_rate_corrupts_the_same_samples_and_more() -> None:
    y = labels(50, 50, 50)
    lanes = Lanes([Params(noise_rate=rate) for rate in (0.1, 0.3)], [5, 5])
    low, high = corruption.corrupted(lanes, y, 3)
    assert torch.equal(high[low != y], low[low != y])
    assert int((high != y).sum()) == 45


def test_different_seeds_corrupt_different_samples() -> None:
    y = labels(50, 50)
    first, second = corruption.corrupted(lanes_with(0.3, 0.3), y, 2) != y
    assert not torch.equal(first, second)


def test_symmetric_noise_is_uniform_over_the_other_classes() -> None:
    y = labels(*[6000] * 4)
    (given,) = corruption.corrupted(lanes_with(0.5), y, 4)
    for c in range(4):
        counts = given[y == c].bincount(minlength=4)
        assert counts[c] == 3000
        assert stats.chisquare(np.delete(counts.numpy(), c)).pvalue > 1e-4


def test_pair_noise_goes_to_the_next_class() -> None:
    y = labels(30, 30, 30)
    (given,) = corruption.corrupted(lanes_with(0.5, corruption="pair"), y, 3)
    assert torch.equal(given[given != y], (y[given != y] + 1) % 3)


def test_instance_noise_has_the_rate_of_a_truncated_normal_and_depends_on_the_input() -> None:
    generator = torch.Generator().manual_seed(0)
    y = labels(*[4000] * 3)
    x = torch.randn(12_000, 5, generator=generator)
    rates = (0.0, 0.2, 0.45)
    lanes = lanes_with(*rates, corruption="instance")
    given = corruption.corrupted(lanes, y, 3, x.__getitem__)
    wrong = (given != y).double().mean(dim=1)
    for lane, rate in enumerate(rates[1:], start=1):
        cut = stats.truncnorm(-rate / 0.1, (1 - rate) / 0.1, loc=rate, scale=0.1)
        assert wrong[lane] == pytest.approx(cut.mean(), abs=4 * (rate * (1 - rate) / 12_000) ** 0.5)
    assert wrong[0] == 0
    # If the map of class 0 prefers class 1 to class 2, wrong labels are more often 1.
    maps = lanes.normal("corruption.map", 3, 5, 3)[2, 0]
    prefers = (x @ maps)[:, 1] > (x @ maps)[:, 2]
    of_zero = (y == 0) & (given[2] != y)
    assert (given[2] == 1)[of_zero & prefers].double().mean() > 0.7
    assert (given[2] == 1)[of_zero & ~prefers].double().mean() < 0.3


def test_instance_noise_equals_a_slow_reference() -> None:
    y, x = labels(20, 20, 20), torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
    lanes = lanes_with(0.4, 0.3, corruption="instance", precision="float64")
    found = corruption.corrupted(lanes, y, 3, x.__getitem__)
    maps, u = lanes.normal("corruption.map", 3, 4, 3), lanes.uniform("corruption", 60)
    chance, pick = lanes.uniform("corruption.chance", 60), lanes.uniform("corruption.label", 60)
    for lane, rate in enumerate((0.4, 0.3)):
        cut = stats.truncnorm(-rate / 0.1, (1 - rate) / 0.1, loc=rate, scale=0.1)
        for i in range(60):
            logits = (x[i].double() @ maps[lane, y[i]]).numpy()
            p = np.exp(logits)
            p[y[i]] = 0
            other = int(np.searchsorted(np.cumsum(p / p.sum()), float(pick[lane, i])))
            wrong = float(u[lane, i]) < cut.ppf(float(chance[lane, i]))
            expected = other if wrong else int(y[i])
            assert int(found[lane, i]) == expected


def test_a_run_has_the_same_wrong_labels_alone_and_in_a_pack() -> None:
    y, x = labels(30, 30), torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
    for kind in ("symmetric", "pair", "instance"):
        lanes = lanes_with(0.1, 0.3, 0.6, corruption=kind)
        together = corruption.corrupted(lanes, y, 2, x.__getitem__)
        for lane in range(3):
            assert torch.equal(corruption.corrupted(lanes.select([lane]), y, 2, x.__getitem__)[0], together[lane])


def test_labels_are_replaced_independently_at_every_step() -> None:
    lanes = Lanes([Params(relabel_rate=rate) for rate in (0.0, 0.2, 1.0)], range(3))
    y = torch.zeros(3, 4000, 5, dtype=torch.int64)
    given = corruption.relabelled(lanes, y, 4, lanes["relabel_rate"], range(4000))
    wrong = (given != y).double().mean(dim=(1, 2))
    for lane, rate in enumerate((0.0, 0.2, 1.0)):
        assert wrong[lane] == pytest.approx(rate * 3 / 4, abs=4 * (0.25 / 20_000) ** 0.5)
    assert torch.equal(
        corruption.relabelled(lanes, y[:, 100:200], 4, lanes["relabel_rate"], range(100, 200)), given[:, 100:200]
    )
    assert not torch.equal(given[2, 0], given[2, 1])


def test_smoothing_is_the_mean_of_replaced_labels() -> None:
    lanes = Lanes([Params(relabel_rate=rate) for rate in (0.1, 0.6)], range(2))
    y = torch.ones(2, 20_000, 1, dtype=torch.int64)
    given = corruption.relabelled(lanes, y, 3, lanes["relabel_rate"], range(20_000))
    mean = torch.nn.functional.one_hot(given, 3).double().mean(dim=(1, 2))
    expected = corruption.smoothed(y[:, 0, 0], 3, lanes["relabel_rate"])
    assert torch.allclose(mean, expected.double(), atol=0.015)
    assert torch.allclose(expected[0], torch.tensor([0.1 / 3, 0.9 + 0.1 / 3, 0.1 / 3]))
    assert corruption.smoothed(y, 3, lanes["relabel_rate"]).shape == (2, 20_000, 1, 3)


def test_noise_for_regression_is_plus_or_minus_sigma() -> None:
    lanes = Lanes([Params()] * 2, range(2))
    noise = corruption.signed(lanes, "noise", torch.tensor([0.5, 2.0]), 3, steps=range(1000))
    assert noise.shape == (2, 1000, 3)
    assert noise.unique(sorted=True).tolist() == [-2, -0.5, 0.5, 2]
    assert abs(float(noise[1].mean())) < 4 * 2 / 3000**0.5
