"""`mislabel weights`: what the runs of a sweep have trained, for use elsewhere."""

from pathlib import Path

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.options import say


@click.command()
@click.argument("name")
@click.argument("run", required=False)
@options.store
@click.option("--out", "-o", type=click.Path(dir_okay=False), help="File to write. Default: NAME-RUN.pt.")
def command(name: str, run: str | None, store: str, out: str | None) -> None:
    """Copy out the weights of a RUN, or list the runs that have any, best first.

    They are kept of runs that are trained to the end while the spec says `keep: weights`. The file is a mapping of
    names to tensors, as torch.load reads it; of torchvision's networks, load_state_dict takes it.

    \b
      mislabel weights table1
      mislabel weights table1 3f2a91c04d5e-0 -o encoder.pt
    """
    from mislabel.sweeps.errors import MislabelError, nearest
    from mislabel.sweeps.store.store import Store

    files = Store(store).existing(name)
    kept = files.runs_with_weights()
    if run is None:
        click.echo(_listed(store, name, kept), nl=bool(kept))
        return
    data = files.load_weights(run) if run in kept else None
    if data is None:
        hint = nearest(run, kept) or f"; `mislabel weights {name}` lists runs that have any"
        raise MislabelError(f"{name} keeps no weights of run {run!r}{hint}")
    path = Path(out or f"{name}-{run}.pt")
    try:
        path.write_bytes(data)
    except OSError as error:
        raise MislabelError(f"{path}: can't be written: {error.strerror}") from None
    say(f"weights: {path}, {len(data):,} bytes")
    click.echo(path)


def _listed(store: str, name: str, kept: list[str]) -> str:
    """The runs with weights: id, seed, what the sweep varies, and its objectives; the best first."""
    import mislabel
    from mislabel.sweeps.commands.screen import columns

    if not kept:
        say("no weights are kept; write keep: weights into the spec before its runs are trained")
        return ""
    sweep = mislabel.load(store, name)
    objectives = [objective.name for objective in sweep.spec.metric]
    shown = ["run_id", "seed", *sweep.varying, *objectives]
    table = sweep.read("runs", shown, {"run_id": kept})
    if objectives:
        table = table.sort_values(objectives[0], ascending=sweep.spec.metric[0].goal == "minimize")
    rows = [[f"{v:.6g}" if isinstance(v, float) else str(v) for v in row] for row in table.itertuples(index=False)]
    return columns(rows, shown)
