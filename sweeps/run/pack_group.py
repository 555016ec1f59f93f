"""The runs of one order, which may have come unequally far: a pack for each step that some of them are at.

An order that goes on from several checkpoints, or adds fresh runs to them, starts as several packs. The hindmost trains
until it meets the next; the two are then merged, until one pack is left. An order of fresh runs is one pack from the
start, and one that goes on from a checkpoint of its own gives the same bits as if it had never been interrupted.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Judge, Pack
from mislabel.tasks.task import Task


@dataclass
class Member:
    """A pack of the convoy."""

    made_of: PackOrder
    """The runs that the pack was made of, in its own counting of places, dropped ones included."""
    pack: Pack[Any]
    lanes: np.ndarray
    """For each of these, its lane in the convoy's order; -1 where that does not want it."""

    @property
    def live(self) -> list[int]:
        """Lanes of the convoy's order that still train."""
        return [] if self.pack.finished else [int(lane) for lane in self.lanes[self.pack.places]]

    def advance(self, seconds: float, judge: Judge | None, until: int | None, fewest: int) -> list[Frame]:
        """Train; frames, and what the judge is shown, count lanes as the convoy's order does."""

        def places_to_stop(frame: Frame) -> list[int]:
            assert judge is not None
            stopped = set(judge(self._renamed(frame)))
            return [int(place) for place in frame.lanes if self.lanes[place] in stopped]

        frames = self.pack.advance(seconds, judge and places_to_stop, until, fewest)
        return [self._renamed(frame) for frame in frames]

    def weights(self) -> dict[int, dict[str, Tensor]]:
        """Of a pack that has ended, what the lanes of the convoy's order that came to its end have trained."""
        named = self.pack.task.weights(self.pack.lanes, self.pack.state)
        return {
            int(lane): {name: tensor[row].detach().cpu().clone() for name, tensor in named.items()}
            for row, lane in enumerate(self.lanes[self.pack.places])
        }

    def _renamed(self, frame: Frame) -> Frame:
        return replace(frame, lanes=self.lanes[frame.lanes])


class PackGroup:
    def __init__(self, task: Task[Any], order: PackOrder, device: torch.device) -> None:
        self.task = task
        self.order = order
        self.device = device
        self.members: list[Member] = []
        self.run_steps = 0
        """Steps trained by this convoy, summed over lanes."""
        self.weights: dict[int, dict[str, Tensor]] = {}
        """Of lanes that were trained to the end, where the order keeps weights."""
        self._places = {run: lane for lane, run in enumerate(order.run_ids)}

    def begin(self, lanes: Sequence[int]) -> None:
        """Start these runs of the order from step 0."""
        made_of = self.order.select(lanes)
        self._add(Member(made_of, Pack(self.task, self._lanes(made_of)), np.array(lanes, dtype=int)))

    def take_up(self, saved: Mapping[str, Any]) -> list[int]:
        """Go on with a pack of a checkpoint, without lanes that the order does not want; returns those it has."""
        made_of = PackOrder.from_json(saved["made_of"])
        pack = Pack.resumed(self.task, self._lanes(made_of), saved["pack"])
        taken = {lane for member in self.members for lane in member.live}
        lanes = np.array([self._places.get(run, -1) for run in made_of.run_ids], dtype=int)
        lanes[np.isin(lanes, list(taken))] = -1
        unwanted = [int(place) for place in pack.places if lanes[place] < 0]
        if unwanted:
            pack.drop(unwanted)
        member = Member(made_of, pack, lanes)
        self._add(member)
        return member.live

    def checkpoint(self) -> list[dict[str, Any]]:
        """A part per pack, for `take_up`."""
        return [{"made_of": m.made_of.to_json(), "pack": m.pack.checkpoint()} for m in self.members]

    def advance(self, seconds: float, judge: Judge | None = None, fewest: int = 0) -> list[Frame]:
        """Train for about this long, while more than the `fewest` lanes are left; returns the frames on the way."""
        frames: list[Frame] = []
        deadline = time.perf_counter() + seconds
        while self.members:
            hindmost, *ahead = self.members
            before = hindmost.pack.run_steps
            until = ahead[0].pack.step if ahead else None
            waiting = sum(len(member.live) for member in ahead)
            frames += hindmost.advance(max(0.0, deadline - time.perf_counter()), judge, until, fewest - waiting)
            self.run_steps += hindmost.pack.run_steps - before
            self._merge_equal_steps()
            if time.perf_counter() >= deadline or len(self.live) <= fewest:
                break
        return frames

    @property
    def live(self) -> list[int]:
        """Lanes that still train."""
        return [lane for member in self.members for lane in member.live]

    @property
    def step(self) -> int:
        """That of the hindmost pack."""
        return self.members[0].pack.step if self.members else 0

    def steps(self) -> dict[int, int]:
        """Of each lane that still trains, the step that it is at."""
        return {lane: member.pack.step for member in self.members for lane in member.live}

    def _add(self, member: Member) -> None:
        if member.live:
            self.members.append(member)
            self._merge_equal_steps()

    def _merge_equal_steps(self) -> None:
        """Leave out packs that have ended, put the hindmost first, and merge those that have come equally far."""
        for member in self.members:
            if self.order.keep_weights and not member.live:
                self.weights |= member.weights()
        ranks: list[Member] = []
        for member in sorted((m for m in self.members if m.live), key=lambda member: member.pack.reached):
            if ranks and ranks[-1].pack.reached == member.pack.reached:
                ranks[-1] = self._merged(ranks[-1], member)
            else:
                ranks.append(member)
        self.members = ranks

    def _merged(self, first: Member, second: Member) -> Member:
        lanes = first.live + second.live
        return Member(self.order.select(lanes), first.pack.merged(second.pack), np.array(lanes, dtype=int))

    def _lanes(self, order: PackOrder) -> Lanes[Any]:
        settings = [self.task.settings(order.values(i)) for i in range(len(order))]
        return Lanes(settings, order.seeds, self.device)
