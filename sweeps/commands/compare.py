"""`mislabel compare`: compare two values of a parameter, two cells or two sweeps."""

from typing import TYPE_CHECKING, Any

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.screen import columns
from mislabel.sweeps.formatting import count, value_text

if TYPE_CHECKING:
    import pandas as pd

    from mislabel.analysis.statistics.tables import At


@click.command(cls=options.Query)
@click.argument("name")
@click.argument("a")
@click.argument("b", required=False)
@options.store
@click.option("--metric", "-m", help="Metric to compare. Default: the objective.")
@options.at
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@options.as_json
def command(
    name: str, a: str, b: str | None, store: str, metric: str | None, at: "At", as_csv: bool, as_json: bool
) -> None:
    """Compare A and B, cell by cell: the difference B - A with its 95 % interval over seeds.

    A and B are values of parameters (noise_rate=0.1,width=20) or ids of cells of the sweep NAME. With one argument,
    it is another sweep, and the cells that both sweeps have are compared.

    Runs with the same seed are compared in pairs. The effect is Hedges' g: the difference in standard deviations over
    seeds. p is corrected for the number of rows (Holm); a row is better if it is below 0.05.

    \b
      mislabel compare quickstart noise_rate=0.1 noise_rate=0.3
      mislabel compare quickstart wider-quickstart -m test_accuracy
    """
    import mislabel

    if b is None:
        table = mislabel.load(store, name, a).compare(name, a, metric, at)
        sides = (name, a)
    else:
        sweep = mislabel.load(store, name)
        table = sweep.compare(selection(a), selection(b), metric, at)
        sides = (a, b)
    if as_json:
        options.put_json(table.astype(object).where(table.notna(), None).to_dict("records"))
    elif as_csv:
        click.echo(table.to_csv(index=False), nl=False)
    else:
        _print(table, *sides)


def selection(text: str) -> Any:
    """Values of parameters as a spec writes them, or the id of a cell."""
    if "=" not in text:
        return text
    import yaml

    pairs = [part.partition("=") for part in text.split(",")]
    return {name.strip(): yaml.safe_load(value) for name, _, value in pairs}


def _print(table: "pd.DataFrame", a: str, b: str) -> None:
    options.say(f"a: {a}, b: {b}")
    keys = list(table.columns[: list(table.columns).index("a")])
    rows = []
    for _, row in table.iterrows():
        better = [value_text(row["better"])] if "better" in table else []
        middle = [value_text(row["a"]), value_text(row["b"]), _interval(row), value_text(row["effect"], digits=2)]
        rows.append(
            [*(value_text(row[key]) for key in keys), str(row["n"]), *middle, _probability(row["p_holm"]), *better]
        )
    pairs = "pairs" if table["paired"].all() else "seeds"
    last = ["better"] if "better" in table else []
    click.echo(columns(rows, [*keys, pairs, "a", "b", "b - a", "effect", "p (Holm)", *last]))
    if missing := int(table["missing"].sum()):
        options.say(f"note: {count(missing, 'run')} without a value left out: diverged, or in a cell that was stopped")


def _interval(row: "pd.Series[Any]") -> str:
    text = value_text(row["difference"])
    return text if row["low"] != row["low"] else f"{text} ({value_text(row['low'])} to {value_text(row['high'])})"


def _probability(p: float) -> str:
    return "–" if p != p else "< 0.0001" if p < 1e-4 else f"{p:.2g}"
