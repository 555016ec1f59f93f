"""`mislabel report`: write a sweep's report as one HTML file."""

import click

from mislabel.sweeps.commands import options


@click.command()
@click.argument("name")
@options.store
@click.option(
    "--metric", "-m", "metrics", multiple=True, help="Metric to report on; may be repeated. Default: the objectives."
)
@click.option("--out", "-o", type=click.Path(dir_okay=False), help="File to write. Default: NAME.html.")
def command(name: str, store: str, metrics: tuple[str, ...], out: str | None) -> None:
    """Write a report of a sweep: one HTML file that includes its figures and works offline.

    It shows the spec, the code version, the best cells with their intervals, the Pareto front, the importance of each
    parameter, curves, failures, and the steps saved by early stopping.

    \b
      mislabel report quickstart
      mislabel report quickstart -m noisy_accuracy -o noisy.html
    """
    import mislabel
    from mislabel.analysis.report.report import Report

    path = out or f"{name}.html"
    options.write_file(path, Report(mislabel.load(store, name), metrics).html().encode(), f"report: {path}")
