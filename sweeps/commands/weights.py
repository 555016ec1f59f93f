"""`mislabel weights`: list and export the trained weights of a sweep."""

from pathlib import Path

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.screen import columns
from mislabel.sweeps.formatting import value_text


@click.command()
@click.argument("name")
@click.argument("run", required=False)
@options.store
@click.option("--out", "-o", type=click.Path(dir_okay=False), help="File to write. Default: NAME-RUN.pt.")
def command(name: str, run: str | None, store: str, out: str | None) -> None:
    """Export the weights of RUN to a file. Without RUN, list the runs that have weights, best first.

    Specs with `keep: weights` keep the weights of runs that are trained to the end. The file is a mapping of names to
    tensors that torch.load reads; torchvision's networks accept it in load_state_dict.

    \b
      mislabel weights table1
      mislabel weights table1 3f2a91c04d5e-0 -o encoder.pt
    """
    from mislabel.sweeps.errors import MislabelError, nearest
    from mislabel.sweeps.store.store import Store

    files = Store(store).existing(name)
    kept = files.runs_with_weights()
    if run is None:
        if kept:
            click.echo(_listed(store, name, kept))
        else:
            options.say("no weights were kept; add `keep: weights` to the spec before training")
        return
    data = files.load_weights(run) if run in kept else None
    if data is None:
        hint = nearest(run, kept) or f"; `mislabel weights {name}` lists the runs that have weights"
        raise MislabelError(f"{name} has no weights of run {run!r}{hint}")
    path = str(Path(out or f"{name}-{run}.pt"))
    options.write_file(path, data, f"weights: {path}, {len(data):,} bytes")


def _listed(store: str, name: str, kept: list[str]) -> str:
    """The runs with weights, best first: id, seed, varied parameters and objectives."""
    import mislabel

    sweep = mislabel.load(store, name)
    objectives = [objective.name for objective in sweep.spec.metric]
    shown = ["run_id", "seed", *sweep.varying, *objectives]
    table = sweep.read("runs", shown, {"run_id": kept})
    if objectives:
        table = table.sort_values(objectives[0], ascending=sweep.spec.metric[0].goal == "minimize")
    rows = [[value_text(value, digits=6) for value in row] for row in table.itertuples(index=False)]
    return columns(rows, shown)
