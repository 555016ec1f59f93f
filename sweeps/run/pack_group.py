"""Train the runs of one order. Runs at different steps are separate packs, which are merged when they meet.

An order that resumes several checkpoints, or adds new runs to them, starts as several packs. The pack that is furthest
behind trains until it meets the next; then the two are merged, until one pack is left. An order of new runs is one pack
from the start. An order that resumes its own checkpoint gives the same bits as if it had never been interrupted.

Lanes are labelled with run ids.
"""

import time
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Judge, Label, Pack
from mislabel.tasks.task import Task


class PackGroup:
    """The packs of one order, the one that is furthest behind first."""

    def __init__(self, task: Task[Any], order: PackOrder, device: torch.device) -> None:
        self.task = task
        self.order = order
        self.device = device
        self.packs: list[Pack[Any]] = []
        self.run_steps = 0
        """Steps trained in this process, summed over lanes."""
        self.weights: dict[Label, dict[str, Tensor]] = {}
        """Weights of runs that were trained to the end, if the order keeps weights."""

    def begin(self, runs: Collection[str]) -> None:
        lanes = [lane for lane, run in enumerate(self.order.run_ids) if run in set(runs)]
        settings = [self.task.settings(self.order.values(lane)) for lane in lanes]
        seeds = [self.order.seeds[lane] for lane in lanes]
        self._add(Pack(self.task, Lanes(settings, seeds, self.device), [self.order.run_ids[lane] for lane in lanes]))

    def resume(self, saved: Mapping[str, Any]) -> list[Label]:
        """Continue a pack of a checkpoint, without the runs that the order does not want; returns its runs."""
        pack: Pack[Any] = Pack.resumed(self.task, saved, self.device)
        wanted = set(self.order.run_ids).difference(map(str, self.live))
        if unwanted := [label for label in pack.labels if label not in wanted]:
            pack.drop(unwanted)
        self._add(pack)
        return pack.live

    def checkpoint(self) -> list[dict[str, Any]]:
        """One part per pack, for `resume`."""
        return [pack.checkpoint() for pack in self.packs]

    def advance(self, seconds: float, judge: Judge | None = None, fewest: int = 0) -> list[Frame]:
        """Train for about this long, while more than `fewest` lanes are left; returns the frames measured meanwhile."""
        frames: list[Frame] = []
        deadline = time.perf_counter() + seconds
        while self.packs:
            last, *ahead = self.packs
            before = last.run_steps
            until = ahead[0].step if ahead else None
            waiting = sum(len(pack.live) for pack in ahead)
            frames += last.advance(max(0.0, deadline - time.perf_counter()), judge, until, fewest - waiting)
            self.run_steps += last.run_steps - before
            self._merge_equal_steps()
            if time.perf_counter() >= deadline or len(self.live) <= fewest:
                break
        return frames

    @property
    def live(self) -> list[Label]:
        """Runs that still train."""
        return [label for pack in self.packs for label in pack.live]

    @property
    def step(self) -> int:
        return self.packs[0].step if self.packs else 0

    def steps(self) -> dict[Label, int]:
        return {label: pack.step for pack in self.packs for label in pack.live}

    def _add(self, pack: Pack[Any]) -> None:
        if pack.live:
            self.packs.append(pack)
            self._merge_equal_steps()

    def _merge_equal_steps(self) -> None:
        """Remove packs that have ended, sort the others by their step, and merge those at the same step."""
        for pack in self.packs:
            if self.order.keep_weights and not pack.live:
                self.weights |= pack.weights()
        merged: list[Pack[Any]] = []
        for pack in sorted((pack for pack in self.packs if pack.live), key=lambda pack: pack.reached):
            if merged and merged[-1].reached == pack.reached:
                merged[-1] = merged[-1].merged(pack)
            else:
                merged.append(pack)
        self.packs = merged
