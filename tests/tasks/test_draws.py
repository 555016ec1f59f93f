"""Random numbers by seed, name and index: the right bits, the right distributions, independent streams."""

import hashlib

import numpy as np
import pytest
import torch
from scipy import stats

from mislabel.tasks import draws
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.training import Training

CPU = torch.device("cpu")
WORD = (1 << 64) - 1


def mixed(z: int) -> int:
    """SplitMix64's finalizer in Python integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def word(seed: int, name: str, index: int) -> int:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    first, second = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
    return mixed(mixed((index * 0x9E3779B97F4A7C15 + first) & WORD) ^ second)


def lanes(*seeds: int, precision: str = "float64") -> Lanes[Training]:
    return Lanes([Training(precision=precision)] * len(seeds), seeds)


@pytest.mark.parametrize("first", [0, 1, 12345, 2**40])
def test_bits_are_those_of_a_slow_reference(first: int) -> None:
    seeds = [0, 1, 987654321]
    found = draws.bits(draws.keys(seeds, "w", CPU), first, 5)
    expected = [[word(seed, "w", first + i) for i in range(5)] for seed in seeds]
    assert [[number & WORD for number in row] for row in found.tolist()] == expected


def test_known_bits_never_change() -> None:
    # Stored results depend on these bits: if they change, the version of every task must change.
    found = draws.bits(draws.keys([7], "x", CPU), 0, 3)[0].tolist()
    assert [number & WORD for number in found] == [0x092F07E23A57229A, 0xCDD9F8A4326CF26C, 0x60FE8CE6525C912F]


def test_uniform_numbers_are_never_0_or_1() -> None:
    extremes = torch.tensor([0, -1, 1, (1 << 63) - 1, -(1 << 63)])
    numbers = draws.uniform(extremes)
    assert numbers.min() > 0
    assert numbers.max() < 1
    assert torch.special.ndtri(numbers).isfinite().all()


def test_a_number_that_single_precision_would_round_to_one_stays_below_it() -> None:
    near_one = range(10_638_752, 10_638_753)
    exact = lanes(0).uniform("u", steps=near_one)
    assert exact.item() > 1 - 2**-25
    assert exact.float().item() == 1
    assert lanes(0, precision="float32").uniform("u", steps=near_one).item() == 1 - 2**-24


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_uniform_and_normal_numbers_follow_their_distributions(precision: str) -> None:
    pack = lanes(3, precision=precision)
    assert stats.kstest(pack.uniform("u", 200_000)[0].numpy(), "uniform").pvalue > 0.01
    assert stats.kstest(pack.normal("z", 200_000)[0].numpy(), "norm").pvalue > 0.01


def test_signs_integers_and_permutations_are_fair() -> None:
    pack = lanes(5)
    assert stats.binomtest(int((pack.sign("s", 100_000) > 0).sum()), 100_000).pvalue > 0.01
    counts = torch.bincount(pack.integers("i", 10, 100_000)[0], minlength=10)
    assert len(counts) == 10
    assert stats.chisquare(counts.numpy()).pvalue > 0.01
    assert pack.permutation("p", 50)[0].sort().values.tolist() == list(range(50))
    firsts = torch.bincount(lanes(*range(5000)).permutation("p", 5)[:, 0], minlength=5)
    assert stats.chisquare(firsts.numpy()).pvalue > 0.01


def test_whole_numbers_are_the_integers_below_their_bound() -> None:
    pack = lanes(0, 1)
    assert torch.equal(pack.whole("i", 3, steps=range(5, 900)), pack.integers("i", 1 << 52, 3, steps=range(5, 900)))


def test_names_seeds_and_steps_are_independent() -> None:
    count = 100_000
    pack = lanes(0, 1)
    a, b = pack.normal("a", count), pack.normal("b", count)
    streams = np.stack([a[0], a[1], b[0], np.roll(a[0], 1), lanes(2**63).normal("a", count)[0]])
    correlation = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(correlation).max() < 4.5 / np.sqrt(count)


def test_consecutive_seeds_give_evenly_spread_first_numbers() -> None:
    assert stats.kstest(lanes(*range(20_000)).uniform("u", 1)[:, 0].numpy(), "uniform").pvalue > 0.01


@pytest.mark.parametrize("kind", ["normal", "uniform", "sign"])
def test_numbers_of_many_steps_are_those_of_each_step(kind: str) -> None:
    pack = lanes(1, 2, precision="float32")
    draw = getattr(pack, kind)
    together = draw("z", 3, 2, steps=range(5, 9))
    assert together.shape == (2, 4, 3, 2)
    for place, step in enumerate(range(5, 9)):
        assert torch.equal(together[:, place], draw("z", 3, 2, steps=range(step, step + 1))[:, 0])


def test_a_lane_draws_the_same_in_any_pack() -> None:
    # Large enough for several slices, which differ between one lane and three.
    count = draws._SLICE + 17
    alone, packed = lanes(4).normal("z", count), lanes(9, 4, 6).normal("z", count)
    assert torch.equal(alone[0], packed[1])
    assert not torch.equal(packed[0], packed[1])
