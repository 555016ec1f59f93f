"""Checks of the task contract, which any package can run on its own tasks.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_task(check):
        check(my_task)

A check takes a task and raises AssertionError if the task breaks the contract. It trains a few lanes with the task's
`small` settings, for a few blocks of steps. If lanes are batched differently, sums may be rounded differently: such
checks run in float64 and allow for rounding. All other checks require identical bits.

How much is allowed, is measured: `rounding_of` also trains each run alone with all its numbers nudged by one unit in
the last place, at the start and after every frame. Training may amplify such differences. A pack may change a run by
some times as much as the nudges do, and no more.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Pack
from mislabel.tasks.parameters import RESERVED, Value, values_of
from mislabel.tasks.task import Task

_LANES = 4
_FRAMES = 6
_ROUNDING = 1e-7
MOST_ROUNDING = 100.0
"""How much a pack may change a run, see `rounding_of`. Our tasks stay below 20; lanes that mix reach millions."""

Curves = Mapping[int, Mapping[str, np.ndarray]]
"""The metrics over the frames, and the arrays over the snapshots, for each lane."""


def names_are_free_and_explained(task: Task[Any]) -> None:
    parameters, metrics = task.parameters, task.metrics
    both = parameters.keys() & metrics.keys()
    assert not both, f"{sorted(both)} are both parameters and metrics"
    taken = (parameters.keys() | metrics.keys()) & RESERVED
    assert not taken, f"{sorted(taken)} are columns that all tasks have; choose other names"
    helps = {name: declared.help for name, declared in parameters.items()}
    helps |= {name: declared.help for name, declared in metrics.items()}
    unexplained = sorted(name for name, words in helps.items() if not words.strip())
    assert not unexplained, f"{unexplained} have no help"
    required = [name for name in task.scalars if not metrics[name].may_be_absent]
    assert required, "all scalar metrics may be absent, so divergence can't be detected; declare one that may not"


def defaults_are_valid(task: Task[Any]) -> None:
    parameters = task.parameters
    for values in (values_of(task.params()), values_of(_small(task))):
        problems = [f"{name}: {text}" for name, value in values.items() if (text := parameters[name].problem(value))]
        problems += task.conflicts(task.settings(values))
        assert not problems, "; ".join(problems)
    unknown = task.small.keys() - parameters.keys()
    assert not unknown, f"small: {sorted(unknown)} are not parameters"


def measured_metrics_are_the_declared_ones(task: Task[Any]) -> None:
    lanes = Lanes(_settings(task), range(_LANES))
    measured = task.measure(lanes, task.init(lanes))
    missing, more = task.metrics.keys() - measured.keys(), measured.keys() - task.metrics.keys()
    assert not missing, f"{sorted(missing)} are declared but not measured"
    assert not more, f"{sorted(more)} are measured but not declared"
    for name, tensor in measured.items():
        shape = tuple(tensor.shape)
        wanted = (_LANES,) if task.metrics[name].per is None else (_LANES, *shape[-1:])
        assert shape == wanted, f"{name} has shape {shape}; it should have {wanted}"


def lanes_come_first_in_the_state(task: Task[Any]) -> None:
    lanes = Lanes(_settings(task), range(_LANES))
    state = task.init(lanes)
    for name, tensor in {**state, **task.advance(lanes, state, 0, task.block)}.items():
        assert tensor.shape[:1] == (_LANES,), f"{name} has shape {tuple(tensor.shape)}; the lane axis must come first"


def training_leaves_its_input_alone(task: Task[Any]) -> None:
    lanes = Lanes(_settings(task), range(_LANES))
    state = task.init(lanes)
    before = {name: tensor.clone() for name, tensor in state.items()}
    after = task.advance(lanes, state, 0, task.block)
    assert state.keys() == after.keys(), f"the state changed from {sorted(state)} to {sorted(after)}"
    for name, tensor in before.items():
        assert _same(tensor.numpy(), state[name].numpy(), 0), f"advance changed {name} of its input state"
    task.measure(lanes, after)
    again = {name: _same(before[name].numpy(), tensor.numpy(), 0) for name, tensor in task.init(lanes).items()}
    assert all(again.values()), "init gives another state when called again"


def a_run_is_the_same_alone_and_in_a_pack(task: Task[Any]) -> None:
    settings = _settings(task, precision="float64")
    together = _trained(Pack(task, Lanes(settings, range(_LANES))))
    for lane, params in enumerate(settings):
        alone = _trained(Pack(task, Lanes([params], [lane]), [lane]))
        _assert_same({lane: together[lane]}, alone, _ROUNDING)


def packs_of_any_size_change_only_the_rounding(task: Task[Any]) -> None:
    for (size, name), rounding in rounding_of(task, precision="float64").items():
        assert rounding < MOST_ROUNDING, f"{name}: {size} lanes change it {rounding:.1e} times as much as rounding does"


def rounding_of(
    task: Task[Any], sizes: Sequence[int] = (3, 6), runs: int = 2, **more: Value
) -> dict[tuple[int, str], float]:
    """By pack size and metric, how much packs change the first runs, in units of what rounding does to them.

    The unit is the largest change by nudges of one unit in the last place so far, plus one such unit of the metric.
    """
    sizes = [size for size in sizes if size <= (task.largest_pack or size)]
    lanes = _settings(task, max(sizes, default=1), **more)
    alone = {i: _trained(Pack(task, Lanes([lanes[i]], [i]), [i]))[i] for i in range(min(runs, len(lanes)))}
    nudged = {i: [_nudged(task, lanes[i], i, nudge) for nudge in (1, 2)] for i in alone}
    found: dict[tuple[int, str], float] = {}
    for size in sizes:
        together = _trained(Pack(task, Lanes(lanes[:size], range(size))))
        for i in set(alone) & set(together):
            for name, values in alone[i].items():
                change = _change(values, together[i][name])
                growth = np.max([_change(values, other[name]) for other in nudged[i]], axis=0)
                unit = growth + np.finfo(lanes[0].precision).eps * np.nanmax(np.abs(values), initial=0.0)
                worst = float(np.max(np.divide(change, unit, out=np.zeros_like(change), where=change > 0)))
                found[size, name] = max(found.get((size, name), 0.0), worst)
    return found


def _nudged(task: Task[Any], params: Any, seed: int, nudge: int) -> Mapping[str, np.ndarray]:
    """The curves of one run whose numbers are moved by at most one unit in the last place, now and after each frame."""
    generator = torch.Generator().manual_seed(nudge)

    def moved(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        signs = torch.randint(-1, 2, tensor.shape, generator=generator)
        return tensor * (1 + torch.finfo(tensor.dtype).eps * signs.to(tensor.dtype))

    pack, frames = Pack(task, Lanes([params], [seed])), list[Frame]()
    pack.lanes = pack.lanes.mapped(moved)
    while not pack.finished:
        pack.state = {name: moved(tensor) for name, tensor in pack.state.items()}
        frames += _frames(pack, 1)
    return _curves(frames)[0]


def _change(expected: np.ndarray, found: np.ndarray) -> np.ndarray:
    """For each frame, the largest difference up to it; infinite if a value is present in only one of the two."""
    differences = np.abs(np.where(np.isnan(expected) & np.isnan(found), 0.0, found - expected))
    flat = np.nan_to_num(differences, nan=np.inf).reshape(len(expected), -1).max(axis=1, initial=0.0)
    return np.maximum.accumulate(flat)


def the_order_of_lanes_does_not_matter(task: Task[Any]) -> None:
    settings, order = _settings(task, precision="float64"), list(reversed(range(_LANES)))
    forward = _trained(Pack(task, Lanes(settings, range(_LANES))))
    backward = _trained(Pack(task, Lanes([settings[i] for i in order], order), order))
    _assert_same(forward, backward, _ROUNDING)


def a_resumed_run_equals_an_uninterrupted_one(task: Task[Any]) -> None:
    settings = _settings(task)
    pack = Pack(task, Lanes(settings, range(_LANES)))
    uninterrupted = _frames(pack, _FRAMES // 2)
    pack.drop([1])
    uninterrupted += _frames(pack)
    pack, resumed = Pack(task, Lanes(settings, range(_LANES))), []
    while not pack.finished:
        resumed += pack.advance(seconds=0)  # one stretch, of one block at most after a resume
        if len(resumed) == _FRAMES // 2:
            pack.drop([1])
        file = io.BytesIO()
        torch.save(pack.checkpoint(), file)
        file.seek(0)
        pack = Pack.resumed(task, torch.load(file, weights_only=True))
    _assert_same(_curves(uninterrupted), _curves(resumed), 0)


def dropping_a_lane_moves_no_other(task: Task[Any]) -> None:
    settings = _settings(task, precision="float64")
    whole = _trained(Pack(task, Lanes(settings, range(_LANES))))
    pack = Pack(task, Lanes(settings, range(_LANES)))
    frames = _frames(pack, _FRAMES // 2)
    pack.drop([1])
    frames += _frames(pack)
    kept = {lane: curves for lane, curves in _curves(frames).items() if lane != 1}
    assert kept.keys() == whole.keys() - {1}, f"without lane 1 of {sorted(whole)}, {sorted(kept)} were measured"
    _assert_same({lane: whole[lane] for lane in kept}, kept, _ROUNDING)


def merging_two_packs_moves_no_lane(task: Task[Any]) -> None:
    if task.largest_pack == 1:
        return
    settings = _settings(task, precision="float64")
    whole = _trained(Pack(task, Lanes(settings, range(_LANES))))
    later = range(1, _LANES)
    parts = [Pack(task, Lanes(settings[:1], [0]), [0]), Pack(task, Lanes(settings[1:], later), later)]
    frames = [frame for part in parts for frame in _frames(part, _FRAMES // 2)]
    merged = parts[0].merged(parts[1])
    assert len(merged.lanes) == _LANES, f"merging 1 and {_LANES - 1} lanes gave {len(merged.lanes)}"
    _assert_same(whole, _curves([*frames, *_frames(merged)]), _ROUNDING)


def a_diverged_lane_ends_alone(task: Task[Any]) -> None:
    settings = _settings(task, precision="float64")
    whole = _trained(Pack(task, Lanes(settings, range(_LANES))))
    pack = Pack(task, Lanes(settings, range(_LANES)))
    frames = _frames(pack, _FRAMES // 2)
    checkpoint = pack.checkpoint()
    checkpoint["state"] = {name: tensor.clone() for name, tensor in checkpoint["state"].items()}
    for tensor in checkpoint["state"].values():
        if tensor.is_floating_point():
            tensor[1] = torch.nan
    later = _frames(Pack.resumed(task, checkpoint))
    ended = [frame.labels[frame.diverged].tolist() for frame in later]
    assert ended[0] == [1], f"the state of lane 1 is nan, but lanes {ended[0]} are recorded as diverged"
    assert not any(ended[1:]), f"lanes {ended[1:]} are recorded as diverged later"
    kept = {lane: curves for lane, curves in _curves(frames + later).items() if lane != 1}
    _assert_same({lane: whole[lane] for lane in kept}, kept, _ROUNDING)


def no_shared_generator_is_used(task: Task[Any]) -> None:
    def trained_after(seed: int) -> Curves:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            before = torch.random.get_rng_state()
            curves = _trained(Pack(task, Lanes(_settings(task), range(_LANES))))
            after = torch.random.get_rng_state()
            assert torch.equal(before, after), "torch's global generator was used; draw random numbers from lanes"
            return curves

    _assert_same(trained_after(1), trained_after(2), 0)


def seeds_differ(task: Task[Any]) -> None:
    curves = _trained(Pack(task, Lanes([_small(task)] * 2, [0, 1])))
    assert not all(_same(curves[0][name], curves[1][name], 0) for name in curves[0]), "two seeds gave the same run"


def double_precision_is_kept(task: Task[Any]) -> None:
    lanes = Lanes(_settings(task, precision="float64"), range(_LANES))
    for name, tensor in task.advance(lanes, task.init(lanes), 0, task.block).items():
        assert tensor.dtype not in (torch.float32, torch.float16), f"{name} is {tensor.dtype} at precision float64"


CHECKS: Sequence[Callable[[Task[Any]], None]] = (
    names_are_free_and_explained,
    defaults_are_valid,
    measured_metrics_are_the_declared_ones,
    lanes_come_first_in_the_state,
    training_leaves_its_input_alone,
    a_run_is_the_same_alone_and_in_a_pack,
    packs_of_any_size_change_only_the_rounding,
    the_order_of_lanes_does_not_matter,
    a_resumed_run_equals_an_uninterrupted_one,
    dropping_a_lane_moves_no_other,
    merging_two_packs_moves_no_lane,
    a_diverged_lane_ends_alone,
    no_shared_generator_is_used,
    seeds_differ,
    double_precision_is_kept,
)


def _small(task: Task[Any]) -> Any:
    """The task's small settings, with a few blocks of steps; the last step is not a multiple of the block."""
    few: dict[str, Value] = {"steps": 6 * task.block + 7, "frames": _FRAMES, "snapshots": 2}
    return task.settings({**values_of(task.params()), **task.small, **few})


