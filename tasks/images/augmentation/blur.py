"""Random Gaussian blur with a random width per image, as in torchvision."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.lanes import Lanes


def drawn_widths(
    lanes: Lanes[Any], name: str, step: int, images: int, chance: float, sigma: tuple[float, float]
) -> Tensor:
    """Random standard deviations in pixels, 0 for images that stay sharp; (n), n = l·images."""
    u = lanes.uniform(f"{name}.blur", 2, images, steps=range(step, step + 1))[:, 0]  # l 2 b
    widths = sigma[0] + (sigma[1] - sigma[0]) * u[:, 0]
    return torch.where(u[:, 1] < chance, widths, 0).flatten()


def kernel_size(size: int) -> int:
    """The kernel size in pixels: odd, about a tenth of the image."""
    return 2 * (size // 20) + 1


def blurred(x: Tensor, sigma: Tensor, taps: int) -> Tensor:
    """Images x (n c h w), each blurred with its sigma (n) and an odd kernel size; exactly x where sigma is 0."""
    n, c, h, w = x.shape
    away = torch.arange(taps, dtype=x.dtype, device=x.device) - taps // 2
    sharp = (sigma == 0)[:, None]
    kernel = torch.where(sharp, away == 0, (-0.5 * (away / torch.where(sharp, 1, sigma[:, None])) ** 2).softmax(dim=1))
    kernel = kernel.to(x.dtype)[:, None].expand(n, c, taps).reshape(n * c, 1, taps)
    # Each image is a channel of one large image, so that each has its own kernel.
    x = functional.pad(x, [taps // 2] * 4, mode="reflect").reshape(1, n * c, h + taps - 1, w + taps - 1)
    with torch.autocast(x.device.type, enabled=False):
        x = functional.conv2d(x, kernel[:, :, None, :], groups=n * c)
        x = functional.conv2d(x, kernel[:, :, :, None], groups=n * c)
    return x.reshape(n, c, h, w)
