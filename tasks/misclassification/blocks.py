"""Steps cut into stretches, for which random numbers are drawn at once, and blocks, which are trained at once."""

from collections.abc import Iterator

BLOCK = 16
# 64-bit numbers drawn at once: few enough that what is made of them on the way stays in cache.
_DRAWN = 1 << 15


def stretches(start: int, stop: int, numbers: int, length: int = BLOCK) -> Iterator[range]:
    """The steps in stretches of whole blocks, where each step draws this many numbers for all lanes together."""
    return cut(start, stop, max(1, _DRAWN // (numbers * length)) * length)


def blocks(stretch: range, length: int = BLOCK) -> Iterator[tuple[range, slice]]:
    """The blocks of a stretch, each with its place in it."""
    for block in cut(stretch.start, stretch.stop, length):
        yield block, slice(block.start - stretch.start, block.stop - stretch.start)


def cut(start: int, stop: int, length: int) -> Iterator[range]:
    """Pieces that end at multiples of `length`, wherever `start` lies: a resumed run is cut as an uninterrupted one."""
    while start < stop:
        end = min(stop, (start // length + 1) * length)
        yield range(start, end)
        start = end
