"""Strong views: each operation compared with PIL, bit for bit, and the rounds with a loop over images."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from mislabel.tasks.images.augmentation.colours import Jitter
from mislabel.tasks.images.augmentation.strong import OPERATIONS, apply_each, drawn_rounds, with_rounds
from mislabel.tasks.images.augmentation.views import Views, cifar10
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.training import Training

SIZES = [(3, 32, 32), (1, 28, 28), (3, 17, 24), (1, 8, 8)]


def lanes_of(*seeds: int) -> Lanes[Training]:
    return Lanes([Training()] * len(seeds), seeds)


def pictures(*counts: int, size: tuple[int, int, int] = (3, 32, 32)) -> Tensor:
    """Noise of narrow and wide range, two colours only, one colour only, and shades."""
    generator = torch.Generator().manual_seed(0)
    n = torch.Size(counts).numel()
    x = torch.randint(0, 256, (n, *size), generator=generator)
    x[::5] = 60 + x[::5] // 3
    x[1::5] = torch.where(x[1::5] < 90, 30, 200)
    x[2::5] = x[2::5, :, :1, :1]
    x[3::5] = x[3::5].cumsum(-1) // (1 + torch.arange(size[2]))
    return x.to(torch.uint8).reshape(*counts, *size)


def as_pil(x: Tensor) -> Image.Image:
    return Image.fromarray(x[0].numpy() if len(x) == 1 else x.permute(1, 2, 0).numpy())


def as_tensor(image: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)


def by_pil(image: Image.Image, operation: str, level: int, negative: bool) -> Image.Image:
    """As CLSA calls PIL."""
    sign = -1 if negative else 1
    share = float(level) * 0.3 / 10
    mixed = float(level) * 0.9 / 10 + 0.05
    affine = Image.Transform.AFFINE
    match operation:
        case "shear_x":
            return image.transform(image.size, affine, (1, sign * share, 0, 0, 1, 0))
        case "shear_y":
            return image.transform(image.size, affine, (1, 0, 0, sign * share, 1, 0))
        case "translate_x":
            return image.transform(image.size, affine, (1, 0, int(sign * share * image.size[0]), 0, 1, 0))
        case "translate_y":
            return image.transform(image.size, affine, (1, 0, 0, 0, 1, int(sign * share * image.size[1])))
        case "rotate":
            return image.rotate(sign * int(level * 30 / 10))
        case "autocontrast":
            return ImageOps.autocontrast(image)
        case "invert":
            return ImageOps.invert(image)
        case "equalize":
            return ImageOps.equalize(image)
        case "solarize":
            return ImageOps.solarize(image, 256 - int(level * 256 / 10))
        case "posterize":
            return ImageOps.posterize(image, int(level * 4 / 10) + 4)
        case "contrast":
            return ImageEnhance.Contrast(image).enhance(mixed)
        case "color":
            return ImageEnhance.Color(image).enhance(mixed)
        case "brightness":
            return ImageEnhance.Brightness(image).enhance(mixed)
        case "sharpness":
            return ImageEnhance.Sharpness(image).enhance(mixed)
    raise AssertionError(operation)


def one_by_one(x: Tensor, operation: str, level: Tensor, negative: Tensor) -> Tensor:
    each = zip(x, level.tolist(), negative.tolist(), strict=True)
    return torch.stack([as_tensor(by_pil(as_pil(image), operation, lv, neg)) for image, lv, neg in each])


def only(operation: str, images: int) -> list[int]:
    return [images if name == operation else 0 for name in OPERATIONS]


def test_there_are_fourteen_operations() -> None:
    assert len(set(OPERATIONS)) == 14


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_pils_to_the_last_bit(operation: str, size: tuple[int, int, int]) -> None:
    x = pictures(90, size=size)
    level = 1 + torch.arange(90) % 9
    negative = torch.arange(90) // 9 % 2 == 1
    right = one_by_one(x, operation, level, negative)
    before = x.clone()
    apply_each(x, level, negative, only(operation, 80))
    assert torch.equal(x[:80], right[:80])
    assert torch.equal(x[80:], before[80:])


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_changes_images_of_colour(operation: str) -> None:
    x = 60 + pictures(5)[4:] // 2
    before = x.clone()
    apply_each(x, torch.tensor([5]), torch.tensor([False]), only(operation, 1))
    assert not torch.equal(x, before)


def test_tables_by_hand() -> None:
    def after(operation: str, level: int, pixels: list[int]) -> list[int]:
        x = torch.tensor(pixels, dtype=torch.uint8)[None, None, None]
        apply_each(x, torch.tensor([level]), torch.tensor([False]), only(operation, 1))
        return x.flatten().tolist()

    assert after("invert", 1, [0, 100, 255]) == [255, 155, 0]
    assert after("autocontrast", 1, [50, 60, 101]) == [0, 50, 255]
    assert after("solarize", 5, [127, 128, 129]) == [127, 127, 126]
    assert after("posterize", 1, [15, 16, 255]) == [0, 16, 240]
    assert after("brightness", 5, [0, 100, 200]) == [0, 50, 100]
    assert after("contrast", 5, [0, 100, 200]) == [50, 100, 150]


@pytest.mark.parametrize("channels", [1, 3])
def test_rounds_are_a_loop_over_images(channels: int) -> None:
    x = pictures(120, size=(channels, 16, 16))
    rounds = drawn_rounds(lanes_of(3, 4), "a", 9, 60, times=5, chance=0.5)
    out = with_rounds(x.clone(), rounds)
    for i, image in enumerate(x):
        right = as_pil(image)
        for turn in range(5):
            operation = int(rounds.operation[turn, i])
            if operation < 14:
                right = by_pil(right, OPERATIONS[operation], int(rounds.level[turn, i]), bool(rounds.negative[turn, i]))
        assert torch.equal(out[i], as_tensor(right))


def test_operations_levels_and_signs_are_equally_likely_and_half_are_applied() -> None:
    rounds = drawn_rounds(lanes_of(0, 1), "a", 0, 7_000, times=5, chance=0.5)
    draws = 5 * 2 * 7_000
    assert rounds.operation.shape == (5, 14_000)

    def as_likely(values: Tensor, chances: list[float]) -> None:
        shares = torch.bincount(values.flatten(), minlength=len(chances)) / draws
        assert len(shares) == len(chances)
        for share, chance in zip(shares.tolist(), chances, strict=True):
            assert abs(share - chance) < 5 * (chance * (1 - chance) / draws) ** 0.5

    as_likely(rounds.operation, [0.5 / 14] * 14 + [0.5])
    as_likely(rounds.level - 1, [1 / 9] * 9)
    as_likely(rounds.negative.long(), [0.5] * 2)
    # No two rounds are the same.
    agree = (rounds.operation[0] == rounds.operation[1]).float().mean()
    assert abs(agree - (0.25 + 14 * (0.5 / 14) ** 2)) < 5 * 0.45 / 14_000**0.5


def test_a_run_sees_the_same_strong_views_alone_and_in_a_pack() -> None:
    x = pictures(3, 20)
    views = cifar10(32, (0.5,) * 3, (0.2,) * 3)
    packed = views.strong(lanes_of(4, 5, 6), "mixed", x, 2)
    for lane, seed in enumerate((4, 5, 6)):
        alone = views.strong(lanes_of(seed), "mixed", x[lane : lane + 1], 2)
        # A product over more images may round differently, so a byte may rarely differ by 1.
        assert (alone[0] != packed[lane]).float().mean() < 1e-3
    for lanes, name, step in ((lanes_of(4), "other", 2), (lanes_of(4), "mixed", 3), (lanes_of(5), "mixed", 2)):
        assert not torch.equal(views.strong(lanes, name, x[:1], step), packed[:1])


def test_at_strength_0_strong_views_are_the_images() -> None:
    x = pictures(1, 10)
    still = Views(
        size=32,
        mean=(0.0,) * 3,
        std=(1.0,) * 3,
        scale=(1, 1),
        ratio=(1, 1),
        flip_chance=0,
        jitter=Jitter(chance=0),
        gray_chance=0,
        strong_chance=0,
    )
    assert torch.equal(still.strong(lanes_of(0), "a", x, 0), x.float() / 255)
    assert torch.equal(replace(still, strong_times=0, strong_chance=1).strong(lanes_of(0), "a", x, 0), x.float() / 255)
    assert not torch.equal(replace(still, strong_chance=0.5).strong(lanes_of(0), "a", x, 0), x.float() / 255)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_sees_the_views_of_the_cpu() -> None:
    x = pictures(2, 50)
    views = replace(cifar10(32, (0.5,) * 3, (0.2,) * 3), blur_chance=0.5)
    lanes = Lanes([Training()] * 2, [0, 1], "cuda")
    weak = views.weak(lanes, "a", x.cuda(), 3).cpu()
    torch.testing.assert_close(weak, views.weak(lanes_of(0, 1), "a", x, 3), atol=1e-4, rtol=0)
    strong = views.strong(lanes, "a", x.cuda(), 3).cpu()
    assert ((strong - views.strong(lanes_of(0, 1), "a", x, 3)).abs() > 1e-4).float().mean() < 1e-3
