"""Weak views: crops, colours and blur, compared with torchvision, one image at a time."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mislabel.tasks.data.torchvision_import import vision
from mislabel.tasks.images.augmentation import blur, colours, crops
from mislabel.tasks.images.augmentation.colours import BRIGHTNESS, CONTRAST, HUE, SATURATION, Change, Jitter
from mislabel.tasks.images.augmentation.crops import Boxes
from mislabel.tasks.images.augmentation.views import Views, cifar10, imagenet, statistics
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.training import Training

reference = vision("transforms.v2.functional")
STILL = Views(
    size=12,
    mean=(0.0,) * 3,
    std=(1.0,) * 3,
    scale=(1, 1),
    ratio=(1, 1),
    flip_chance=0,
    jitter=Jitter(chance=0),
    gray_chance=0,
)


def lanes_of(*seeds: int, precision: str = "float32") -> Lanes[Training]:
    return Lanes([Training(precision=precision)] * len(seeds), seeds)


def pictures(*counts: int, size: tuple[int, int, int] = (3, 12, 12)) -> Tensor:
    """Smooth shades with noise, some channels black or white, and an image of one colour."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(*counts, *size, generator=generator).cumsum(-1)
    x = x / x.amax(dim=(-2, -1), keepdim=True) + 0.4 * torch.rand(x.shape, generator=generator) - 0.2
    x = (255 * x.clamp(0, 1)).round().to(torch.uint8)
    x.view(-1, *size)[-1] = 77
    return x


@pytest.mark.parametrize(("old", "new"), [((12, 12), 12), ((12, 12), 7), ((16, 11), 5), ((9, 20), 24)])
def test_resized_crops_are_torchvisions(old: tuple[int, int], new: int) -> None:
    """Enlarged and reduced ones; the tolerance is rounding in single precision."""
    x = pictures(40, size=(3, *old)).float() / 255
    boxes = crops.drawn_boxes(lanes_of(1), "a", 0, 40, old, (0.05, 1), (0.5, 2))
    flipped = torch.arange(40) % 2 == 1
    out = crops.resized(x, boxes, new, flipped)
    for image, (top, left, height, width) in enumerate(
        zip(boxes.top, boxes.left, boxes.height, boxes.width, strict=True)
    ):
        right = reference.resized_crop(x[image], int(top), int(left), int(height), int(width), [new, new])
        torch.testing.assert_close(out[image], right.flip(-1) if flipped[image] else right, atol=2e-6, rtol=0)


def test_resized_crops_are_pils_to_rounding() -> None:
    """PIL rounds to bytes after rows and after columns, by at most half a step each, and rounds weights to 1/256."""
    x = pictures(10)
    box = Boxes(*(torch.full((10,), at) for at in (2, 1, 9, 10)))
    for size in (5, 12, 20):
        out = crops.resized(x.float(), box, size)
        for image in range(10):
            whole = Image.fromarray(x[image].permute(1, 2, 0).numpy())
            right = whole.crop((1, 2, 11, 11)).resize((size, size), Image.Resampling.BILINEAR)
            away = out[image].permute(1, 2, 0).numpy() - np.asarray(right, dtype=np.float32)
            assert np.abs(away).max() < 1.1


def test_a_crop_by_hand() -> None:
    x = torch.tensor([[[[0.0, 1.0, 2.0, 3.0]] * 4]])
    middle = Boxes(*(torch.tensor([at]) for at in (1, 1, 2, 2)))
    assert crops.resized(x, middle, 2)[0, 0].tolist() == [[1, 2], [1, 2]]
    assert crops.resized(x, middle, 2, torch.tensor([True]))[0, 0, 0].tolist() == [2, 1]
    # Beyond the edges of the crop, its last pixels are repeated, not those of the image.
    assert crops.resized(x, middle, 4)[0, 0, 0].tolist() == [1, 1.25, 1.75, 2]


