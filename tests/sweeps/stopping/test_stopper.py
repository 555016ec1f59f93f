"""Compare the stopper's decisions with a slow, obvious implementation of every rule, per cell and per run.

Sweeps are simulated without training: curves are random, runs are divided into packs, and packs advance in any order.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.sweeps.spec.model import EarlyTerminate
from mislabel.sweeps.stopping.rules import Halving, decision_steps, rule_of
from mislabel.sweeps.stopping.stopper import Entry, Stopper, stopper_of
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, bowl_spec, run
from tests.examples import examples

MEASURED = [0, 1, 2, 3, 5, 8, 12, 17, 23, 30]
KINDS: list[dict[str, Any]] = [
    {"type": "asha", "min_steps": 2, "eta": 2},
    {"type": "asha", "min_steps": 4, "eta": 3},
    {"type": "hyperband", "min_steps": 1, "eta": 3},
    {"type": "median", "min_steps": 3, "min_cells": 2},
    {"type": "patience", "min_steps": 5, "patience": 6, "min_gain": 0.5},
    {"type": "patience", "min_steps": 5, "patience": 2},
]
RULES = [EarlyTerminate(**kind, per=per) for kind in KINDS for per in ("cell", "run")]
every_rule = pytest.mark.parametrize("wanted", RULES, ids=lambda w: f"{w.type}, min_steps {w.min_steps}, per {w.per}")

Value = float | None
Call = tuple[int, list[Entry], list[Value]]


@dataclass
class Simulated:
    """A simulated sweep: every call to the stopper, its answer, and the step at which each run ended."""

    calls: list[Call] = field(default_factory=list)
    answers: list[list[bool]] = field(default_factory=list)
    stopped: dict[Entry, int] = field(default_factory=dict)
    diverged: dict[Entry, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Simulation:
    """The curves of runs (None after a run diverges), the packs, and the order in which packs advance."""

    curves: dict[Entry, list[Value]]
    packs: list[list[Entry]]
    turns: list[int]

    def run(self, wanted: EarlyTerminate, goal: str = "minimize") -> Simulated:
        return self.advance(wanted, Stopper(wanted, goal, MEASURED[-1]), Simulated(), {}, len(self.turns))

    def advance(
        self, wanted: EarlyTerminate, stopper: Stopper, simulated: Simulated, at: dict[int, int], turns: int
    ) -> Simulated:
        decided = decision_steps(wanted, MEASURED)
        last = max(decided)
        for pack in self.turns[sum(at.values()) : sum(at.values()) + turns]:
            at[pack] = at.get(pack, 0) + 1
            i = at[pack] - 1
            live = [r for r in self.packs[pack] if r not in simulated.stopped and r not in simulated.diverged]
            values = [self.curves[r][i] for r in live]
            gone = {r: MEASURED[i] for r, value in zip(live, values, strict=True) if value is None}
            if live and i < len(MEASURED) - 1 and (MEASURED[i] in decided or gone):
                answer = stopper.decide(MEASURED[i], [r._replace(last_decision=last) for r in live], values)
                simulated.calls.append((MEASURED[i], live, values))
                simulated.answers.append(answer)
                ends = [r for r, stop in zip(live, answer, strict=True) if stop and r not in gone]
                simulated.stopped |= dict.fromkeys(ends, MEASURED[i])
            simulated.diverged |= gone
        return simulated


def simulation_of(seed: int, packs: int = 3) -> Simulation:
    """A random simulation with few cells and values, so that ties, gaps and divergence are common."""
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
    return Simulation(curves, held, turns)


simulations = st.integers(0, 2**32).map(simulation_of)


def candidate(wanted: EarlyTerminate, run: Entry) -> str:
    return run.cell if wanted.per == "cell" else f"{run.cell}-{run.seed}"


def expected(wanted: EarlyTerminate, calls: Sequence[Call], goal: str = "minimize") -> Iterator[list[bool]]:
    """The rule's decisions at every call, each computed from all values up to that call."""
    stopped: set[str] = set()
    kept: set[str] = set()
    for n, (step, runs, values) in enumerate(calls):
        curves = means_of(wanted, calls[: n + 1], goal)
        branch = {candidate(wanted, run): run.branch for _, seen, _ in calls[: n + 1] for run in seen}
        measured = {candidate(wanted, run) for run, value in zip(runs, values, strict=True) if value is not None}
        stopped |= {
            name
            for name in measured - kept
            if loses(wanted, name, step, {c: curve for c, curve in curves.items() if branch[c] == branch[name]})
        }
        answer = [step >= wanted.min_steps and candidate(wanted, run) in stopped for run in runs]
        if step >= max(decision_steps(wanted, MEASURED)):
            continued = (
                run for run, value, stop in zip(runs, values, answer, strict=True) if value is not None and not stop
            )
            kept |= {candidate(wanted, run) for run in continued}
        yield answer


