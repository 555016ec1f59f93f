"""`mislabel results`: print the table of cells."""

from typing import TYPE_CHECKING

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.screen import columns
from mislabel.sweeps.formatting import count

if TYPE_CHECKING:
    import pandas as pd

    from mislabel.analysis.statistics.tables import At


@click.command(cls=options.Query)
@click.argument("name")
@options.store
@click.option(
    "--metric", "-m", "metrics", multiple=True, help="Metric to show; may be repeated. Default: the objective."
)
@click.option(
    "--by", multiple=True, metavar="PARAMETER",
    help="One row per value: the mean over the cells with it, or their best cell if all have `grid: true`. "
    "Default: one row per cell.",
)  # fmt: skip
@click.option("--average", is_flag=True, help="With --by: average over cells, also for parameters with `grid: true`.")
@options.at
@click.option("--front", "front_only", is_flag=True, help="Show only the Pareto front, or the best cell.")
@click.option(
    "--branches", is_flag=True, help="Show the best cell for each combination of the parameters with `grid: true`."
)
@click.option("--top", type=click.IntRange(1), help="Show only this many best rows.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--markdown", is_flag=True, help="Print a Markdown table, with the best mean in bold.")
@click.option("--latex", is_flag=True, help="Print a LaTeX table (booktabs), with the best mean in bold.")
@options.as_json
def command(
    name: str, store: str, metrics: tuple[str, ...], by: tuple[str, ...], average: bool, at: "At", front_only: bool,
    branches: bool, top: int | None, as_csv: bool, markdown: bool, latex: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print the cells of a sweep: mean and 95 % interval over seeds (Student's t), best first.

    With several objectives, the Pareto front comes first. Cells stopped early come last; their mean is taken at the
    step at which their first run stopped. Rows of --by average within cells first, leave out the cells that were
    stopped, and show how many cells and seeds they have.

    \b
      mislabel results quickstart
      mislabel results quickstart -m noisy_accuracy -m test_accuracy --by noise_rate
      mislabel results quickstart --csv > cells.csv
    """
    import mislabel
    from mislabel.analysis.statistics.checkout import checkout_note
    from mislabel.analysis.statistics.ranking import best_cells, best_of_branches, front_of, ranked

    if front_only and by:
        raise click.UsageError("--front shows single cells, and --by averages over cells; leave one of them out")
    if branches and (by or front_only):
        raise click.UsageError("--branches shows the best cell of every branch; leave out --by and --front")
    sweep = mislabel.load(store, name)
    shows_best = bool(by) and not average and bool(sweep.spec.metric) and set(by) <= set(sweep.spec.branch_axes())
    if branches:
        table = best_of_branches(sweep, metrics, at)
    elif shows_best:
        table = best_cells(sweep, by, metrics, at)
        options.say(f"the best cell for each {' and '.join(by)}; --average shows the mean over all cells")
    else:
        table = ranked(sweep, metrics, by, at)
    if front_only:
        if not sweep.spec.metric:
            raise click.UsageError(f"--front needs an objective, and the spec of {name} names no metric to optimize")
        table = table[table["cell_id"].isin(front_of(sweep))].drop(columns="front", errors="ignore")
    if top:
        table = table.head(top)
    if as_json:
        options.put_json(table.astype(object).where(table.notna(), None).to_dict("records"))
    elif as_csv:
        click.echo(table.to_csv(index=False), nl=False)
    elif markdown or latex:
        from mislabel.analysis.report.text_tables import to_latex, to_markdown

        click.echo((to_latex if latex else to_markdown)(table, sweep.goals))
    else:
        print_cells(table)
    if note := checkout_note(sweep):
        options.say(f"note: {note}")


def print_cells(table: "pd.DataFrame", most: int | None = None) -> None:
    """Print the table with each mean as mean ± half the interval; `most` limits the rows."""
    from mislabel.analysis.report.text_tables import text_rows

    header, rows = text_rows(table if most is None else table.head(most))
    click.echo(columns(rows, header))
    if most is not None and len(table) > most:
        options.say(f"… and {count(len(table) - most, 'more cell')}; `mislabel results` prints all")
