"""`make faults`: break everything that the fault suite knows, and print what sweeps did about it."""

import json
import os
import sys
from pathlib import Path

import click

from tests.conftest import INSTALLED
from tests.faults import suite


@click.command()
@click.option("--only", multiple=True, metavar="TOPIC", help="Run this topic. May be repeated.")
@click.option("--case", "wanted", default="", metavar="TEXT", help="Run cases with this text in their row or name.")
@click.option("--every", default=1, metavar="N", help="Run every Nth of the cases that differ only in their moment.")
@click.option("--sample", is_flag=True, help="Run the few cases of each topic that `make test-all` runs.")
@click.option("--record", is_flag=True, help="Store the table in the repository, for the documentation.")
@click.option("--list", "listed", is_flag=True, help="List the topics.")
def main(only: tuple[str, ...], wanted: str, every: int, sample: bool, record: bool, listed: bool) -> None:
    """Break something on purpose, many times, and check that the same command completes the sweep."""
    topics = suite.topics()
    if listed:
        click.echo("\n".join(topics))
        return
    if unknown := set(only) - set(topics):
        raise click.UsageError(f"no topic {', '.join(sorted(unknown))}; there are {', '.join(topics)}")
    assert INSTALLED in os.environ["PYTHONPATH"]
    faults = suite.Suite(suite.progress_on_stderr())
    interrupted = False
    try:
        for topic in only or topics:
            faults.run(topic, not sample, wanted, every)
    except KeyboardInterrupt:
        interrupted = True
    click.echo(f"\n{faults.table}")
    Path("results").mkdir(exist_ok=True)
    Path("results/faults.json").write_text(_json(faults.rows, []))
    if record and not (interrupted or sample or wanted or every > 1):
        before = json.loads(suite.RECORD.read_text()) if suite.RECORD.exists() else []
        suite.RECORD.write_text(_json(faults.rows, before))
    failed = sum(row.failed for row in faults.rows)
    click.echo(f"{failed:,} of {sum(row.cases for row in faults.rows):,} cases failed", err=True)
    sys.exit(130 if interrupted else int(failed > 0))


def _json(rows: list[suite.Row], before: list[dict[str, object]]) -> str:
    return json.dumps(suite.recorded(rows, before), indent=1) + "\n"


if __name__ == "__main__":
    main()