def test_boxes_lie_within_the_image_and_have_the_areas_and_ratios_asked_for() -> None:
    boxes = crops.drawn_boxes(lanes_of(0, 1), "a", 3, 10_000, (100, 100), (0.2, 0.5), (3 / 4, 4 / 3))
    assert len(boxes.top) == 20_000
    assert bool((boxes.top >= 0).all() and (boxes.top + boxes.height <= 100).all())
    assert bool((boxes.left >= 0).all() and (boxes.left + boxes.width <= 100).all())
    area = (boxes.height * boxes.width).double() / 100**2
    ratio = (boxes.width.double() / boxes.height).log()
    # Rounding to whole pixels changes an area by up to 1/45 + 1/45 of itself.
    assert 0.19 < area.min() < 0.205
    assert 0.495 < area.max() < 0.51
    assert abs(area.mean() - 0.35) < 5 * (0.3 / 12**0.5) / 20_000**0.5 + 1e-3
    assert ratio.abs().max() < np.log(4 / 3) + 0.05
    assert abs(ratio.mean()) < 5 * (2 * np.log(4 / 3) / 12**0.5) / 20_000**0.5
    for first, length in ((boxes.top, boxes.height), (boxes.left, boxes.width)):
        place = first.double() / (100 - length)
        assert abs(place.mean() - 0.5) < 5 * 0.3 / 20_000**0.5


def test_if_no_crop_fits_the_central_one_is_taken() -> None:
    for size, middle in (((40, 40), (0, 0, 40, 40)), ((60, 30), (10, 0, 40, 30)), ((30, 60), (0, 10, 30, 40))):
        boxes = crops.drawn_boxes(lanes_of(0), "a", 0, 5, size, (4, 5), (3 / 4, 4 / 3))
        found = torch.stack([boxes.top, boxes.left, boxes.height, boxes.width], dim=1)
        assert found.tolist() == [list(middle)] * 5


def test_a_crop_that_does_not_fit_is_drawn_again() -> None:
    """About half of these don't fit at once, and would be the whole image if they were not drawn again."""
    boxes = crops.drawn_boxes(lanes_of(0), "a", 0, 500, (64, 64), (0.5, 1), (0.5, 2))
    assert (boxes.height * boxes.width == 64 * 64).float().mean() < 0.05


def reference_jitter(x: Tensor, order: list[int], amount: list[float]) -> Tensor:
    apply = {
        BRIGHTNESS: reference.adjust_brightness,
        CONTRAST: reference.adjust_contrast,
        SATURATION: reference.adjust_saturation,
        HUE: reference.adjust_hue,
    }
    for operation in order:
        x = apply[operation](x, amount[operation])
    return x


@pytest.mark.parametrize("channels", [1, 3])
def test_changed_colours_are_torchvisions_in_every_order(channels: int) -> None:
    orders = torch.tensor(list(itertools.permutations(range(4))))
    n = 4 * len(orders)
    x = pictures(n, size=(channels, 12, 12)).float() / 255
    amount = 0.3 + 1.4 * torch.rand(n, 4, generator=torch.Generator().manual_seed(1))
    amount[:, HUE] -= 1
    amount[:, HUE] *= 0.7
    changed = torch.arange(n) % 5 != 0
    order = orders.repeat(4, 1)
    out = colours.jittered(x.clone(), Change(order, amount, changed))
    for image in range(n):
        right = (
            reference_jitter(x[image], order[image].tolist(), amount[image].tolist()) if changed[image] else x[image]
        )
        # Hue near a gray pixel is a quotient of small differences; a channel is still right to rounding.
        torch.testing.assert_close(out[image], right, atol=2e-6, rtol=0)
        if not changed[image]:
            assert torch.equal(out[image], x[image])


def test_hue_by_hand() -> None:
    red = torch.tensor([1.0, 0.0, 0.0])[None, :, None, None]
    turned = [
        colours.with_turned_hue(red, torch.tensor([turn])).flatten().tolist() for turn in (0, 1 / 6, 1 / 3, -1 / 3)
    ]
    np.testing.assert_allclose(turned, [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]], atol=1e-6)
    gray = torch.full((1, 3, 1, 1), 0.4)
    assert torch.equal(colours.with_turned_hue(gray, torch.tensor([0.3])), gray)


def test_changes_are_drawn_evenly() -> None:
    change = colours.drawn_change(lanes_of(0), "a", 0, 24_000, Jitter(0.4, 0.5, 2.0, 0.1, chance=0.8))
    low, high = change.amount.min(dim=0).values, change.amount.max(dim=0).values
    for i, (least, most) in enumerate([(0.6, 1.4), (0.5, 1.5), (0.0, 3.0), (-0.1, 0.1)]):
        assert least <= low[i] < least + 0.01
        assert most - 0.01 < high[i] <= most
        assert abs(change.amount[:, i].mean() - (least + most) / 2) < 5 * (most - least) / (12 * 24_000) ** 0.5
    assert abs(change.changed.float().mean() - 0.8) < 5 * 0.4 / 24_000**0.5
    _, counts = change.order.unique(dim=0, return_counts=True)
    assert len(counts) == 24
    assert abs(counts - 1000).max() < 5 * 1000**0.5


