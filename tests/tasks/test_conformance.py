"""The conformance suite works: each way of breaking the contract fails its check."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mislabel.tasks import conformance
from mislabel.tasks.conformance import CHECKS
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Pack
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task
from mislabel.tasks.training import Training


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    width: int = shape(2000, at_least=1, help="weights")
    rate: float = knob(0.1, above=0, help="how fast they forget")


def init(lanes: Lanes[Params]) -> State:
    return {"w": lanes.normal("w", lanes.shape.width)}


def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    w = s["w"]
    for noise in lanes.normal("noise", lanes.shape.width, steps=range(start, stop)).unbind(1):
        w = (1 - lanes.column("rate", 1)) * w + noise
    return {"w": w}


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    return {"size": s["w"].square().mean(dim=1), "weight": s["w"]}


GOOD = Task(
    name="good",
    version=1,
    params=Params,
    metrics={"size": Metric("mean square"), "weight": Metric("each weight", per="weight")},
    init=init,
    advance=advance,
    measure=measure,
    small={"width": 3},
)


def moved(change: Callable[[Lanes[Params], Tensor], Tensor]) -> Task[Params]:
    """The good task with its weights changed after each call of `advance`."""

    def changed(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
        return {"w": change(lanes, advance(lanes, s, start, stop)["w"])}

    return replace(GOOD, advance=changed)


def measuring(more: Callable[[Tensor], Mapping[str, Tensor]]) -> Task[Params]:
    return replace(GOOD, measure=lambda lanes, s: {**measure(lanes, s), **more(s["w"])})


def in_place(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    s["w"].copy_(advance(lanes, s, start, stop)["w"])
    return s


def crowd(lanes: Lanes[Params]) -> Tensor:
    return torch.full((len(lanes), 1), float(len(lanes)))


BROKEN: dict[str, tuple[Task[Params], Callable[[Task[Any]], None]]] = {
    "a metric that is a parameter": (
        replace(GOOD, metrics={**GOOD.metrics, "rate": Metric("again")}),
        conformance.names_are_free_and_explained,
    ),
    "a metric that is a column of all tasks": (
        replace(GOOD, metrics={**GOOD.metrics, "seed": Metric("taken")}),
        conformance.names_are_free_and_explained,
    ),
    "a metric without help": (
        replace(GOOD, metrics={**GOOD.metrics, "size": Metric(" ")}),
        conformance.names_are_free_and_explained,
    ),
    "no metric by which to see divergence": (
        replace(GOOD, metrics={**GOOD.metrics, "size": Metric("size", may_be_absent=True)}),
        conformance.names_are_free_and_explained,
    ),
    "defaults in conflict": (
        replace(GOOD, conflicts=lambda params: ["width: never right"]),
        conformance.defaults_are_valid,
    ),
    "small settings out of bounds": (replace(GOOD, small={"width": 0}), conformance.defaults_are_valid),
    "a metric that is not declared": (
        measuring(lambda w: {"more": w[:, 0]}),
        conformance.measured_metrics_are_the_declared_ones,
    ),
    "a metric that is not measured": (
        replace(GOOD, metrics={**GOOD.metrics, "more": Metric("more")}),
        conformance.measured_metrics_are_the_declared_ones,
    ),
    "a mean over lanes": (
        measuring(lambda w: {"size": w.square().mean()}),
        conformance.measured_metrics_are_the_declared_ones,
    ),
    "lanes last": (
        replace(GOOD, init=lambda lanes: {"w": init(lanes)["w"].T}, advance=lambda lanes, s, start, stop: s),
        conformance.lanes_come_first_in_the_state,
    ),
    "training in place": (replace(GOOD, advance=in_place), conformance.training_leaves_its_input_alone),
    "lanes that see each other": (
        moved(lambda lanes, w: w - 0.01 * w.mean(dim=0)),
        conformance.a_run_is_the_same_alone_and_in_a_pack,
    ),
    "a mean over a few lanes": (
        moved(lambda lanes, w: w - 1e-6 * w.mean(dim=0)),
        conformance.packs_of_any_size_change_only_the_rounding,
    ),
    "noise that all lanes share": (
        moved(lambda lanes, w: w + 1e-6 * lanes.normal("shared", lanes.shape.width)[:1]),
        conformance.packs_of_any_size_change_only_the_rounding,
    ),
    "a lane that depends on its place": (
        moved(lambda lanes, w: w + torch.arange(len(w))[:, None]),
        conformance.the_order_of_lanes_does_not_matter,
    ),
    "training that depends on where it is cut": (
        moved(lambda lanes, w: w + 1),
        conformance.a_resumed_run_equals_an_uninterrupted_one,
    ),
    "lanes that see how many they are": (
        moved(lambda lanes, w: w + 0.001 * len(lanes)),
        conformance.dropping_a_lane_moves_no_other,
    ),
    "what lanes keep does not follow them": (
        replace(
            GOOD,
            init=lambda lanes: {"w": init(lanes)["w"] + 0 * lanes.once("crowd", lambda: crowd(lanes))},
            advance=lambda lanes, s, start, stop: {
                "w": advance(lanes, s, start, stop)["w"] + lanes.once("crowd", torch.Tensor)
            },
        ),
        conformance.merging_two_packs_moves_no_lane,
    ),
    "a divergence that is not measured": (
        measuring(lambda w: {"size": w.nan_to_num().square().mean(dim=1)}),
        conformance.a_diverged_lane_ends_alone,
    ),
    "a divergence that spreads": (
        moved(lambda lanes, w: w + 0 * w.sum(dim=0)),
        conformance.a_diverged_lane_ends_alone,
    ),
    "torch's own generator": (
        moved(lambda lanes, w: w + torch.randn_like(w)),
        conformance.no_shared_generator_is_used,
    ),
    "no randomness at all": (
        replace(GOOD, init=lambda lanes: {"w": torch.ones(len(lanes), 3)}, advance=lambda lanes, s, start, stop: s),
        conformance.seeds_differ,
    ),
    "a state in single precision": (
        moved(lambda lanes, w: w.float()),
        conformance.double_precision_is_kept,
    ),
}


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_packs_that_mix_lanes_differ_far_more_than_rounding(precision: str) -> None:
    good = conformance.rounding_of(GOOD, precision=precision)
    assert max(good.values()) < 10
    for name in ("lanes that see each other", "lanes that see how many they are"):
        mixed = conformance.rounding_of(BROKEN[name][0], precision=precision)
        assert max(mixed.values()) > 100 * conformance.MOST_ROUNDING
    assert {size for size, _ in good} == {3, 6}


def test_rounding_that_grows_is_not_mistaken_for_mixed_lanes() -> None:
    """Each step is rounded by the number of lanes, and triples all differences."""

    def growing(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
        w = s["w"]
        for _ in range(start, stop):
            w = (3 * w * (1 + torch.finfo(w.dtype).eps * (len(lanes) % 4))).sin()
        return {"w": w}

    task = replace(GOOD, advance=growing)
    change = np.abs(trained(task, 3) - trained(task, 1))
    assert change.max() > 1e-4
    assert 0 < max(conformance.rounding_of(task, precision="float32").values()) < conformance.MOST_ROUNDING


def trained(task: Task[Params], lanes: int) -> np.ndarray:
    """The weights of the first of some lanes after 13 steps."""
    pack = Pack(task, Lanes([Params(width=3, steps=13, snapshots=1)] * lanes, range(lanes)))
    weights: np.ndarray = pack.advance(seconds=60)[-1].arrays["weight"][0]
    return weights


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_task_that_keeps_the_contract_passes(check: Callable[[Task[Any]], None]) -> None:
    check(GOOD)


@pytest.mark.parametrize("name", BROKEN)
def test_a_task_that_breaks_the_contract_fails_the_check_for_it(name: str) -> None:
    task, check = BROKEN[name]
    assert check in CHECKS
    with pytest.raises(AssertionError):
        check(task)
