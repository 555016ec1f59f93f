"""Options that several commands share."""

import json
import math
from typing import Any

import click

store = click.option(
    "--store", default="results", envvar="MISLABEL_STORE", show_default=True, show_envvar=True, metavar="ADDRESS",
    help="Where results are kept: a folder, or an address such as s3://bucket/path.",
)  # fmt: skip
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
sets = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE",
    help="Change the spec, e.g. --set seeds=5 --set parameters.width=512. May be given several times.",
)  # fmt: skip
mlflow = click.option(
    "--mlflow", "tracking_uri", default=None, envvar="MLFLOW_TRACKING_URI", show_envvar=True, metavar="URI",
    help="MLflow tracking address; by default a SQLite file in the store.",
)  # fmt: skip
quick = click.option("--quick", is_flag=True, help="Apply the spec's section `quick`: the same sweep, made small.")
spec_file = click.argument("spec", metavar="SPEC.yaml")


def say(text: str) -> None:
    """Talk goes to stderr; stdout is data."""
    click.echo(text, err=True)


def put_json(value: Any) -> None:
    click.echo(json.dumps(_without_nan(value), indent=2, default=str, allow_nan=False))


def _without_nan(value: Any) -> Any:
    """JSON has no nan and no infinity: null stands for a number that is not there."""
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