def means_of(wanted: EarlyTerminate, calls: Sequence[Call], goal: str) -> dict[str, dict[int, float]]:
    """The mean cost of each candidate at each step; infinite after one of its runs diverged."""
    sign = 1 if goal == "minimize" else -1
    shown: dict[str, dict[int, dict[int, float]]] = {}
    ends: dict[str, int] = {}
    for step, runs, values in calls:
        for entry, value in zip(runs, values, strict=True):
            name = candidate(wanted, entry)
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
@examples(100)
@given(simulation=simulations, goal=st.sampled_from(["minimize", "maximize"]))
def test_decisions_follow_the_rule(wanted: EarlyTerminate, simulation: Simulation, goal: str) -> None:
    simulated = simulation.run(wanted, goal)
    assert simulated.answers == list(expected(wanted, simulated.calls, goal))


@every_rule
@examples(50)
@given(simulation=simulations, turns=st.integers(0, 30))
def test_a_stopper_rebuilt_from_the_store_decides_like_the_first_one(
    wanted: EarlyTerminate, simulation: Simulation, turns: int
) -> None:
    whole = simulation.run(wanted)
    at: dict[int, int] = {}
    first = simulation.advance(wanted, Stopper(wanted, "minimize", MEASURED[-1]), Simulated(), at, turns)
    second = Stopper(wanted, "minimize", MEASURED[-1])
    decided = decision_steps(wanted, MEASURED)
    for gone, step in first.diverged.items():
        second.diverge(gone, step)
    for step, runs, values in sorted(first.calls, key=lambda call: call[0]):
        second.record(step, runs, values)
        left = [run for run in runs if run not in first.stopped and run not in first.diverged]
        for passed in left if step == max(decided) else ():
            second.finish(passed)
    for stopped in first.stopped:
        second.stop(stopped)
    rest = simulation.advance(wanted, second, first, at, len(simulation.turns))
    assert rest.answers == whole.answers


@every_rule
@examples(50)
@given(simulation=simulations)
def test_no_run_is_stopped_before_min_steps_or_at_its_last_step(wanted: EarlyTerminate, simulation: Simulation) -> None:
    simulated = simulation.run(wanted)
    assert all(wanted.min_steps <= step < MEASURED[-1] for step in simulated.stopped.values())


@every_rule
@examples(50)
@given(simulation=simulations)
def test_all_seeds_of_a_stopped_cell_stop_at_their_next_frame(wanted: EarlyTerminate, simulation: Simulation) -> None:
    if wanted.per == "run":
        return
    simulated = simulation.run(wanted)
    gone: set[str] = set()
    for (step, runs, _), answer in zip(simulated.calls, simulated.answers, strict=True):
        assert all(stop for r, stop in zip(runs, answer, strict=True) if r.cell in gone and step >= wanted.min_steps)
        gone |= {r.cell for r, stop in zip(runs, answer, strict=True) if stop}


@every_rule
@examples(100)
@given(simulation=simulations)
def test_no_cell_has_both_stopped_runs_and_runs_that_are_trained_to_the_end(
    wanted: EarlyTerminate, simulation: Simulation
) -> None:
    """Seeds of a cell are in different packs here, which reach their steps in any order."""
    if wanted.per == "run":
        return
    simulated = simulation.run(wanted)
    trained = {r.cell for r in simulation.curves if r not in simulated.stopped and r not in simulated.diverged}
    assert not trained & {r.cell for r in simulated.stopped}


@pytest.mark.parametrize("per", ["cell", "run"])
@examples(100)
@given(simulation=st.integers(0, 2**32).map(lambda seed: simulation_of(seed, packs=1)), goal=st.sampled_from([1, -1]))
def test_asha_never_stops_the_best_cell_of_a_single_pack(per: Any, simulation: Simulation, goal: int) -> None:
    wanted = EarlyTerminate(type="asha", min_steps=2, eta=3, per=per)
    best = min(simulation.curves)
    lead: list[Value] = [goal * -9.0] * 10
    curves = {r: lead if r.cell == best.cell else curve for r, curve in simulation.curves.items()}
    simulated = Simulation(curves, simulation.packs, simulation.turns).run(
        wanted, "minimize" if goal == 1 else "maximize"
    )
    if per == "cell":
        assert best.cell not in {r.cell for r in simulated.stopped}
    else:
        assert best not in simulated.stopped


def test_brackets_have_the_proportions_of_hyperband() -> None:
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
def test_the_stopper_of_a_second_launch_knows_the_runs_of_the_first(store: Store, per: str) -> None:
    """Runs of the second launch are compared with those of the first, and a stopped cell stays stopped."""
    x = {"values": [-4, -2, 0, 2, 4, 6]}
    run(store, parameters={**SLOW, "x": x}, seeds=2, early_terminate={**ASHA, "per": per}, resources={"pack": 12})
    spec = bowl_spec(parameters={**SLOW, "x": x}, seeds=3, early_terminate={**ASHA, "per": per})
    stopper = stopper_of(spec, BOWL, RunIndex(spec, store.sweep("bowls")), store.sweep("bowls"))
    assert stopper is not None
    rows = store.sweep("bowls").read("runs", ["cell_id", "seed", "status"]).to_pylist()
    stopped = [Entry(row["cell_id"], row["seed"]) for row in rows if row["status"] == "stopped"]
    assert stopped
    assert stopper.decide(3, stopped, [0.0] * len(stopped)) == [True] * len(stopped)
    # 6 cells, or 12 runs, reached the first rung: a new one must be among the best third.
    assert stopper.decide(3, [Entry("bad", 0)], [1e9]) == [True]
    assert stopper.decide(3, [Entry("good", 0)], [-1.0]) == [False]


