"""A bowl: weights roll to where the parameters send them, and the loss is how far from the bottom they come to rest.

A package of its own, as a user would install it: its entry point is in the folder beside this file.
"""

import dataclasses
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task
from mislabel.tasks.training import Training

RAISES, DIVERGES = 1, 2
ROOM = 64


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    steps: int = shape(8, at_least=1, help="training steps")
    frames: int = shape(3, at_least=2, help="how often metrics are measured")
    width: int = shape(2, at_least=1, at_most=64, help="weights")
    surface: str = shape("smooth", choices=("smooth", "rough"), help="of the bowl")
    tilted: bool = shape(False, help="whether the bowl stands on a slope")
    x: float = knob(0.0, between=(-10, 10), help="where the weights roll to; the bottom is at 3")
    rate: float = knob(0.5, above=0, at_most=1, help="how fast they roll")
    level: int = knob(1, at_least=0, at_most=1000, help="added to the height")
    trouble: int = knob(0, between=(0, 2), help="1: training raises half-way; 2: the weights become nan half-way")


METRICS = {
    "loss": Metric("mean square distance from the bottom"),
    "height": Metric("loss plus level"),
    "rest_step": Metric("first step at which the weights rest; absent in this task", may_be_absent=True),
    "weight": Metric("each weight", per="weight"),
}


def init(lanes: Lanes[Params]) -> State:
    return {"w": lanes.normal("w", lanes.shape.width)}


def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    w = s["w"]
    half = lanes.shape.steps // 2
    trouble = lanes["trouble"]
    if stop > half and (trouble == RAISES).any():
        raise RuntimeError("the bowl broke" + os.environ.get("BOWL_SAYS", ""))
    pause(lanes, stop - start)
    for step in range(start, stop):
        noise = 0.01 * lanes.normal("noise", lanes.shape.width, steps=range(step, step + 1))[:, 0]
        w = w + lanes.column("rate", 1) * (lanes.column("x", 1) - w) + noise
        if step >= half:
            w = torch.where((trouble == DIVERGES)[:, None], torch.nan, w)
    return {"w": w}


def pause(lanes: Lanes[Params], steps: int) -> None:
    """Take as long for these steps as `tests.pace` says at each moment."""
    began = time.monotonic()
    while time.monotonic() - began < steps * _step_seconds(lanes.shape.surface):
        time.sleep(0.02)


def _step_seconds(surface: str) -> float:
    try:
        return float(json.loads(Path(os.environ["BOWL_PAUSE"]).read_text())[surface])
    except (KeyError, FileNotFoundError):
        return 0.0


def advance_where_it_fits(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    """As if a device had room for 64 weights, each of which takes twice as much in a tilted bowl."""
    wanted = len(lanes) * lanes.shape.width * (2 if lanes.shape.tilted else 1)
    if wanted > ROOM and stop > lanes.shape.steps // 2:
        raise torch.OutOfMemoryError(f"tried to allocate {wanted} of {ROOM}")
    return advance(lanes, s, start, stop)


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    loss = (s["w"] - 3).square().mean(dim=1)
    return {
        "loss": loss,
        "height": loss + lanes["level"],
        "rest_step": torch.full_like(loss, torch.nan),
        "weight": s["w"],
    }


def conflicts(params: Params) -> Iterator[str]:
    if params.surface == "rough" and params.width > 32:
        yield f"a rough bowl holds at most 32 weights, not width {params.width}"


task = Task(
    name="bowl", version=1, params=Params, metrics=METRICS, init=init, advance=advance, measure=measure,
    conflicts=conflicts, weights=lambda lanes, s: {"rolled": s["w"]},
)  # fmt: skip
tight = dataclasses.replace(task, name="bowl.tight", advance=advance_where_it_fits)
single = dataclasses.replace(task, name="bowl.single", largest_pack=1)
