"""Our searches and plain Optuna: the quality of proposals, from means over seeds and in batches, and their cost."""

import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import optuna
from scipy.stats import wilcoxon

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.ids import cell_id
from mislabel.sweeps.search.optuna_study import Dimensions
from mislabel.sweeps.search.search import Search
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.cell_means import Mean
from mislabel.sweeps.store.store import Store
from mislabel.tasks.parameters import Value
from tests.benchmarks.figure import Figure
from tests.benchmarks.functions import FUNCTIONS, TASK, Function, hypervolume

BATCH = 4
STARTUP = 10
SEARCH_SEEDS = 20
# Few for gp, which needs about a second per proposal.
CELLS = {"tpe": 80, "cmaes": 80, "nsga2": 120, "gp": 22}
CASES = [
    *((method, name) for method in ("tpe", "nsga2", "gp") for name in FUNCTIONS),
    *(("cmaes", name) for name, function in FUNCTIONS.items() if function.objectives == 1),
]
# All cases together call an equally good search worse with a chance of 5 %.
LEVEL = 0.05 / len(CASES)


def method_of(name: str, seed: int) -> dict[str, Any]:
    return {"name": name, "seed": seed, "startup": STARTUP, "population": 10}


def ours(function: Function, method: str, seed: int, cells: int, batch: int = BATCH) -> float:
    """The result of our search: the true value of its best cell by mean, or the area that its front dominates."""
    space = Space(function.spec(method_of(method, seed), cells), TASK)
    told: dict[str, tuple[dict[str, Value], tuple[float, ...]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        search = Search(space, Store(folder).sweep("bench"))
        while proposals := search.ask(batch):
            for p in proposals:
                told[p.cell] = p.values, function.mean(p.values, seed, p.seeds)
                search.tell(p.cell, Mean(told[p.cell][1]), p.seeds)
    return _score(function, list(told.values()))


def plain(function: Function, method: str, seed: int, cells: int, batch: int = BATCH) -> float:
    """The result of Optuna's own sampler, asked and told in the same batches."""
    spec = function.spec(method_of(method, seed), cells)
    dimensions = Dimensions(Space(spec, TASK), conditional=True)
    study = optuna.create_study(sampler=_plain_sampler(method, seed), directions=[o.goal for o in spec.metric])
    told: list[tuple[dict[str, Value], tuple[float, ...]]] = []
    while len(told) < cells:
        asked = [(trial, dimensions.suggested(trial)) for trial in (study.ask() for _ in range(batch))]
        for trial, values in asked[: cells - len(told)]:
            told.append((values, function.mean(values, seed)))
            study.tell(trial, list(told[-1][1]))
    return _score(function, told)


def _plain_sampler(method: str, seed: int) -> optuna.samplers.BaseSampler:
    match method:
        case "tpe":
            return optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=STARTUP, multivariate=True, group=True, constant_liar=True
            )
        case "gp":
            return optuna.samplers.GPSampler(seed=seed, n_startup_trials=STARTUP, warn_independent_sampling=False)
        case "cmaes":
            return optuna.samplers.CmaEsSampler(seed=seed, n_startup_trials=STARTUP, warn_independent_sampling=False)
    return optuna.samplers.NSGAIISampler(seed=seed, population_size=10)


def _score(function: Function, told: list[tuple[dict[str, Value], tuple[float, ...]]]) -> float:
    """Less is better."""
    if len(told[0][1]) > 1:
        return -hypervolume([function.of(values) for values, _ in told])
    best = min(told, key=lambda cell: cell[1])
    return function.of(best[0])[0]


def _both(case: tuple[str, str, int, int, int]) -> tuple[float, float]:
    method, name, seed, cells, batch = case
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    function = FUNCTIONS[name]
    return ours(function, method, seed, cells, batch), plain(function, method, seed, cells, batch)


def _compared(cases: list[tuple[str, str, int, int, int]]) -> list[tuple[float, float]]:
    import torch

    with ProcessPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return list(pool.map(_both, cases))


def _worse(pairs: list[tuple[float, float]]) -> float:
    """The p-value of a one-sided paired test that our results are worse."""
    differences = [one - other for one, other in pairs]
    return float(wilcoxon(differences, alternative="greater").pvalue) if any(differences) else 1.0


def search_quality() -> Iterator[Figure]:
    """Every method is as good as plain Optuna, in batches and from means over noisy seeds."""
    rows = []
    cases = [(method, name, seed, CELLS[method], BATCH) for method, name in CASES for seed in range(SEARCH_SEEDS)]
    found = dict(zip(cases, _compared(cases), strict=True))
    for method, name in CASES:
        pairs = [pair for case, pair in found.items() if case[:2] == (method, name)]
        p = _worse(pairs)
        medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
        row = {"method": method, "function": name, "seeds": len(pairs), "ours": medians[0], "plain": medians[1], "p": p}
        rows.append(row)
        text = f"{method} on {name}: {medians[0]:.3g}, plain Optuna {medians[1]:.3g}; p of worse"
        yield Figure(text, p, "", LEVEL, "at least")
    Path("results").mkdir(exist_ok=True)
    Path("results/search.json").write_text(json.dumps(rows, indent=1))


def capped_history() -> Iterator[Figure]:
    """TPE with a limited history is as good as TPE with the full history, for budgets beyond the limit."""
    for name in ("Hartmann 6", "Rosenbrock 5"):
        pairs = _compared([("tpe", name, seed, 900, 12) for seed in range(6)])
        medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
        text = f"tpe, 900 cells of {name}: {medians[0]:.3g}, uncapped {medians[1]:.3g}; p of worse"
        yield Figure(text, _worse(pairs), "", 0.05 / 2, "at least")


def suggestion_cost() -> Iterator[Figure]:
    """The time per proposal after 500 and after 10,000 cells."""
    for method, most in (("tpe", 10.0), ("cmaes", None), ("nsga2", None)):
        times = {told: _seconds_per_proposal(method, told) * 1e3 for told in (500, 10_000)}
        for told, milliseconds in times.items():
            yield Figure(f"{method}: a proposal after {told:,} cells", milliseconds, "ms", most)
        yield Figure(f"{method}: a proposal after 10,000 cells to one after 500", times[10_000] / times[500], "x", 2)


def _seconds_per_proposal(method: str, told: int, batches: int = 15, batch: int = 13) -> float:
    """The median over batches, in a space of five axes, after this many cells."""
    values = {
        "name": "bench", "task": "functions", "method": method_of(method, 0),
        "metric": [{"name": "f", "goal": "minimize"}], "budget": {"cells": told + batches * batch},
        "parameters": {
            "x0": {"min": 0.0, "max": 1.0}, "rate": {"min": 0.001, "max": 1.0, "scale": "log"},
            "width": {"min": 1, "max": 64}, "level": {"min": 0, "max": 1000}, "kind": {"values": ["plain", "bent"]},
        },
    }  # fmt: skip
    space = Space(Spec.model_validate(values, strict=False), TASK)

    def mean(cell: Any) -> Mean:
        return Mean(((cell["x0"] - 0.3) ** 2 + abs(cell["rate"] - 0.1) + cell["level"] / 1000 + cell["width"] / 64,))

    cells = [chunk.values(i) for chunk in space.drawn(told) for i in range(len(chunk))]
    means = {cell_id(TASK, cell): mean(cell) for cell in cells}
    with tempfile.TemporaryDirectory() as folder:
        files = Store(folder).sweep("bench")
        for begin in range(0, told, 100):
            files.write_json(f"proposals/{begin // 100:05}.json", cells[begin : begin + 100])
        search = Search(space, files)
        search.restore(lambda cell, seeds: means[cell])
        search.ask(1)
        times = []
        for _ in range(batches):
            began = time.thread_time()  # CPU time, so that other processes do not count
            proposals = search.ask(batch)
            times.append((time.thread_time() - began) / batch)
            for p in proposals:
                search.tell(p.cell, mean(p.values), p.seeds)
    return statistics.median(times)


MEASURES = (suggestion_cost, capped_history, search_quality)
