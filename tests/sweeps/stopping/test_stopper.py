"""Every stopping rule, per cell and per run: the stopper decides as a slow, obvious reading of the rule would.

Sweeps are played without training: curves are drawn, cut into packs, and the packs come to their steps in any order.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mislabel.sweeps.spec.model import EarlyTerminate
from mislabel.sweeps.stopping.rules import Halving, judged_steps, rule_of
from mislabel.sweeps.stopping.stopper import Entry, Stopper, stopper_of
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, bowl_spec, run

MEASURED = [0, 1, 2, 3, 5, 8, 12, 17, 23, 30]
KINDS: list[dict[str, Any]] = [
    {"type": "asha", "min_steps": 2, "eta": 2},
    {"type": "asha", "min_steps": 4, "eta": 3},
    {"type": "hyperband", "min_steps": 1, "eta": 3},
    {"type": "median", "min_steps": 3, "min_cells": 2},
    {"type": "patience", "min_steps": 5, "patience": 6, "min_gain": 0.5},
]
RULES = [EarlyTerminate(**kind, per=per) for kind in KINDS for per in ("cell", "run")]
every_rule = pytest.mark.parametrize("wanted", RULES, ids=lambda w: f"{w.type}, min_steps {w.min_steps}, per {w.per}")

Value = float | None
Call = tuple[int, list[Entry], list[Value]]


@dataclass
class Played:
    """A sweep that was played: every call to the stopper, its answer, and where each run ended."""

    calls: list[Call] = field(default_factory=list)
    answers: list[list[bool]] = field(default_factory=list)
    stopped: dict[Entry, int] = field(default_factory=dict)
    diverged: dict[Entry, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Game:
    """Curves of runs, None from where a run diverges; packs of runs; and the order in which packs take a step."""

    curves: dict[Entry, list[Value]]
    packs: list[list[Entry]]
    turns: list[int]

    def play(self, wanted: EarlyTerminate, goal: str = "minimize") -> Played:
        return self.go_on(wanted, Stopper(wanted, goal, MEASURED[-1]), Played(), {}, len(self.turns))

    def go_on(self, wanted: EarlyTerminate, stopper: Stopper, played: Played, at: dict[int, int], turns: int) -> Played:
        judged = judged_steps(wanted, MEASURED)
        for pack in self.turns[sum(at.values()) : sum(at.values()) + turns]:
            at[pack] = at.get(pack, 0) + 1
            place = at[pack] - 1
            live = [r for r in self.packs[pack] if r not in played.stopped and r not in played.diverged]
            values = [self.curves[r][place] for r in live]
            gone = {r: MEASURED[place] for r, value in zip(live, values, strict=True) if value is None}
            if live and place < len(MEASURED) - 1 and (MEASURED[place] in judged or gone):
                answer = stopper.judge(MEASURED[place], live, values)
                played.calls.append((MEASURED[place], live, values))
                played.answers.append(answer)
                ends = [r for r, stop in zip(live, answer, strict=True) if stop and r not in gone]
                played.stopped |= dict.fromkeys(ends, MEASURED[place])
            played.diverged |= gone
        return played


def game_of(seed: int, packs: int = 3) -> Game:
    """A game drawn at random: few cells and values, so that ties, gaps and divergence are common."""
    chance = random.Random(seed)
    seeds = chance.randint(1, 3)
    curves: dict[Entry, list[Value]] = {}
    for i in range(chance.randint(1, 7)):
        branch = chance.choice(["", "noise = 1"])
        for n in range(seeds):
            drawn = [chance.choice([0.0, 1.0, 1.25, 2.0, 3.0, math.nan, chance.uniform(-5, 5)]) for _ in MEASURED]
            diverges = chance.choice([10, 10, 10, 10, 3, 6])
            curves[Entry(f"c{i}", n, branch)] = [*drawn[:diverges], *[None] * (10 - diverges)]
    held: list[list[Entry]] = [[] for _ in range(packs)]
    for entry in curves:
        chance.choice(held).append(entry)
    turns = [p for p in range(packs) for _ in MEASURED]
    chance.shuffle(turns)
    return Game(curves, held, turns)


games = st.integers(0, 2**32).map(game_of)


def contender(wanted: EarlyTerminate, run: Entry) -> str:
    return run.cell if wanted.per == "cell" else f"{run.cell}-{run.seed}"


def expected(wanted: EarlyTerminate, calls: Sequence[Call], goal: str = "minimize") -> Iterator[list[bool]]:
    """What the rule says at every call, worked out anew from all values told up to there."""
    stopped: set[str] = set()
    for n, (step, runs, values) in enumerate(calls):
        curves = means_of(wanted, calls[: n + 1], goal)
        branch = {contender(wanted, run): run.branch for _, told, _ in calls[: n + 1] for run in told}
        judged = {contender(wanted, run) for run, value in zip(runs, values, strict=True) if value is not None}
        stopped |= {
            name
            for name in judged
            if loses(wanted, name, step, {c: curve for c, curve in curves.items() if branch[c] == branch[name]})
        }
        yield [step >= wanted.min_steps and contender(wanted, run) in stopped for run in runs]


def means_of(wanted: EarlyTerminate, calls: Sequence[Call], goal: str) -> dict[str, dict[int, float]]:
    """The mean cost of each contender at each step; infinite from where one of its runs diverged."""
    sign = 1 if goal == "minimize" else -1
    shown: dict[str, dict[int, dict[int, float]]] = {}
    ends: dict[str, int] = {}
    for step, runs, values in calls:
        for entry, value in zip(runs, values, strict=True):
            name = contender(wanted, entry)
            if value is None:
                ends[name] = min(step, ends.get(name, step))
            shown.setdefault(name, {}).setdefault(step, {})[entry.seed] = math.inf if value is None else sign * value
    return {
        name: {
            step: math.inf if step >= ends.get(name, 99) else sum(costs[s] for s in sorted(costs)) / len(costs)
            for step, costs in curve.items()
        }
        for name, curve in shown.items()
    }


def loses(wanted: EarlyTerminate, name: str, step: int, curves: dict[str, dict[int, float]]) -> bool:
    if step < wanted.min_steps:
        return False
    match wanted.type:
        case "asha" | "hyperband":
            rule = rule_of(wanted, MEASURED[-1])
            assert isinstance(rule, Halving)
            rungs = [wanted.min_steps * wanted.eta**k for k in range(rule.bracket(name), 9)]
            if step < rungs[0]:
                return False
            low, high = next((a, b) for a, b in pairwise(rungs) if a <= step < b)
            peers = {
                c: curve[min(s for s in curve if low <= s < high)]
                for c, curve in curves.items()
                if any(low <= s < high for s in curve) and rule.bracket(c) == rule.bracket(name)
            }
            ranked = sorted(peers, key=lambda c: (math.inf if math.isnan(peers[c]) else peers[c], c))
            first = min(s for s in curves[name] if low <= s < high)
            return step == first and name not in ranked[: max(1, len(ranked) // wanted.eta)]
        case "median":
            averages = [average(curve, step) for c, curve in curves.items() if c != name and step in curve]
            seen = [cost for s, cost in curves[name].items() if s <= step and not math.isnan(cost)]
            return len(averages) >= wanted.min_cells and min(seen, default=math.inf) > median(averages)
        case "patience":
            best, at = math.inf, min(curves[name])
            for s, cost in sorted(curves[name].items()):
                if s <= step and cost < best - wanted.min_gain:
                    best, at = cost, s
            assert wanted.patience is not None
            return step - at >= wanted.patience


def average(curve: dict[int, float], step: int) -> float:
    upto = [cost for s, cost in curve.items() if s <= step and not math.isnan(cost)]
    return math.fsum(upto) / len(upto) if upto else math.inf


@every_rule
@settings(max_examples=100)
@given(game=games, goal=st.sampled_from(["minimize", "maximize"]))
def test_it_decides_as_the_rule_says(wanted: EarlyTerminate, game: Game, goal: str) -> None:
    played = game.play(wanted, goal)
    assert played.answers == list(expected(wanted, played.calls, goal))


@every_rule
@settings(max_examples=50)
@given(game=games, turns=st.integers(0, 30))
def test_one_that_is_told_what_is_in_the_store_goes_on_as_the_first_would_have(
    wanted: EarlyTerminate, game: Game, turns: int
) -> None:
    whole = game.play(wanted)
    at: dict[int, int] = {}
    first = game.go_on(wanted, Stopper(wanted, "minimize", MEASURED[-1]), Played(), at, turns)
    second = Stopper(wanted, "minimize", MEASURED[-1])
    for gone, step in first.diverged.items():
        second.diverge(gone, step)
    for step, runs, values in sorted(first.calls, key=lambda call: call[0]):
        second.tell(step, runs, values)
    for stopped in first.stopped:
        second.stop(stopped)
    rest = game.go_on(wanted, second, first, at, len(game.turns))
    assert rest.answers == whole.answers


@every_rule
@settings(max_examples=50)
@given(game=games)
def test_no_run_is_stopped_before_min_steps_or_at_its_last_step(wanted: EarlyTerminate, game: Game) -> None:
    played = game.play(wanted)
    assert all(wanted.min_steps <= step < MEASURED[-1] for step in played.stopped.values())


@every_rule
@settings(max_examples=50)
@given(game=games)
def test_seeds_of_a_stopped_cell_stop_at_their_next_frame_wherever_they_are(wanted: EarlyTerminate, game: Game) -> None:
    if wanted.per == "run":
        return
    played = game.play(wanted)
    gone: set[str] = set()
    for (step, runs, _), answer in zip(played.calls, played.answers, strict=True):
        assert all(stop for r, stop in zip(runs, answer, strict=True) if r.cell in gone and step >= wanted.min_steps)
        gone |= {r.cell for r, stop in zip(runs, answer, strict=True) if stop}


@pytest.mark.parametrize("per", ["cell", "run"])
@settings(max_examples=100)
@given(game=st.integers(0, 2**32).map(lambda seed: game_of(seed, packs=1)), goal=st.sampled_from([1, -1]))
def test_in_one_pack_the_best_at_every_step_is_never_stopped_by_asha(per: Any, game: Game, goal: int) -> None:
    wanted = EarlyTerminate(type="asha", min_steps=2, eta=3, per=per)
    best = min(game.curves)
    lead: list[Value] = [goal * -9.0] * 10
    curves = {r: lead if r.cell == best.cell else curve for r, curve in game.curves.items()}
    played = Game(curves, game.packs, game.turns).play(wanted, "minimize" if goal == 1 else "maximize")
    if per == "cell":
        assert best.cell not in {r.cell for r in played.stopped}
    else:
        assert best not in played.stopped


def test_hyperbands_brackets_have_its_proportions() -> None:
    rule = rule_of(EarlyTerminate(type="hyperband", min_steps=1, eta=3), 9)
    assert isinstance(rule, Halving)
    counts = [0, 0, 0]
    for i in range(8000):
        counts[rule.bracket(f"cell{i}")] += 1
    # 9, 5 and 3 cells begin at 1, 3 and 9 steps.
    assert [round(17 * count / 8000) for count in counts] == [9, 5, 3]


def test_all_seeds_of_a_cell_are_in_one_bracket() -> None:
    rule = rule_of(EarlyTerminate(type="hyperband", min_steps=1, eta=3), 81)
    assert isinstance(rule, Halving)
    assert all(rule.bracket(f"c{i}-{seed}") == rule.bracket(f"c{i}") for i in range(20) for seed in range(3))


ASHA = {"type": "asha", "min_steps": 3, "eta": 3}
SLOW = {"steps": 27, "frames": 10, "rate": 0.05, "spacing": "linear"}


@pytest.mark.parametrize("per", ["cell", "run"])
def test_what_an_earlier_launch_knew_is_in_the_store(store: Store, per: str) -> None:
    """Runs of a second launch are judged against those of the first, and a stopped cell stays stopped."""
    x = {"values": [-4, -2, 0, 2, 4, 6]}
    run(store, parameters={**SLOW, "x": x}, seeds=2, early_terminate={**ASHA, "per": per}, resources={"pack": 12})
    spec = bowl_spec(parameters={**SLOW, "x": x}, seeds=3, early_terminate={**ASHA, "per": per})
    stopper = stopper_of(spec, BOWL, RunIndex(spec, store.sweep("bowls")), store.sweep("bowls"))
    assert stopper is not None
    rows = store.sweep("bowls").read("runs", ["cell_id", "seed", "status"]).to_pylist()
    stopped = [Entry(row["cell_id"], row["seed"]) for row in rows if row["status"] == "stopped"]
    assert stopped
    assert stopper.judge(3, stopped, [0.0] * len(stopped)) == [True] * len(stopped)
    # 6 cells, or 12 runs, were at the first rung: a newcomer passes as one of the best third only.
    assert stopper.judge(3, [Entry("bad", 0)], [1e9]) == [True]
    assert stopper.judge(3, [Entry("good", 0)], [-1.0]) == [False]


def test_cells_are_compared_within_their_branch() -> None:
    stopper = Stopper(EarlyTerminate(type="asha", min_steps=1, eta=2), "minimize", 9)
    runs = [Entry(f"{branch}{i}", 0, branch) for branch in ("low", "high") for i in range(2)]
    assert stopper.judge(1, runs, [1.0, 2.0, 8.0, 9.0]) == [False, True, False, True]


def test_a_sweep_without_a_rule_has_no_stopper(store: Store) -> None:
    assert stopper_of(bowl_spec(), BOWL, RunIndex(bowl_spec(), store.sweep("bowls")), store.sweep("bowls")) is None