def test_blurred_images_are_torchvisions() -> None:
    x = pictures(6).float() / 255
    sigma = torch.tensor([0.1, 0.5, 1.0, 2.0, 0.0, 1.5])
    for taps in (1, 3, 7):
        out = blur.blurred(x, sigma, taps)
        for image, width in enumerate(sigma.tolist()):
            right = reference.gaussian_blur(x[image], [taps, taps], [width, width]) if width else x[image]
            torch.testing.assert_close(out[image], right, atol=2e-6, rtol=0)
        assert torch.equal(out[4], x[4])


def test_blur_is_drawn_evenly() -> None:
    sigma = blur.drawn_widths(lanes_of(0), "a", 0, 10_000, 0.5, (0.1, 2.0))
    assert abs((sigma > 0).float().mean() - 0.5) < 5 * 0.5 / 100
    widths = sigma[sigma > 0]
    assert 0.1 <= widths.min() < 0.11
    assert 1.99 < widths.max() <= 2
    assert [blur.kernel_size(size) for size in (8, 32, 96, 224)] == [1, 3, 9, 23]


def test_at_strength_0_nothing_changes() -> None:
    x = pictures(2, 5)
    assert torch.equal(STILL.weak(lanes_of(0, 1), "a", x, 0), x.float() / 255)
    no_change = replace(STILL, jitter=Jitter(0, 0, 0, 0, chance=1))
    assert torch.equal(no_change.weak(lanes_of(0, 1), "a", x, 0), x.float() / 255)


def test_each_part_of_a_weak_view_can_be_turned_on_alone() -> None:
    x = pictures(1, 6)
    plain = x.float() / 255
    flipped = replace(STILL, flip_chance=1).weak(lanes_of(0), "a", x, 0)
    assert torch.equal(flipped, plain.flip(-1))
    gray = replace(STILL, gray_chance=1).weak(lanes_of(0), "a", x, 0)
    torch.testing.assert_close(gray[0], reference.rgb_to_grayscale(plain[0], 3), atol=1e-6, rtol=0)
    normal = replace(STILL, mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0)).weak(lanes_of(0), "a", x, 0)
    torch.testing.assert_close(normal[0], reference.normalize(plain[0], [0.1, 0.2, 0.3], [0.5, 1.0, 2.0]))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("make", [cifar10, imagenet])
def test_a_weak_view_equals_torchvision_with_the_same_random_numbers(make: type[Views], channels: int) -> None:
    lanes = lanes_of(7, 8)
    mean, std = (0.4,) * channels, (0.3,) * channels
    x = pictures(2, 9, size=(channels, 40, 36))
    views = make(40, mean, std)
    out = views.weak(lanes, "a", x, 11)
    boxes = crops.drawn_boxes(lanes, "a", 11, 9, (40, 36), views.scale, views.ratio)
    change = colours.drawn_change(lanes, "a", 11, 9, views.jitter)
    flipped = lanes.uniform("a.flip", 9, steps=range(11, 12)).flatten() < 0.5
    gray = lanes.uniform("a.gray", 9, steps=range(11, 12)).flatten() < 0.2
    sigma = blur.drawn_widths(lanes, "a", 11, 9, views.blur_chance, views.blur_sigma)
    for i, image in enumerate(x.flatten(0, 1).float() / 255):
        box = [int(part[i]) for part in (boxes.top, boxes.left, boxes.height, boxes.width)]
        right = reference.resized_crop(image, *box, [40, 40])
        if change.changed[i]:
            right = reference_jitter(right, change.order[i].tolist(), change.amount[i].tolist())
        if gray[i] and channels == 3:
            right = reference.rgb_to_grayscale(right, 3)
        if sigma[i] > 0:
            right = reference.gaussian_blur(right, [5, 5], [float(sigma[i])] * 2)
        if flipped[i]:
            right = reference.horizontal_flip(right)
        right = reference.normalize(right, list(mean), list(std))
        torch.testing.assert_close(out.flatten(0, 1)[i], right, atol=2e-5, rtol=0)


