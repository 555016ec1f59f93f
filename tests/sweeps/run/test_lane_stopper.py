from collections.abc import Sequence

import numpy as np

from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.lane_stopper import LaneStopper, lane_stopper_of
from mislabel.sweeps.spec.model import EarlyTerminate
from mislabel.sweeps.stopping.stopper import Entry, Values
from mislabel.tasks.pack import Frame
from tests.bowls import BOWL, bowl_spec

ASHA = {"type": "asha", "min_steps": 4, "eta": 2}
COMMON = {name: parameter.default for name, parameter in BOWL.parameters.items() if name not in ("x", "level")}
ORDER = PackOrder(
    "s", "bowl", {**COMMON, "steps": 8, "frames": 9, "spacing": "linear"}, {"x": [0.0, 1.0], "level": [1, 2]},
    ["a", "b"], [0, 3],
)  # fmt: skip
TRAINING = BOWL.settings(ORDER.values(0))


class Recorder:
    """A stopper that stops every run and keeps what it is shown."""

    def __init__(self) -> None:
        self.judged: list[tuple[int, list[Entry], list[float | None]]] = []
        self.told: list[int] = []

    def decide(self, step: int, runs: Sequence[Entry], values: Values) -> list[bool]:
        self.judged.append((step, list(runs), list(values)))
        return [True] * len(runs)

    def record(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        self.told.append(step)


def frame(step: int, losses: dict[str, float], diverged: bool = False) -> Frame:
    values = np.array(list(losses.values()))
    gone = np.full(len(losses), diverged)
    return Frame(step, np.array(list(losses), dtype=object), {"loss": values}, {}, gone, np.zeros(len(losses), bool))


def stopped_by(recorder: Recorder) -> LaneStopper:
    return LaneStopper(EarlyTerminate.model_validate(ASHA), "loss", ["level"], recorder)


def test_the_stopper_sees_cells_seeds_and_branches_and_its_answer_names_run_ids() -> None:
    recorder = Recorder()
    judge = stopped_by(recorder).judge_of(ORDER, TRAINING)
    assert judge(frame(4, {"b-3": 2.0, "a-0": 1.0})) == ["b-3", "a-0"]
    ((step, runs, values),) = recorder.judged
    assert (step, values) == (4, [2.0, 1.0])
    assert [(run.cell, run.seed) for run in runs] == [("b", 3), ("a", 0)]
    assert runs[0].branch != runs[1].branch


def test_frames_between_the_judged_steps_are_not_shown() -> None:
    recorder = Recorder()
    assert stopped_by(recorder).judge_of(ORDER, TRAINING)(frame(3, {"a-0": 1.0})) == []
    assert recorder.judged == []


def test_a_diverged_run_is_shown_at_any_step_without_a_value_and_is_not_stopped() -> None:
    recorder = Recorder()
    assert stopped_by(recorder).judge_of(ORDER, TRAINING)(frame(3, {"a-0": 1.0}, diverged=True)) == []
    ((_, _, values),) = recorder.judged
    assert values == [None]


def test_frames_of_a_checkpoint_are_told_at_the_judged_steps() -> None:
    recorder = Recorder()
    stopped_by(recorder).judge_of(ORDER, TRAINING, [frame(step, {"a-0": 1.0}) for step in (3, 4, 5)])
    assert recorder.told == [4]


def test_a_sweep_without_a_rule_has_no_lane_stopper() -> None:
    assert lane_stopper_of(bowl_spec(), Recorder()) is None
    spec = bowl_spec(parameters={"steps": 8, "frames": 9, "spacing": "linear"}, early_terminate=ASHA)
    assert lane_stopper_of(spec, None) is None
    made = lane_stopper_of(spec, Recorder())
    assert made is not None
    assert made.objective == "loss"
