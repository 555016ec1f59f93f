"""The dictionary, compared with a list."""

import pytest
import torch

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.self_labeling.keys import NO_SAMPLE, enqueued, random_dictionary
from mislabel.tasks.training import Training


@pytest.mark.parametrize(("size", "batch"), [(8, 4), (7, 3), (3, 5), (4, 4)], ids=str)
def test_the_last_keys_are_kept_first_in_first_out(size: int, batch: int) -> None:
    lanes = Lanes([Training()] * 2, range(2))
    held = random_dictionary(lanes, size, 3)
    torch.testing.assert_close(held.keys.norm(dim=2), torch.ones(2, size))
    assert (held.samples == NO_SAMPLE).all()
    expected = [[(tuple(key), NO_SAMPLE) for key in held.keys[lane].tolist()] for lane in range(2)]
    for step in range(9):
        keys = lanes.normal("key", batch, 3, steps=range(step, step + 1))[:, 0]
        samples = lanes.integers("sample", 100, batch, steps=range(step, step + 1))[:, 0]
        before = held.keys.clone()
        after = enqueued(held, keys, samples, step)
        assert torch.equal(held.keys, before), "the dictionary that was given changed"
        held = after
        for lane in range(2):
            new = [
                (tuple(key), sample) for key, sample in zip(keys[lane].tolist(), samples[lane].tolist(), strict=True)
            ]
            expected[lane] = (expected[lane] + new)[-size:]
            found = zip((tuple(key) for key in held.keys[lane].tolist()), held.samples[lane].tolist(), strict=True)
            assert sorted(found) == sorted(expected[lane])
