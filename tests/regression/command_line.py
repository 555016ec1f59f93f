"""The command line, called in this process."""

import json
from typing import Any

from click.testing import CliRunner

from mislabel.sweeps.commands.main import cli

# Variables that would lead commands to another store, cluster or MLflow.
_CLEARED = ("MISLABEL_STORE", "MISLABEL_CLUSTER", "MISLABEL_TOKEN_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS")


def call(*arguments: str) -> tuple[int, str]:
    """Run a command; returns its exit code and what it printed to stdout."""
    result = CliRunner(env=dict.fromkeys(_CLEARED)).invoke(cli, list(arguments), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value or 0), result.stdout


def call_for_json(*arguments: str) -> Any:
    """Run a command with --json, whatever its exit code; returns what it printed."""
    return json.loads(call(*arguments, "--json")[1])