def test_a_run_sees_the_same_weak_views_alone_and_in_a_pack() -> None:
    x = pictures(3, 8, size=(3, 32, 32))
    views = replace(cifar10(32, (0.5,) * 3, (0.2,) * 3), blur_chance=0.5)
    packed = views.weak(lanes_of(4, 5, 6), "query", x, 2)
    for lane, seed in enumerate((4, 5, 6)):
        alone = views.weak(lanes_of(seed), "query", x[lane : lane + 1], 2)
        torch.testing.assert_close(alone[0], packed[lane], atol=1e-5, rtol=0)
    for lanes, name, step in ((lanes_of(4), "key", 2), (lanes_of(4), "query", 3), (lanes_of(5), "query", 2)):
        other = views.weak(lanes, name, x[:1], step)
        assert bool(((other - packed[:1]).abs().amax(dim=(2, 3, 4)) > 0.01).all())


def test_views_take_bytes_and_numbers_in_either_precision_and_do_not_change_them() -> None:
    x = pictures(1, 8)
    views = cifar10(12, (0.5,) * 3, (0.2,) * 3)
    double = views.weak(lanes_of(0, precision="float64"), "a", x.double() / 255, 0)
    assert double.dtype == torch.float64
    before = x.clone(), x.float() / 255
    for given in (before[0], before[1]):
        kept = given.clone()
        out = views.weak(lanes_of(0), "a", given, 0)
        assert out.dtype == torch.float32
        assert torch.equal(given, kept)
        # Uniform numbers in single precision may rarely give another crop, but not here.
        torch.testing.assert_close(out.double(), double, atol=1e-4, rtol=0)


def test_views_keep_their_precision_under_autocast() -> None:
    x = pictures(1, 8)
    views = imagenet(24, (0.5,) * 3, (0.2,) * 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = views.weak(lanes_of(0), "a", x, 0)
    assert torch.equal(half, views.weak(lanes_of(0), "a", x, 0))


def test_smaller_crops_show_smaller_parts() -> None:
    """CLSA's numbers for ImageNet, which it rounds to three digits."""
    sizes = imagenet(224, (0.5,) * 3, (0.2,) * 3).crops([224, 192, 160, 128, 96])
    assert [view.size for view in sizes] == [224, 192, 160, 128, 96]
    scales = np.array([view.scale for view in sizes])
    np.testing.assert_allclose(scales[:, 0], [0.2, 0.172, 0.143, 0.114, 0.086], atol=1e-3)
    np.testing.assert_allclose(scales[:, 1], [1.0, 0.86, 0.715, 0.571, 0.429], atol=3e-3)
    small = sizes[-1].weak(lanes_of(0), "small", pictures(1, 2, size=(3, 64, 64)), 0)
    assert small.shape == (1, 2, 3, 96, 96)


def test_plain_views_are_the_middle_of_the_image() -> None:
    x = pictures(4, size=(3, 10, 16))
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    right = reference.normalize(reference.center_crop(x.float() / 255, [10, 10]), mean, std)
    torch.testing.assert_close(Views(size=10, mean=mean, std=std).plain(x), right, atol=1e-5, rtol=0)
    smaller = reference.normalize(reference.resize(reference.center_crop(x.float() / 255, [10, 10]), [6, 6]), mean, std)
    torch.testing.assert_close(Views(size=6, mean=mean, std=std).plain(x), smaller, atol=1e-5, rtol=0)


def test_statistics_are_computed_in_parts() -> None:
    class Largest(TorchDispatchMode):
        held = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.dtype == torch.int32:
                self.held = max(self.held, len(out))
            return out

    x = pictures(1000, size=(3, 4, 4))
    with Largest() as largest:
        mean, std = statistics(x)
    assert largest.held <= 256 * 16
    np.testing.assert_allclose(mean, (x.double() / 255).mean(dim=(0, 2, 3)))
    np.testing.assert_allclose(std, (x.double() / 255).std(dim=(0, 2, 3), correction=0))


def test_statistics_are_the_channels_mean_and_deviation() -> None:
    x = pictures(9)
    mean, std = statistics(x)
    numbers = x.double() / 255
    np.testing.assert_allclose(mean, numbers.mean(dim=(0, 2, 3)))
    np.testing.assert_allclose(std, numbers.std(dim=(0, 2, 3), correction=0))
