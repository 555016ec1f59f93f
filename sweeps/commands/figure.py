"""`mislabel figure`: draw the curves of a sweep, or a heat map."""

from typing import TYPE_CHECKING, Any

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.compare import selection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mislabel.analysis.sweep import Sweep


@click.command()
@click.argument("name")
@options.store
@click.option("--kind", type=click.Choice(["curves", "heatmap"]), default="curves", show_default=True)
@click.option("--metric", "-m", "metrics", multiple=True, help="Metric to draw; repeatable. Default: the objective.")
@click.option(
    "--by", multiple=True, metavar="PARAMETER",
    help="A curve per value; the first sets colour, the second markers. Default: the two most important parameters.",
)  # fmt: skip
@click.option("--x", metavar="PARAMETER", help="Columns of a heat map. Default: the first parameter that varies.")
@click.option("--y", metavar="PARAMETER", help="Rows of a heat map. Default: the next one.")
@click.option(
    "--difference", nargs=2, metavar="A B",
    help="Draw a heat map of B minus A, such as width=10 width=20; differences that are not significant are grey.",
)  # fmt: skip
@click.option("--at", metavar="TIME", help="Heat map: end, best or a step. Histograms: a step. Default: the end.")
@click.option(
    "--branches", is_flag=True, help="Draw a heat map of the best cell for each combination of `grid: true` instead."
)
@click.option("--out", "-o", type=click.Path(dir_okay=False), help="File to write (png, pdf, svg). Default: NAME.png.")
def command(
    name: str, store: str, kind: str, metrics: tuple[str, ...], by: tuple[str, ...], x: str | None, y: str | None,
    difference: tuple[str, str] | None, at: str | None, branches: bool, out: str | None,
) -> None:  # fmt: skip
    """Draw metrics over training steps: mean and 95 % interval over seeds.

    For array metrics, which are recorded at snapshots, draw a histogram of the values instead. A heat map shows one
    metric over two parameters; where runs diverged, it is hatched.

    \b
      mislabel figure quickstart -m noisy_accuracy -m clean_test_accuracy --by noise_rate
      mislabel figure quickstart --kind heatmap --x width --y noise_rate
    """
    import mislabel
    from mislabel.analysis.report.figures import save

    is_map = kind == "heatmap" or branches or bool(difference)
    if branches and (by or at is not None or x or y or difference or len(metrics) > 1):
        raise click.UsageError("--branches draws one metric of the best cells; leave out --by, --at and other metrics")
    if is_map and (by or len(metrics) > 1):
        raise click.UsageError("a heat map shows one metric over --x and --y; leave out --by and other metrics")
    if not is_map and (x or y):
        raise click.UsageError("--x and --y belong to --kind heatmap")
    path = out or f"{name}.png"
    time: Any = options.time(at) if at is not None else None
    if not is_map and isinstance(time, str):
        raise click.UsageError("--at takes a step for histograms")
    sweep = mislabel.load(store, name)
    save(_drawn(sweep, is_map, branches, metrics, by, x, y, difference, time), path)
    options.say(f"figure: {path}")
    click.echo(path)


def _drawn(
    sweep: "Sweep", is_map: bool, branches: bool, metrics: tuple[str, ...], by: tuple[str, ...], x: str | None,
    y: str | None, difference: tuple[str, str] | None, at: Any,
) -> "Figure":  # fmt: skip
    if not is_map:
        from mislabel.analysis.report.figures import curve_figure

        return curve_figure(sweep, metrics, by, at)
    from mislabel.analysis.report.heat_maps import branch_figure, difference_map, heat_map

    metric = metrics[0] if metrics else None
    if branches:
        return branch_figure(sweep, metric)
    if difference:
        a, b = (selection(side) for side in difference)
        if isinstance(a, str) or isinstance(b, str):
            raise click.UsageError("--difference takes values of parameters, such as width=10 width=20")
        return difference_map(sweep, a, b, metric, x, y, "end" if at is None else at)
    return heat_map(sweep, metric, x, y, "end" if at is None else at)
