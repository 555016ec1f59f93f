import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from mislabel.sweeps.plan.seed_race import Race, beyond_doubt
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.cell_means import Means
from mislabel.sweeps.store.outcome import Outcome, Status
from mislabel.sweeps.store.store import Store
from tests.bowls import bowl_spec

Value = Callable[[str, int], float]


def spec_of(count: int = 4, up_to: int = 32, goal: str = "minimize") -> Spec:
    seeds = {"count": count, "up_to": up_to}
    return bowl_spec(seeds=seeds, metric={"name": "loss", "goal": goal})


def told(means: Means, cell: str, value: Value, status: Status = "done") -> None:
    """All runs of the cell end that have not."""
    for seed in means.seeding.of(cell):
        if seed not in means.by_seed(cell):
            means.add(Outcome(cell, seed, status, {"loss": value(cell, seed)}))


def raced(store: Store, cells: dict[str, float], value: Value, spec: Spec | None = None) -> tuple[Race, Means]:
    """A race from its beginning to its end."""
    spec = spec or spec_of()
    means = Means(spec, store.sweep("bowls"))
    for cell in cells:
        told(means, cell, value)
    race = Race(spec, means)
    race.begin([cells])
    while more := race.go_on():
        for cell in more:
            told(means, cell, value)
    return race, means


def noisy(cells: dict[str, float], common: float = 0.0, own: float = 1.0, salt: int = 0) -> Value:
    """Around each cell's mean: noise that all cells share by seed, and noise of its own."""

    def value(cell: str, seed: int) -> float:
        shared = np.random.default_rng([salt, seed]).normal()
        alone = np.random.default_rng([salt, seed, *cell.encode()]).normal()
        return float(cells[cell] + common * shared + own * alone)

    return value


@pytest.mark.parametrize(("goal", "sign"), [("minimize", 1), ("maximize", -1)])
def test_clear_losers_keep_their_seeds_and_contenders_get_all(store: Store, goal: str, sign: int) -> None:
    cells = {"a": 0.0, "b": 0.0, "c": sign * 100.0, "d": sign * 200.0}
    _, means = raced(store, cells, noisy(cells), spec_of(goal=goal))
    assert [len(means.by_seed(cell)) for cell in cells] == [32, 32, 4, 4]


def test_what_seeds_share_does_not_hide_a_loser(store: Store) -> None:
    """The noise between seeds is a hundred times the difference, but common to both cells."""
    cells = {"a": 0.0, "b": 1.0}
    race, means = raced(store, cells, noisy(cells, common=100.0, own=0.1))
    assert race.racing == [["a"]]
    assert [len(means.by_seed(cell)) for cell in cells] == [4, 4]


def test_a_small_difference_takes_more_seeds(store: Store) -> None:
    cells = {"a": 0.0, "b": 1.2}
    counts = []
    for salt in range(20):
        _, means = raced(store, cells, noisy(cells, salt=salt), spec_of(4, 256))
        counts.append(len(means.by_seed("b")))
    assert 4 < np.mean(counts) < 100


def test_the_best_cell_is_seldom_dropped(store: Store) -> None:
    """At the worst, where many others are as good as it and one of them leads by luck, in one race in twenty."""
    cells = dict.fromkeys("abcdefghij", 0.0)
    dropped = 0
    for salt in range(200):
        race, _ = raced(store, cells, noisy(cells, salt=salt), spec_of(4, 16))
        dropped += not any("a" in left for left in race.racing)
    assert dropped <= stats.binom.ppf(0.99, 200, 0.05)


def test_a_restart_decides_the_same(store: Store) -> None:
    cells = {name: 0.3 * i for i, name in enumerate("abcdef")}
    first, known = raced(store, cells, noisy(cells))
    means = Means(spec_of(), store.sweep("bowls"))
    for cell in cells:
        for seed, (loss,) in known.by_seed(cell).items():
            means.add(Outcome(cell, seed, "done", {"loss": loss}))
    again = Race(spec_of(), means)
    again.begin([cells])
    assert again.go_on() == []
    assert again.racing == first.racing
    assert [means.of(cell) for cell in cells] == [known.of(cell) for cell in cells]


def test_cells_without_a_comparable_mean_take_no_part(store: Store) -> None:
    means = Means(spec_of(), store.sweep("bowls"))
    told(means, "a", lambda cell, seed: 1.0)
    told(means, "b", lambda cell, seed: math.nan, "diverged")
    told(means, "c", lambda cell, seed: 0.0, "stopped")
    told(means, "d", lambda cell, seed: 1.0)
    race = Race(spec_of(), means)
    race.begin([["a", "b", "c", "d"]])
    assert race.racing == [["a", "d"]]


def test_a_contender_that_diverges_leaves_the_race(store: Store) -> None:
    race, _ = raced(store, {"a": 0, "b": 0}, lambda cell, seed: math.nan if cell == "a" and seed > 5 else seed % 3)
    assert race.racing == [["b"]]


def test_each_branch_has_a_race_of_its_own(store: Store) -> None:
    cells = {"a": 0.0, "b": 0.0, "c": 50.0, "d": 50.0, "e": 90.0}
    means = Means(spec_of(), store.sweep("bowls"))
    for cell in cells:
        told(means, cell, noisy(cells))
    race = Race(spec_of(), means)
    race.begin([["a", "b"], ["c", "d", "e"]])
    assert set(race.go_on()) == {"a", "b", "c", "d"}
    assert race.seeds == 8


def test_cells_that_are_always_equal_stay_in_the_race(store: Store) -> None:
    race, means = raced(store, {"a": 0, "b": 0}, lambda cell, seed: float(seed))
    assert race.racing == [["a", "b"]]
    assert len(means.by_seed("b")) == 32


def test_the_test_is_scipys_and_a_single_seed_decides_nothing() -> None:
    values = np.random.default_rng(0).normal(0.5, 1, (50, 6))
    p = stats.ttest_1samp(values, 0, axis=1, alternative="greater").pvalue
    assert (beyond_doubt(values, 0.05) == (p < 0.05)).all()
    assert not beyond_doubt(np.full((3, 1), 9.0), 0.05).any()
    assert beyond_doubt(np.array([[1.0, 1.0], [0.0, 0.0], [-1.0, -1.0]]), 0.05).tolist() == [True, False, False]
