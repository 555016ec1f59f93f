"""`mislabel plan`: what a spec would run."""

from typing import TYPE_CHECKING, Any

import click

from sweeps.commands import options

if TYPE_CHECKING:
    from sweeps.plan import Plan


@click.command()
@options.spec_file
@options.store
@options.sets
@options.quick
@click.option(
    "--workers", type=click.IntRange(1), help="How many packs run at once. Default: as many as this machine can."
)
@click.option("--retry-failed", is_flag=True, help="Count what failed before as to be run again.")
@options.as_json
def command(
    spec: str,
    store: str,
    overrides: tuple[str, ...],
    quick: bool,
    workers: int | None,
    retry_failed: bool,
    as_json: bool,
) -> None:
    """Check SPEC.yaml and say what it would run: cells, runs, how many the store has, packs, memory and time.

    The time comes from training each shape for a moment on this machine. Nothing is written.
    """
    import os

    import torch

    from sweeps.check import read_spec
    from sweeps.commands.run import free_memory_bytes
    from sweeps.launch import Machine, plan_sweep
    from sweeps.store import Store

    read, task = read_spec(spec, overrides, quick)
    slots = workers or max(1, int((os.cpu_count() or 1) // read.resources.cpu))
    torch.set_num_threads(max(1, int(read.resources.cpu)))
    device = torch.device("cuda" if read.resources.gpu and torch.cuda.is_available() else "cpu")
    plan = plan_sweep(read, task, Store(store), Machine(slots, free_memory_bytes() // slots, device), retry_failed)
    if as_json:
        options.put_json(plan_as_json(plan))
    else:
        click.echo(_text(plan))


def plan_as_json(plan: "Plan") -> dict[str, Any]:
    return {
        "name": plan.spec.name,
        "task": plan.task.name,
        "cells": plan.cells,
        "seeds": plan.spec.seeds.count,
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
        "expected_seconds": round(plan.expected_seconds, 2),
    }


def _text(plan: "Plan") -> str:
    from sweeps.commands.screen import amount, columns, count, duration

    sizes = sorted({group.size for group in plan.groups.values()})
    shown = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}" if sizes else "0"
    method = plan.spec.method.name
    steps, time = f"{plan.run_steps:,} run-steps", duration(plan.expected_seconds)
    shapes, resumed = count(len(plan.groups), "shape"), count(len(plan.resumed), "checkpoint")
    rows = [
        ("sweep", f"{plan.spec.name}: task {plan.task.name}, method {method}"),
        ("cells", f"{plan.cells:,}" + (", proposed as results come in" if method == "tpe" else "")),
        ("runs", f"{plan.runs:,} ({count(plan.spec.seeds.count, 'seed')} per cell)"),
        ("in store", f"{plan.runs - plan.missing:,}"),
        ("to run", f"{plan.missing:,} ({steps})"),
        ("packs", f"{plan.packs:,} of {shown} runs, {shapes}, {resumed} to go on from"),
        ("memory", f"{amount(plan.pack_bytes)} in the largest pack"),
        ("elsewhere", ", ".join(f"{n:,} of these in {name}, to be taken over" for name, n in plan.elsewhere.items())),
        ("time", f"about {time} on {count(plan.workers, 'worker')}, from a trial of each shape on this machine"),
    ]
    if not plan.missing:
        rows = [row for row in rows if row[0] not in ("packs", "memory", "time")]
    return columns([row for row in rows[1:] if row[1]], rows[0])
