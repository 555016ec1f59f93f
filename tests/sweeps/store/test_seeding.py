from mislabel.sweeps.store.cell_means import Seeding
from tests.bowls import bowl_spec


def test_cells_have_the_seeds_of_the_spec_until_more_are_requested() -> None:
    seeding = Seeding(bowl_spec(seeds={"count": 2, "first": 10}))
    assert seeding.of("a") == range(10, 12)
    seeding.want("a", 5)
    assert seeding.of("a") == range(10, 15)
    assert seeding.of("b") == range(10, 12)
