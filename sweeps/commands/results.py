"""`mislabel results`: the table of cells."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from sweeps.commands import options

if TYPE_CHECKING:
    import pandas as pd


@click.command()
@click.argument("name")
@options.store
@click.option(
    "--metric", "-m", "metrics", multiple=True, help="A metric to show; several may be given. Default: the objective."
)
@click.option(
    "--by", multiple=True, metavar="PARAMETER", help="Average over everything but these. Default: one row per cell."
)
@click.option("--top", type=click.IntRange(1), help="Only the best rows.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@options.as_json
def command(
    name: str, store: str, metrics: tuple[str, ...], by: tuple[str, ...], top: int | None, as_csv: bool, as_json: bool
) -> None:
    """Print the cells of a sweep: mean and 95 % interval over seeds (Student's t), best first.

    \b
      mislabel results quickstart
      mislabel results quickstart -m noisy_accuracy -m test_accuracy --by noise_rate
      mislabel results quickstart --csv > cells.csv
    """
    table = table_of_cells(store, name, metrics, by)
    if top:
        table = table.head(top)
    if as_json:
        options.put_json(table.to_dict("records"))
    elif as_csv:
        click.echo(table.to_csv(index=False), nl=False)
    else:
        print_cells(table)


def table_of_cells(store: str, name: str, metrics: Sequence[str] = (), by: Sequence[str] = ()) -> "pd.DataFrame":
    """A row per cell, or per value of `by`: seeds, then mean, low and high of each metric."""
    import analysis
    from sweeps.errors import MislabelError

    sweep = analysis.load(store, name)
    objectives = [objective.name for objective in sweep.spec.metric]
    chosen = list(metrics) or objectives or sweep.metrics[:1]
    if not chosen:
        raise MislabelError(f"{name} has no finished runs yet; `mislabel status {name}` says how far it is")
    table: pd.DataFrame | None = None
    for metric in dict.fromkeys(chosen):
        cells = sweep.cells(metric, by=list(by) or None)
        keys = [
            column for column in cells.columns if column not in ("mean", "std", "n", "low", "high", "runs", "diverged")
        ]
        cells = cells.rename(
            columns={"mean": metric, "low": f"{metric}_low", "high": f"{metric}_high", "std": f"{metric}_std"}
        )
        cells = cells[[*keys, "runs", "diverged", metric, f"{metric}_std", f"{metric}_low", f"{metric}_high"]]
        table = cells if table is None else table.merge(cells.drop(columns=["runs", "diverged"]), on=keys)
    assert table is not None
    goal = next((objective.goal for objective in sweep.spec.metric if objective.name == chosen[0]), None)
    return table.sort_values(chosen[0], ascending=goal == "minimize", kind="stable") if goal else table


def print_cells(table: "pd.DataFrame", most: int | None = None) -> None:
    """The table for people: mean ± half the interval."""
    from sweeps.commands.screen import columns, count

    metrics = [column.removesuffix("_low") for column in table.columns if column.endswith("_low")]
    hidden = {f"{metric}{end}" for metric in metrics for end in ("_std", "_low", "_high")} | {"cell_id"}
    if "diverged" in table and not table["diverged"].any():
        hidden.add("diverged")
    header = [column for column in table.columns if column not in hidden and column not in metrics]
    rows = []
    for _, row in (table if most is None else table.head(most)).iterrows():
        shown = [_plain(row[name]) for name in header]
        rows.append(shown + [_with_interval(row[m], row[f"{m}_high"] - row[m]) for m in metrics])
    click.echo(columns(rows, [*("seeds" if name == "runs" else name for name in header), *metrics]))
    if most is not None and len(table) > most:
        options.say(f"… and {count(len(table) - most, 'more cell')}; `mislabel results` prints all")


def _plain(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _with_interval(mean: float, half: float) -> str:
    if mean != mean:
        return "–"
    if half != half:
        return f"{mean:.4g}"
    return f"{mean:.4g} ± {half:.2g}"
