import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.images.augmentation.shifts import padded_crop_and_flip, shifted
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.training import Training


def lanes_of(*seeds: int) -> Lanes[Training]:
    return Lanes([Training()] * len(seeds), seeds)


def pictures(*counts: int, size: tuple[int, int, int] = (3, 6, 5)) -> Tensor:
    """No pixel of an image has the value of another, and none is 0."""
    pixels = torch.Size(size).numel()
    images = torch.Size(counts).numel()
    return (1 + torch.arange(images * pixels)).reshape(*counts, *size)


def test_a_shift_is_a_window_on_the_padded_image() -> None:
    x = pictures(4)
    down, right, flipped = torch.tensor([0, -2, 4, 1]), torch.tensor([0, 3, -4, -1]), torch.tensor([0, 0, 1, 1]).bool()
    padded = functional.pad(x, (4, 4, 4, 4))
    for image, out in enumerate(shifted(x, down, right, flipped)):
        top, left = 4 + int(down[image]), 4 + int(right[image])
        window = padded[image, :, top : top + 6, left : left + 5]
        assert torch.equal(out, window.flip(-1) if flipped[image] else window)


def test_a_shift_by_hand() -> None:
    x = torch.tensor([[[[1, 2], [3, 4]]]])
    one = torch.tensor([1])
    assert shifted(x, one, 0 * one, one > 1).tolist() == [[[[3, 4], [0, 0]]]]
    assert shifted(x, 0 * one, one, one > 1, fill=9).tolist() == [[[[2, 9], [4, 9]]]]
    assert shifted(x, 0 * one, one, one > 0).tolist() == [[[[0, 2], [0, 4]]]]


def test_without_padding_and_flips_nothing_happens() -> None:
    x = pictures(2, 3)
    assert torch.equal(padded_crop_and_flip(lanes_of(0, 1), "train", x, 5, padding=0, flip_chance=0), x)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_run_sees_the_same_shifts_alone_and_in_a_pack(dtype: torch.dtype) -> None:
    x = pictures(3, 7).to(dtype)
    packed = padded_crop_and_flip(lanes_of(4, 5, 6), "train", x, 2)
    assert packed.dtype == dtype
    for lane, seed in enumerate((4, 5, 6)):
        alone = padded_crop_and_flip(lanes_of(seed), "train", x[lane : lane + 1], 2)
        assert torch.equal(alone[0], packed[lane])


def test_steps_names_and_seeds_have_different_shifts() -> None:
    x = pictures(1, 20)
    first = padded_crop_and_flip(lanes_of(0), "train", x, 0)
    for lanes, name, step in ((lanes_of(0), "train", 1), (lanes_of(0), "other", 0), (lanes_of(1), "train", 0)):
        assert not torch.equal(padded_crop_and_flip(lanes, name, x, step), first)


def test_a_smaller_batch_has_the_first_shifts_of_a_full_one() -> None:
    x = pictures(1, 20)
    whole = padded_crop_and_flip(lanes_of(0), "train", x, 7)
    assert torch.equal(padded_crop_and_flip(lanes_of(0), "train", x[:, :8], 7, whole=20), whole[:, :8])


def test_all_shifts_are_equally_likely_and_half_are_flipped() -> None:
    # One bright pixel in the middle shows the shift; a brighter one to its right shows mirroring.
    x = torch.zeros(1, 20_000, 1, 11, 11)
    x[..., 5, 5], x[..., 5, 6] = 1.0, 2.0
    out = padded_crop_and_flip(lanes_of(3), "train", x, 0)[0, :, 0]
    place = (out == 1).flatten(1).int().argmax(dim=1)
    rows, columns = place // 11, place % 11
    for axis in (rows, columns):
        shares = torch.bincount(axis, minlength=11)[1:10] / 20_000
        assert shares.sum() == 1
        # Five standard deviations of a share of 1/9 among 20,000.
        assert (shares - 1 / 9).abs().max() < 5 * (1 / 9 * 8 / 9 / 20_000) ** 0.5
    brighter = (out == 2).flatten(1).int().argmax(dim=1)
    share = ((brighter < place) & (out == 2).flatten(1).any(dim=1)).float().mean()
    assert abs(share - 0.5) < 5 * 0.5 / 20_000**0.5
