"""`mislabel figure`: draw the curves of a sweep."""

import click

from mislabel.sweeps.commands import options


@click.command()
@click.argument("name")
@options.store
@click.option("--metric", "-m", "metrics", multiple=True, help="Metric to draw; repeatable. Default: the objective.")
@click.option(
    "--by", multiple=True, metavar="PARAMETER", help="A curve per value; the first sets colour, the second style."
)
@click.option("--at", type=click.IntRange(min=0), metavar="STEP", help="Step of the histograms. Default: the last.")
@click.option(
    "--branches", is_flag=True, help="Draw a heat map of the best cell for each combination of `grid: true` instead."
)
@click.option("--out", "-o", type=click.Path(dir_okay=False), help="File to write (png, pdf, svg). Default: NAME.png.")
def command(
    name: str, store: str, metrics: tuple[str, ...], by: tuple[str, ...], at: int | None, branches: bool,
    out: str | None,
) -> None:  # fmt: skip
    """Draw metrics over training steps: mean and 95 % interval over seeds.

    For array metrics, which are recorded at snapshots, draw a histogram of the values instead.

    \b
      mislabel figure quickstart -m noisy_accuracy -m clean_test_accuracy --by noise_rate
    """
    import mislabel
    from mislabel.analysis.report.figures import branch_figure, curve_figure, save

    if branches and (by or at is not None or len(metrics) > 1):
        raise click.UsageError("--branches draws one metric of the best cells; leave out --by, --at and other metrics")
    path = out or f"{name}.png"
    sweep = mislabel.load(store, name)
    save(branch_figure(sweep, *metrics) if branches else curve_figure(sweep, metrics, by, at), path)
    options.say(f"figure: {path}")
    click.echo(path)
