import math

import pytest

from mislabel.sweeps.store.cell_means import Mean, Means
from mislabel.sweeps.store.outcome import Outcome, Status
from mislabel.sweeps.store.store import Store
from tests.bowls import bowl_spec, means_of, prepared, run, runs_of


def ended(
    cell: str, seed: int, loss: float, height: float = 0.0, status: Status = Status.DONE, step: int = 8
) -> Outcome:
    return Outcome(cell, seed, status, {"loss": loss, "height": height}, step)


def complete(means: Means) -> dict[str, Mean]:
    """The mean of every cell whose seeds have all ended."""
    return {cell: mean for cell in means._runs if (mean := means.of(cell)) is not None}


def test_a_cell_has_a_mean_once_all_seeds_have_ended(store: Store) -> None:
    means = means_of(bowl_spec(seeds=3), store.sweep("bowls"))
    means.add(ended("a", 0, 1.0))
    means.add(ended("a", 2, 4.0))
    assert means.of("a") is None
    means.add(ended("a", 1, 1.0))
    assert means.of("a") == Mean((2.0,))
    assert means.of("b") is None
    assert complete(means) == {"a": Mean((2.0,))}


def test_a_mean_has_the_same_bits_in_any_order_of_seeds(store: Store) -> None:
    values = {0: 0.1, 1: 1e16, 2: -1e16, 3: 0.3}
    results = []
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        means = means_of(bowl_spec(seeds=4), store.sweep("bowls"))
        for seed in order:
            means.add(ended("a", seed, values[seed]))
        results.append(means.of("a"))
    assert results[0] == results[1] == results[2]


def test_each_of_several_objectives_has_a_mean(store: Store) -> None:
    metric = [{"name": "loss", "goal": "minimize"}, {"name": "height", "goal": "maximize"}]
    means = means_of(bowl_spec(metric=metric), store.sweep("bowls"))
    means.add(ended("a", 0, 1.0, 10.0))
    means.add(ended("a", 1, 3.0, 30.0))
    assert means.of("a") == Mean((2.0, 20.0))


@pytest.mark.parametrize(("goal", "best"), [("minimize", 1.0), ("maximize", 3.0)])
def test_the_best_is_the_lowest_or_the_highest_and_always_finite(store: Store, goal: str, best: float) -> None:
    means = means_of(
        bowl_spec(seeds=1, metric={"name": "loss", "goal": goal}),
        store.sweep("bowls"),
    )
    for cell, value in {"a": 2.0, "b": math.nan, "c": 1.0, "d": math.inf, "e": -math.inf, "f": 3.0}.items():
        means.add(ended(cell, 0, value))
    assert means.best is not None
    assert means.best[0] == best


def test_means_of_earlier_launches_are_read_from_the_store(store: Store) -> None:
    launch = run(store, parameters={"x": {"values": [0, 1]}, "trouble": {"values": [0, 2]}})
    means = means_of(launch.plan.spec, launch.files)
    table = runs_of(launch.files).groupby("cell_id")["loss"].agg(lambda losses: losses.mean(skipna=False))
    found = complete(means)
    assert set(found) == set(table.index)
    for cell, mean in found.items():
        assert mean.values[0] == pytest.approx(table[cell], nan_ok=True)


def test_failed_seeds_have_ended_unless_they_are_retried(store: Store) -> None:
    launch = run(store, parameters={"trouble": {"values": [0, 1]}})
    found = complete(means_of(launch.plan.spec, launch.files))
    assert sorted(math.isnan(mean.values[0]) for mean in found.values()) == [False, True]
    assert len(complete(means_of(launch.plan.spec, launch.files, retry=True))) == 1


def test_means_need_no_metric_columns_if_all_runs_failed(store: Store) -> None:
    launch = run(store, parameters={"trouble": 1})
    (mean,) = complete(means_of(launch.plan.spec, launch.files)).values()
    assert math.isnan(mean.values[0])


def test_lost_seeds_have_not_ended(store: Store) -> None:
    launch = prepared(store)
    order = launch.driver.next()
    assert order is not None
    launch.driver.lost(order.id, "its worker died")
    assert complete(means_of(launch.plan.spec, launch.files)) == {}


