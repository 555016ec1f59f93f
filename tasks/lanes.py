"""The runs of a pack as a task sees them: shared shapes, knobs as columns, random numbers by name; one lane per run."""

import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Generic, Self, TypeVar, cast

import torch
from torch import Tensor

from mislabel.tasks import draws
from mislabel.tasks.parameters import parameters_of
from mislabel.tasks.training import Training

P = TypeVar("P", bound=Training)
T = TypeVar("T")


class Lanes(Generic[P]):
    """Runs of equal shape; axis 0 of every tensor is the lane.

    `lanes.shape.width` is a number that all lanes share. `lanes["noise_rate"]` has one value per lane.
    `lanes.normal("w", m, d)` draws (l, m, d) numbers that depend only on each lane's seed and the name.
    """

    def __init__(self, params: Sequence[P], seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        if not params or len(params) != len(seeds):
            raise ValueError(f"{len(params)} settings and {len(seeds)} seeds; give one of each per lane, at least one")
        self.params = list(params)
        self.seeds = list(seeds)
        self.device = torch.device(device)
        self.shape = cast(P, _agreed_shape(self.params))
        self.dtype: torch.dtype = getattr(torch, self.shape.precision)
        self._knobs: dict[str, Tensor] = {}
        self._keys: dict[str, Tensor] = {}
        self._once: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.params)

    def __getitem__(self, knob: str) -> Tensor:
        """The knob's value per lane; (l,)."""
        if knob not in self._knobs:
            values = [getattr(params, knob) for params in self.params]
            whole = parameters_of(type(self.params[0]))[knob].type is not float
            self._knobs[knob] = torch.tensor(values, dtype=torch.int64 if whole else self.dtype, device=self.device)
        return self._knobs[knob]

    def column(self, knob: str, axes: int = 2) -> Tensor:
        """The knob's values, shaped to multiply a tensor with `axes` axes after the lane axis; (l, 1, 1)."""
        return self[knob].reshape(-1, *[1] * axes)

    def normal(self, name: str, *size: int, steps: range | None = None) -> Tensor:
        """Standard normal numbers; (l, *size), or (l, steps, *size) with new numbers at every step."""
        return self._drawn(name, size, steps, "normal")

    def uniform(self, name: str, *size: int, steps: range | None = None) -> Tensor:
        """Numbers in (0, 1); (l, *size), or (l, steps, *size)."""
        return self._drawn(name, size, steps, "uniform")

    def sign(self, name: str, *size: int, steps: range | None = None) -> Tensor:
        """-1 or 1 with equal probability; (l, *size), or (l, steps, *size)."""
        return torch.where(self._drawn(name, size, steps, "uniform") < 0.5, -1.0, 1.0).to(self.dtype)

    def integers(self, name: str, below: int, *size: int, steps: range | None = None) -> Tensor:
        """Whole numbers from 0 to below - 1; (l, *size), or (l, steps, *size)."""
        return (self._drawn(name, size, steps, "uniform", dtype=torch.float64) * below).long()

    def whole(self, name: str, *size: int, steps: range | None = None) -> Tensor:
        """Whole numbers of 52 random bits, those of `integers` below 2^52; (l, *size), or (l, steps, *size)."""
        return self._drawn(name, size, steps, "whole", dtype=torch.int64)

    def permutation(self, name: str, length: int) -> Tensor:
        """A random permutation of 0 … length - 1; (l, length)."""
        return self._drawn(name, (length,), None, "uniform", dtype=torch.float64).argsort(dim=1, stable=True)

    def absent(self) -> Tensor:
        """nan per lane, in double precision: the step of an event that has not happened; (l,)."""
        return torch.full((len(self),), torch.nan, dtype=torch.float64, device=self.device)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """The result of `make`, computed once per pack: for data that depend only on random draws.

        It is not part of the state: checkpoints leave it out, and a resumed pack computes it again. Call it in the
        task's `init`. `make` returns tensors with the lane axis first, or a tuple or dataclass of them.
        """
        if name not in self._once:
            self._once[name] = make()
        return cast(T, self._once[name])

    def select(self, keep: Sequence[int]) -> Self:
        """The lanes with these indices, in this order."""
        chosen = type(self)([self.params[i] for i in keep], [self.seeds[i] for i in keep], self.device)
        index = torch.tensor(list(keep), device=self.device)
        chosen._once = {name: _changed(lambda tensor: tensor[index], value) for name, value in self._once.items()}
        return chosen

    def joined(self, other: Self) -> Self:
        """These lanes followed by the others."""
        both = type(self)([*self.params, *other.params], [*self.seeds, *other.seeds], self.device)
        for name, value in self._once.items():
            both._once[name] = _changed(lambda *tensors: torch.cat(tensors), value, other._once[name])
        return both

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        """These lanes, with the tensors that they keep changed by this function."""
        lanes = type(self)(self.params, self.seeds, self.device)
        lanes._once = {name: _changed(change, value) for name, value in self._once.items()}
        return lanes

    def _drawn(
        self, name: str, size: tuple[int, ...], steps: range | None, kind: str, dtype: torch.dtype | None = None
    ) -> Tensor:
        if name not in self._keys:
            self._keys[name] = draws.keys(self.seeds, name, self.device)
        each = torch.Size(size).numel()
        first, shape = (0, size) if steps is None else (steps.start * each, (len(steps), *size))
        count = each if steps is None else len(steps) * each
        return draws.filled(self._keys[name], first, count, dtype or self.dtype, kind).reshape(len(self), *shape)


def once(make: Callable[[Lanes[P]], T]) -> Callable[[Lanes[P]], T]:
    """Compute a function of lanes once per pack, see `Lanes.once`."""
    return lambda lanes: lanes.once(f"{make.__module__}.{make.__qualname__}", lambda: make(lanes))


class _Shape(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name!r} is not a shape; if it is a knob, use lanes[{name!r}], with a value per lane")


def _agreed_shape(params: Sequence[Training]) -> _Shape:
    shapes = [name for name, parameter in parameters_of(type(params[0])).items() if parameter.kind == "shape"]
    for name in shapes:
        values = {getattr(p, name) for p in params}
        if len(values) > 1:
            raise ValueError(f"{name} is a shape, but the lanes have {sorted(values)}; put them into separate packs")
    return _Shape(**{name: getattr(params[0], name) for name in shapes})


def _changed(change: Callable[..., Tensor], *values: Any) -> Any:
    """Apply the function to the tensors of these values: None, tensors, or equal tuples or dataclasses of them."""
    first = values[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return change(*values)
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in dataclasses.fields(first)]
        return type(first)(**{name: _changed(change, *(getattr(each, name) for each in values)) for name in names})
    return tuple(_changed(change, *part) for part in zip(*values, strict=True))