def test_a_new_run_is_compared_with_the_stored_curves(store: Store) -> None:
    """With the new one, 7 cells reach the first rung at step 3, and the best two of them continue."""
    parameters = {**SLOW, "x": {"values": [-4, -2, 0, 2, 4, 6]}}
    files = run(store, parameters=parameters, seeds=2).files
    curves = files.read("curves", ["run_id", "step", "loss"]).to_pandas()
    at_rung = curves[curves["step"] == 3]
    best, second, *_ = sorted(at_rung.groupby(at_rung["run_id"].str.split("-").str[0])["loss"].mean())
    spec = bowl_spec(parameters=parameters, seeds=2, early_terminate=ASHA)
    for value, stops in ((best - 0.01, False), ((best + second) / 2, False), (second + 0.01, True)):
        stopper = stopper_of(spec, BOWL, RunIndex(spec, files), files)
        assert stopper is not None
        assert stopper.decide(3, [Entry("new", 0)], [value]) == [stops]


def test_cells_are_compared_within_their_branch() -> None:
    stopper = Stopper(EarlyTerminate(type="asha", min_steps=1, eta=2), "minimize", 9)
    runs = [Entry(f"{branch}{i}", 0, branch) for branch in ("low", "high") for i in range(2)]
    assert stopper.decide(1, runs, [1.0, 2.0, 8.0, 9.0]) == [False, True, False, True]


def test_a_sweep_without_a_rule_has_no_stopper(store: Store) -> None:
    assert stopper_of(bowl_spec(), BOWL, RunIndex(bowl_spec(), store.sweep("bowls")), store.sweep("bowls")) is None


@pytest.mark.parametrize("per", ["cell", "run"])
def test_the_further_seeds_of_a_race_are_not_stopped(store: Store, per: str) -> None:
    """Cells that were trained to the end race; a stopped seed would take them out of the race."""
    spec = bowl_spec(parameters=SLOW, seeds={"count": 1, "up_to": 4}, early_terminate={**ASHA, "per": per})
    stopper = stopper_of(spec, BOWL, RunIndex(spec, store.sweep("bowls")), store.sweep("bowls"))
    assert stopper is not None
    first = [Entry(f"cell{i}", 0) for i in range(6)]
    assert stopper.decide(3, first[:1], [9.0]) == [False]  # there is nothing to compare it with
    assert stopper.decide(3, first[1:], [1.0, 2.0, 3.0, 4.0, 5.0]) == [False, False, True, True, True]
    racing = [Entry("cell0", seed) for seed in (1, 2, 3)]
    assert stopper.decide(3, racing, [9.0] * 3) == [False] * 3
    if per == "cell":
        assert stopper.decide(3, [Entry("cell5", 1)], [0.0]) == [True]


def asha_of(**changes: Any) -> Stopper:
    return Stopper(EarlyTerminate(**{**ASHA, **changes}), "minimize", 27)


BEST_AND_WORST = [Entry("best", 0, last_decision=9), Entry("worst", 0, last_decision=9)]


@pytest.mark.parametrize(("step", "stops"), [(3, True), (9, False)])
def test_a_cell_is_not_judged_once_a_seed_has_passed_its_last_decision(step: int, stops: bool) -> None:
    stopper = asha_of()
    assert stopper.decide(step, BEST_AND_WORST[1:], [9.0]) == [False]  # there is nothing to compare it with
    assert stopper.decide(step, BEST_AND_WORST[:1], [1.0]) == [False]
    assert stopper.decide(3, [Entry("worst", 1, last_decision=9)], [9.0]) == [stops]


def test_a_cell_is_not_judged_before_the_checkpoints_of_its_other_seeds_are_known() -> None:
    """One seed may have passed its last decision. If the other one were stopped now, the cell would be split."""
    stopper = asha_of()
    ahead, behind = Entry("worst", 0, last_decision=9), Entry("worst", 1, last_decision=9)
    stopper.expect(ahead)
    assert stopper.decide(3, [BEST_AND_WORST[0], behind], [1.0, 9.0]) == [False, False]
    stopper.record(3, [ahead], [9.0])
    assert stopper.decide(9, [BEST_AND_WORST[0]], [1.0]) == [False]
    assert stopper.decide(9, [behind], [9.0]) == [True]
    assert stopper.decide(9, [ahead], [9.0]) == [True]


def test_a_run_that_continues_past_its_last_decision_keeps_its_cell() -> None:
    stopper = asha_of()
    stopper.expect(BEST_AND_WORST[1])
    stopper.record(9, BEST_AND_WORST[1:], [9.0])
    assert stopper.decide(3, [BEST_AND_WORST[0], Entry("worst", 1, last_decision=9)], [1.0, 9.0]) == [False, False]
