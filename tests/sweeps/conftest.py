"""What tests of sweeps share: the files of one sweep in a store of its own."""

import pytest

from mislabel.sweeps.store.store import Store, SweepFiles


@pytest.fixture
def files(store: Store) -> SweepFiles:
    return store.sweep("bowls")
