"""`mislabel plan`: show what a spec would run."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.screen import pairs
from mislabel.sweeps.formatting import amount, count, duration, estimated

if TYPE_CHECKING:
    from mislabel.sweeps.plan.plan import Plan
    from mislabel.sweeps.plan.stages import Expected
    from mislabel.sweeps.spec.model import Spec


@click.command()
@options.spec_file
@options.store
@options.data
@options.sets
@options.quick
@click.option(
    "--workers", type=click.IntRange(1), help="How many packs run at once. Default: as many as this machine can run."
)
@click.option("--inline", is_flag=True, help="Plan for `run --inline`: one pack at a time, without Ray.")
@click.option("--retry-failed", is_flag=True, help="Count failed runs as missing.")
@options.as_json
def command(
    spec: str, store: str, overrides: tuple[str, ...], quick: bool, workers: int | None, inline: bool,
    retry_failed: bool, as_json: bool,
) -> None:  # fmt: skip
    """Check a spec and show what it would run: cells, runs, how many the store has, packs, memory and time.

    To estimate the time, each shape is trained for a moment on this machine, unless the spec wants a GPU and this
    machine has none. Nothing is written.

    \b
      mislabel plan noise.yaml --set seeds=20
      mislabel plan xor-clusters/fig2               # a bundled spec
    """
    import os

    import torch

    from mislabel.sweeps.checks.reader import read_spec
    from mislabel.sweeps.run.launch import Machine, free_memory_bytes, plan_sweep
    from mislabel.sweeps.store.store import Store

    read, task = read_spec(spec, overrides, quick)
    slots = 1 if inline else workers or max(1, int((os.cpu_count() or 1) // read.resources.cpu))
    torch.set_num_threads(max(1, int(read.resources.cpu)))
    # Measuring a GPU's packs on a CPU would take long and say nothing.
    device: torch.device | None = torch.device("cpu")
    if read.resources.gpu:
        device = torch.device("cuda") if torch.cuda.is_available() else None
    machine = Machine(slots, free_memory_bytes() // slots, device, ahead=not inline)
    plan = plan_sweep(read, task, Store(store), machine, retry_failed)
    assert plan.expected is not None
    if as_json:
        options.put_json(_described(plan, plan.expected))
    else:
        click.echo(_text(plan, plan.expected))


def _described(plan: "Plan", expected: "Expected") -> dict[str, Any]:
    return {
        "name": plan.spec.name,
        "task": plan.task.name,
        "method": plan.spec.method.name,
        "branches": len(plan.space.branches()),
        "cells": plan.cells,
        "cells_asked_for": plan.spec.budget.cells,
        "seeds": plan.spec.seeds.count,
        "seeds_up_to": plan.spec.seeds.up_to,
        "runs": plan.runs,
        "in_store": plan.runs - plan.missing,
        "in_other_sweeps": plan.elsewhere,
        "to_run": plan.missing,
        "packs": plan.packs,
        "from_checkpoint": len(plan.resumed),
        "pack_sizes": sorted({group.size for group in plan.groups.values()}),
        "shapes": len(plan.groups),
        "workers": plan.workers,
        "pack_bytes": plan.pack_bytes,
        "expected_seconds": round(expected.seconds, 2) if plan.to_train else 0.0,
        "expected_seconds_at_most": round(expected.most_seconds, 2) if plan.to_train else 0.0,
        "expected_stages": {name: round(seconds, 2) for name, seconds in asdict(expected.stages).items()},
        "basis": expected.basis,
    }


def _text(plan: "Plan", expected: "Expected") -> str:
    sizes = sorted({group.size for group in plan.groups.values()})
    shown = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}" if sizes else "0"
    spec = plan.spec
    steps = sum(group.to_train * group.steps for group in plan.groups.values())
    time = estimated(expected.seconds, expected.most_seconds)
    shapes, resumed = count(len(plan.groups), "shape"), count(len(plan.resumed), "checkpoint")
    firsts = f"{count(len(spec.try_first), 'cell')} to try first" if spec.try_first else ""
    baselines = f"{count(len(spec.baselines), 'baseline')} that early stopping never stops" if spec.baselines else ""
    learned = f"learns from {', '.join(spec.start_from)}" if spec.start_from else ""
    runs = f"{spec.budget.runs:,} runs" if spec.budget.runs else ""
    wall = duration(spec.budget.wall) if spec.budget.wall else ""
    up_to = f", up to {spec.seeds.up_to:,} for contenders" if spec.seeds.up_to else ""
    rows = [
        ("sweep", f"{spec.name}: task {plan.task.name}, method {spec.method.name}"),
        ("cells", _cells(plan)),
        ("branches", _branches(plan)),
        ("first", ", ".join(filter(None, (baselines, firsts, learned)))),
        ("runs", f"{plan.runs:,} ({count(spec.seeds.count, 'seed')} per cell{up_to})"),
        ("stopping", stopping_in_words(spec)),
        ("budget", " or ".join(filter(None, (runs, wall)))),
        ("in store", f"{plan.runs - plan.missing:,}"),
        ("to run", f"{plan.to_train:,} ({steps:,} run-steps)"),
        ("packs", f"{plan.packs:,} of {shown} runs, {shapes}, {resumed} to continue from"),
        ("memory", f"{amount(plan.pack_bytes)} in the largest pack"),
        ("elsewhere", ", ".join(f"{n:,} in {name}, to be copied" for name, n in plan.elsewhere.items())),
        ("time", f"{time} on {count(plan.workers, 'worker')}, from {expected.basis} on this machine"),
        ("stages", _stages(expected)),
    ]
    if not plan.to_train or (spec.resources.gpu and not plan.train_seconds):
        rows = [row for row in rows if row[0] not in ("packs", "memory", "time", "stages")]
        if plan.to_train:
            rows.append(("time", f"unknown: a pack wants {spec.resources.gpu:g} GPU, and this machine has none"))
    return pairs([row for row in rows if row[1]])


def _stages(expected: "Expected") -> str:
    stages = expected.stages
    named = {
        "start-up": estimated(stages.start + stages.machine + stages.workers),
        "measuring pack sizes": estimated(stages.measure),
        "training": estimated(stages.train, expected.most_train),
        "merging": estimated(stages.merge),
        "MLflow": estimated(stages.view),
    }
    return ", ".join(f"{name} {seconds}" for name, seconds in named.items())


def _cells(plan: "Plan") -> str:
    asked, method = plan.spec.budget.cells, plan.spec.method
    if method.learns:
        share = max(branch.spec.budget.cells or 0 for branch in plan.space.branches())
        blind = method.name in ("tpe", "gp", "cmaes") and share <= method.startup and not plan.spec.start_from
        late = f"; all at random, because method.startup is {method.startup}" if blind else ""
        return f"{plan.cells:,}, proposed as results arrive{late}"
    if asked is not None and plan.cells < asked:
        return f"{plan.cells:,}; the spec asks for {asked:,}, but no more were found"
    return f"{plan.cells:,}"


def _branches(plan: "Plan") -> str:
    names = plan.spec.branch_axes()
    if not names:
        return ""
    found = plan.space.branches()
    shares = sorted({branch.spec.budget.cells for branch in found if branch.spec.budget.cells is not None})
    each = f": {' or '.join(f'{share:,}' for share in shares)} cells each" if shares else ""
    return f"{len(found):,}, one for each combination of {', '.join(names)}{each}"


def stopping_in_words(spec: "Spec") -> str:
    """The stopping rule in words; empty if there is none."""
    rule = spec.early_terminate
    if rule is None:
        return ""
    match rule.type:
        case "asha":
            how = f"whenever the steps have grown {rule.eta}-fold, the best of {rule.eta} {rule.per}s continues"
        case "hyperband":
            how = f"like asha with {rule.eta} {rule.per}s, in groups that are first compared at different steps"
        case "median":
            how = f"a {rule.per} that is worse than the median of at least {rule.min_cells} is stopped"
        case "patience":
            gain = f" of at least {rule.min_gain:g}" if rule.min_gain else ""
            how = f"a {rule.per} without a gain{gain} for {rule.patience or 0:,} steps is stopped"
    return f"{rule.type} from step {rule.min_steps:,} on: {how}"
