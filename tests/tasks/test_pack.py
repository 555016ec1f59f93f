"""The loop that all tasks share, tested on a walk of one unit per step, whose numbers are known in advance."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Pack
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task
from mislabel.tasks.training import Training


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    steps: int = shape(20, at_least=1, help="steps of the walk")
    frames: int = shape(5, at_least=2, help="frames")
    spacing: str = shape("linear", choices=("linear", "log"), help="of frames")
    pace: float = knob(1.0, help="length of a step")
    cliff: float = knob(1e9, help="where the walk falls")
    trail: int = knob(0, help="a whole number that differs per lane")


CALLS: list[tuple[int, int]] = []


def init(lanes: Lanes[Params]) -> State:
    return {"at": torch.zeros(len(lanes), dtype=lanes.dtype)}


def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    CALLS.append((start, stop))
    at = s["at"] + (stop - start) * lanes["pace"]
    return {"at": torch.where(at > lanes["cliff"], torch.nan, at)}


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    return {"at": s["at"], "never": torch.full_like(s["at"], torch.nan), "path": s["at"][:, None] * torch.ones(3)}


WALK = Task(
    name="walk",
    version=1,
    params=Params,
    metrics={"at": Metric("place"), "never": Metric("never", may_be_absent=True), "path": Metric("path", per="turn")},
    init=init,
    advance=advance,
    measure=measure,
)


def walked(pack: Pack[Any]) -> list[Frame]:
    frames: list[Frame] = []
    while not pack.finished:
        frames += pack.advance(seconds=0)
    return frames


def test_frames_come_at_the_measured_steps_with_a_value_per_lane() -> None:
    frames = walked(Pack(WALK, Lanes([Params(pace=1.0), Params(pace=2.0)], [0, 0])))
    assert [frame.step for frame in frames] == [0, 5, 10, 15, 20]
    assert [frame.metrics["at"].tolist() for frame in frames] == [[0, 0], [5, 10], [10, 20], [15, 30], [20, 40]]
    assert all(frame.labels.tolist() == [0, 1] for frame in frames)
    assert not any(frame.diverged.any() for frame in frames)


def test_arrays_are_kept_at_snapshots_only() -> None:
    frames = walked(Pack(WALK, Lanes([Params(snapshots=2)], [0])))
    assert [sorted(frame.arrays) for frame in frames] == [["path"], [], [], [], ["path"]]
    assert frames[-1].arrays["path"].tolist() == [[20, 20, 20]]
    assert "path" not in frames[-1].metrics


def test_a_diverged_lane_ends_with_its_frame_and_the_others_continue() -> None:
    frames = walked(Pack(WALK, Lanes([Params(cliff=7.0), Params(), Params(cliff=12.0)], [0, 1, 2])))
    assert [frame.labels.tolist() for frame in frames] == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [1, 2], [1]]
    assert [frame.labels[frame.diverged].tolist() for frame in frames] == [[], [], [0], [2], []]
    assert frames[-1].metrics["at"].tolist() == [20]


def test_a_pack_in_which_all_lanes_diverge_is_finished() -> None:
    frames = walked(Pack(WALK, Lanes([Params(cliff=1.0)], [0])))
    assert [frame.step for frame in frames] == [0, 5]


def test_an_absent_metric_does_not_mean_divergence() -> None:
    last = walked(Pack(WALK, Lanes([Params()], [0])))[-1]
    assert np.isnan(last.metrics["never"]).all()
    assert not last.diverged.any()


def test_dropped_lanes_are_not_measured_again_and_labels_stay() -> None:
    pack = Pack(WALK, Lanes([Params(pace=float(i)) for i in range(4)], range(4)))
    pack.advance(seconds=0)
    pack.drop([0, 2])
    last = walked(pack)[-1]
    assert last.labels.tolist() == [1, 3]
    assert last.metrics["at"].tolist() == [20, 60]
    pack.drop([1, 3])
    assert pack.finished


def test_a_checkpoint_continues_where_it_was_taken() -> None:
    lanes = [Params(pace=float(i)) for i in range(3)]
    pack = Pack(WALK, Lanes(lanes, range(3)))
    pack.advance(seconds=0)
    pack.advance(seconds=0)
    pack.drop([1])
    resumed = Pack.resumed(WALK, pack.checkpoint())
    assert resumed.step == pack.step > 0
    frames = walked(resumed)
    assert frames[-1].labels.tolist() == [0, 2]
    assert frames[-1].metrics["at"].tolist() == [0, 40]
    assert 0 not in [frame.step for frame in frames]


def test_once_computes_for_all_lanes_after_a_resume_even_if_some_were_dropped() -> None:
    # Products of many small matrices are rounded differently from products of few.
    def crowd(lanes: Lanes[Params]) -> Tensor:
        kept: Tensor = lanes.once("crowd", lambda: torch.full((len(lanes),), float(len(lanes))))
        return kept

    task = replace(
        WALK,
        init=lambda lanes: {"at": crowd(lanes)},
        measure=lambda lanes, s: {**measure(lanes, s), "at": crowd(lanes)},
    )
    pack = Pack(task, Lanes([Params()] * 3, range(3)))
    pack.advance(seconds=0)
    pack.drop([1])
    resumed = Pack.resumed(task, pack.checkpoint())
    assert walked(resumed)[-1].metrics["at"].tolist() == walked(pack)[-1].metrics["at"].tolist() == [3, 3]


def test_advance_stops_only_at_frames_and_multiples_of_the_block() -> None:
    task = replace(WALK, block=4)
    CALLS.clear()
    pack = Pack(task, Lanes([Params(steps=50, frames=4)], [0]))
    frames = walked(pack)
    measured = {frame.step for frame in frames}
    assert measured == {0, 17, 33, 50}
    assert CALLS[0][0] == 0
    assert [stop for _, stop in CALLS[:-1]] == [start for start, _ in CALLS[1:]]
    assert all(stop % 4 == 0 or stop in measured for _, stop in CALLS)


def test_lanes_that_disagree_on_a_shape_cannot_share_a_pack() -> None:
    with pytest.raises(ValueError, match=r"steps is a shape, but the lanes have \[20, 30\]"):
        Lanes([Params(), Params(steps=30)], [0, 1])


def test_every_lane_needs_settings_and_a_seed() -> None:
    with pytest.raises(ValueError, match="1 settings and 2 seeds"):
        Lanes([Params()], [0, 1])
    with pytest.raises(ValueError, match="at least one"):
        Lanes([], [])


def test_a_knob_is_not_read_as_a_shape() -> None:
    lanes = Lanes([Params(pace=1.0), Params(pace=2.0)], [0, 1])
    with pytest.raises(AttributeError, match=r"lanes\['pace'\]"):
        _ = lanes.shape.pace
    assert lanes.column("pace").shape == (2, 1, 1)
    assert lanes["trail"].dtype == torch.int64


@dataclass(frozen=True)
class Kept:
    numbers: Tensor
    nothing: None = None


def test_once_computes_once_and_select_keeps_the_rows_of_the_lanes() -> None:
    lanes = Lanes([Params()] * 3, range(3))
    made = []

    def make() -> tuple[Tensor, Kept]:
        made.append(1)
        return torch.arange(3), Kept(torch.arange(3) * 10)

    lanes.once("data", make)
    plain, kept = lanes.select([2, 0]).once("data", make)
    assert len(made) == 1
    assert plain.tolist() == [2, 0]
    assert kept.numbers.tolist() == [20, 0]
    assert kept.nothing is None


def test_a_judge_sees_every_frame_but_the_last_and_ends_lanes_at_once() -> None:
    seen = []

    def judge(frame: Frame) -> list[int]:
        seen.append(frame.step)
        return [0] if frame.step == 5 else [2] if frame.step == 15 else []

    pack = Pack(WALK, Lanes([Params()] * 3, range(3)))
    frames = pack.advance(60.0, judge)
    assert seen == [0, 5, 10, 15]
    assert [frame.labels.tolist() for frame in frames] == [[0, 1, 2], [0, 1, 2], [1, 2], [1, 2], [1]]
    assert [frame.labels[frame.stopped].tolist() for frame in frames] == [[], [0], [], [2], []]
    assert pack.run_steps == 5 + 15 + 20


def test_a_pack_whose_lanes_are_all_stopped_is_finished() -> None:
    pack = Pack(WALK, Lanes([Params()] * 2, range(2)))
    frames = pack.advance(60.0, lambda frame: frame.labels.tolist() if frame.step == 10 else [])
    assert pack.finished
    assert frames[-1].step == 10
    assert pack.run_steps == 2 * 10


@pytest.mark.parametrize("until", [0, 3, 5, 7, 20])
def test_a_pack_trains_no_further_than_it_is_asked_to(until: int) -> None:
    pack = Pack(WALK, Lanes([Params()], [0]))
    frames = pack.advance(60.0, until=until)
    assert pack.step == until
    assert [frame.step for frame in frames] == [step for step in (0, 5, 10, 15, 20) if step <= until]
    assert pack.advance(60.0, until=until) == []


def test_two_packs_at_the_same_step_are_merged_and_keep_their_labels() -> None:
    lanes = [Params(pace=float(i)) for i in range(3)]
    first, second = Pack(WALK, Lanes(lanes[:2], [0, 1]), ["a", "b"]), Pack(WALK, Lanes(lanes[2:], [2]), ["c"])
    first.advance(60.0, until=7)
    with pytest.raises(AssertionError, match="one has reached"):
        first.merged(second)
    second.advance(60.0, until=7)
    first.drop(["a"])
    both = first.merged(second)
    frames = walked(both)
    assert [frame.step for frame in frames] == [10, 15, 20]
    assert frames[-1].labels.tolist() == ["b", "c"]
    assert frames[-1].metrics["at"].tolist() == [20, 40]


def test_results_of_once_are_joined() -> None:
    first, second = (Lanes([Params()] * n, range(n)) for n in (1, 2))
    for lanes, start in ((first, 0), (second, 1)):
        numbers = torch.arange(start, start + len(lanes))
        lanes.once("data", lambda numbers=numbers: (numbers, Kept(numbers * 10)))  # type: ignore[misc]
    joined: Any = first.joined(second)
    plain, kept = joined.once("data", list)
    assert plain.tolist() == [0, 1, 2]
    assert kept.numbers.tolist() == [0, 10, 20]
    assert kept.nothing is None
