"""The dictionary, compared with a list."""

import pytest
import torch

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.self_labeling.contrast import enqueued
from mislabel.tasks.training import Training


@pytest.mark.parametrize(("size", "batch"), [(8, 4), (7, 3), (3, 5), (4, 4)], ids=str)
def test_the_last_keys_are_kept_first_in_first_out(size: int, batch: int) -> None:
    lanes = Lanes([Training()] * 2, range(2))
    held, held_samples = lanes.normal("dictionary", size, 3), torch.full((2, size), -1)
    expected = [[(tuple(key), -1) for key in held[lane].tolist()] for lane in range(2)]
    for step in range(9):
        keys = lanes.normal("key", batch, 3, steps=range(step, step + 1))[:, 0]
        samples = lanes.integers("sample", 100, batch, steps=range(step, step + 1))[:, 0]
        before = held.clone()
        after = enqueued(held, keys, step)
        assert torch.equal(held, before), "the dictionary that was given changed"
        held, held_samples = after, enqueued(held_samples, samples, step)
        for lane in range(2):
            new = [
                (tuple(key), sample) for key, sample in zip(keys[lane].tolist(), samples[lane].tolist(), strict=True)
            ]
            expected[lane] = (expected[lane] + new)[-size:]
            found = zip((tuple(key) for key in held[lane].tolist()), held_samples[lane].tolist(), strict=True)
            assert sorted(found) == sorted(expected[lane])
