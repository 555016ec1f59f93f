"""Random numbers as a function of (seed, name, index): the same alone, in any pack, on any device, after any resume.

torch's generators are stateful sequences, one per device, and can't be batched over lanes. Here every number is a hash
of its seed, name and index: two rounds of the 64-bit mixer of SplitMix64 (Steele, Lea, Flood 2014, with Stafford's
constants), keyed by 128 bits derived from seed and name. Integer arithmetic is exact on every device, so the bits are
the same everywhere, and normal values are the same up to rounding.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
# Numbers are made in slices of this size, so that 64-bit intermediates stay in cache and don't double memory use.
_SLICE = 1 << 16


def keys(seeds: Sequence[int], name: str, device: torch.device) -> Tensor:
    """A 128-bit key per seed for the stream called `name`; (l, 2)."""
    digests = [hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest() for seed in seeds]
    words = [[int.from_bytes(half, "little", signed=True) for half in (d[:8], d[8:])] for d in digests]
    return torch.tensor(words, dtype=torch.int64, device=device).reshape(len(seeds), 2)


def bits(key: Tensor, first: int, count: int) -> Tensor:
    """64 random bits for each lane and each of `count` indices from `first`; (l, count)."""
    index = torch.arange(first, first + count, dtype=torch.int64, device=key.device)
    z = index.mul_(_signed(_GOLDEN)) + key[:, :1]
    room = torch.empty_like(z)
    return _mix(_mix(z, room).bitwise_xor_(key[:, 1:]), room)


def whole(words: Tensor) -> Tensor:
    """Whole numbers below 2^52 from words of 64 random bits."""
    return _shifted(words, 12, torch.empty_like(words))


def uniform(words: Tensor) -> Tensor:
    """Numbers in the open interval (0, 1) from words of 64 random bits; float64."""
    # 52 bits: with 53, the half would be rounded away and the largest number would be 1.
    return whole(words).double().add_(0.5).mul_(2.0**-52)


def filled(key: Tensor, first: int, count: int, dtype: torch.dtype, kind: str) -> Tensor:
    """`count` numbers per lane: whole, uniform or normal; (l, count)."""
    out = torch.empty(len(key), count, dtype=dtype, device=key.device)
    width = max(1, _SLICE // max(1, len(key)))
    for begin in range(0, count, width):
        end = min(begin + width, count)
        out[:, begin:end] = _numbers(bits(key, first + begin, end - begin), dtype, kind)
    return out


def _numbers(words: Tensor, dtype: torch.dtype, kind: str) -> Tensor:
    if kind == "whole":
        return whole(words)
    u = uniform(words)
    return torch.special.ndtri(u) if kind == "normal" else u.clamp_(max=1 - torch.finfo(dtype).eps / 2)


def _mix(z: Tensor, room: Tensor) -> Tensor:
    """Mix the bits in place, with one buffer for intermediate results."""
    for shift, factor in _ROUNDS:
        z.bitwise_xor_(_shifted(z, shift, room)).mul_(_signed(factor))
    return z.bitwise_xor_(_shifted(z, 31, room))


def _shifted(z: Tensor, places: int, out: Tensor) -> Tensor:
    """Logical right shift; torch's shift keeps the sign."""
    return torch.bitwise_right_shift(z, places, out=out).bitwise_and_((1 << (64 - places)) - 1)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