def test_seeds_that_are_no_longer_in_the_spec_are_not_averaged(store: Store) -> None:
    launch = run(store, seeds={"count": 3, "first": 0})
    later = bowl_spec(seeds={"count": 2, "first": 1})
    found = complete(means_of(later, launch.files))
    table = runs_of(launch.files)
    expected = table[table["seed"] > 0].groupby("cell_id")["loss"].mean()
    assert {cell: mean.values[0] for cell, mean in found.items()} == pytest.approx(expected.to_dict())


def test_a_cell_with_a_stopped_run_can_not_be_compared(store: Store) -> None:
    means = means_of(bowl_spec(seeds=2), store.sweep("bowls"))
    means.add(ended("a", 0, 1.0))
    means.add(ended("a", 1, 2.0, status=Status.STOPPED, step=4))
    assert means.of("a") == Mean((1.5,), stopped_at=4)
    assert means.best is None


def test_a_cell_is_stopped_at_the_first_stop_of_its_runs(store: Store) -> None:
    means = means_of(bowl_spec(seeds=3), store.sweep("bowls"))
    for seed, step in enumerate((6, 4, 8)):
        means.add(ended("a", seed, 1.0, status=Status.STOPPED, step=step))
    assert means.of("a") == Mean((1.0,), stopped_at=4)


@pytest.mark.parametrize(("goal", "best"), [("minimize", (2.0, "b")), ("maximize", (7.0, "c"))])
def test_the_best_cell_changes_when_its_mean_gets_worse(store: Store, goal: str, best: tuple[float, str]) -> None:
    means = means_of(bowl_spec(seeds=2, metric={"name": "loss", "goal": goal}), store.sweep("bowls"))
    for cell, losses in {"a": (0.0, 8.0), "b": (2.0, 2.0), "c": (6.0, 8.0)}.items():
        for seed, loss in enumerate(losses):
            means.add(ended(cell, seed, loss))
    assert means.best == best


def test_a_diverged_run_has_no_value_though_its_last_metrics_are_finite(store: Store) -> None:
    means = means_of(bowl_spec(seeds=2), store.sweep("bowls"))
    means.add(ended("a", 0, 1.0))
    means.add(ended("a", 1, 0.5, status=Status.DIVERGED, step=1))
    found = means.of("a")
    assert found is not None
    assert math.isnan(found.values[0])
    assert not found.comparable
    assert means.best is None


def test_a_cell_that_gets_more_seeds_has_no_mean_until_they_have_ended(store: Store) -> None:
    means = means_of(bowl_spec(seeds=2), store.sweep("bowls"))
    for seed, loss in enumerate((1.0, 3.0, 5.0)):
        means.add(ended("a", seed, loss))
    assert means.of("a") == Mean((2.0,))
    means.seeding.want("a", 3)
    assert means.of("a") == Mean((3.0,))
    means.seeding.want("a", 4)
    assert means.of("a") is None
    assert means.by_seed("a") == {0: (1.0,), 1: (3.0,), 2: (5.0,)}


def test_the_best_cell_keeps_its_mean_while_it_gets_more_seeds(store: Store) -> None:
    means = means_of(bowl_spec(seeds=2), store.sweep("bowls"))
    for cell, loss in {"a": 1.0, "b": 2.0}.items():
        for seed in (0, 1):
            means.add(ended(cell, seed, loss))
    means.seeding.want("a", 4)
    assert means.best == (1.0, "a")
    means.add(ended("a", 3, 2.5))
    assert means.best == (1.5, "a")
    means.add(ended("a", 2, 0.0, status=Status.FAILED))
    assert means.best == (1.5, "a"), "a further seed that failed has no value"
    means.add(ended("a", 2, 0.5, status=Status.DIVERGED))
    assert means.best == (2.0, "b"), "tables rank a cell with a diverged run behind the others"


def test_the_best_cell_counts_all_seeds_in_the_store(store: Store) -> None:
    """A race of an earlier launch gave the cell more seeds than the spec asks for at first."""
    launch = run(store, seeds=4)
    means = means_of(bowl_spec(seeds={"count": 2, "up_to": 4}), launch.files)
    losses = runs_of(launch.files).groupby("cell_id")["loss"].mean()
    assert means.best is not None
    value, cell = means.best
    assert cell == losses.idxmin()
    assert value == pytest.approx(losses.min())