def _settings(task: Task[Any], lanes: int = _LANES, **more: Value) -> list[Any]:
    """Small settings for each lane, with different knobs per lane if their bounds allow it."""
    settings = [replace(_small(task), **more) for _ in range(lanes)]
    for name in task.names("knob"):
        for lane in range(1, lanes):
            value = task.parameters[name].typed(getattr(settings[lane], name) * (1 - lane % 8 / 8))
            varied = replace(settings[lane], **{name: value})
            if not task.parameters[name].problem(value) and not list(task.conflicts(varied)):
                settings[lane] = varied
    return settings


def _trained(pack: Pack[Any]) -> Curves:
    frames = _frames(pack)
    diverged = sorted({lane for frame in frames for lane in frame.labels[frame.diverged].tolist()})
    assert not diverged, f"lanes {diverged} of {_LANES} diverge with small settings"
    return _curves(frames)


def _frames(pack: Pack[Any], count: int = _FRAMES) -> list[Frame]:
    """The next `count` frames of the pack, or all that are left."""
    frames: list[Frame] = []
    while not pack.finished and len(frames) < count:
        frames += pack.advance(seconds=0)
    return frames


def _curves(frames: Sequence[Frame]) -> Curves:
    lists: dict[int, dict[str, list[np.ndarray]]] = {}
    for frame in frames:
        for row, lane in enumerate(frame.labels.tolist()):
            for name, values in {**frame.metrics, **frame.arrays}.items():
                lists.setdefault(lane, {}).setdefault(name, []).append(values[row])
    return {lane: {name: np.stack(rows) for name, rows in curves.items()} for lane, curves in lists.items()}


def _assert_same(expected: Curves, found: Curves, rounding: float) -> None:
    assert expected.keys() == found.keys(), f"lanes {sorted(found)} were measured, not {sorted(expected)}"
    for lane, curves in expected.items():
        for name, values in curves.items():
            other = found[lane][name]
            assert values.shape == other.shape, f"lane {lane}, {name}: measured {len(other)} times, not {len(values)}"
            assert _same(values, other, rounding), f"lane {lane}, {name}: {other} instead of {values}"


def _same(expected: np.ndarray, found: np.ndarray, rounding: float) -> bool:
    return np.allclose(expected, found, rtol=rounding, atol=rounding, equal_nan=True)
