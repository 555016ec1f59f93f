"""Options that several commands share."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.redaction import redacted

store = click.option(
    "--store", default="results", envvar="MISLABEL_STORE", show_default=True, show_envvar=True, metavar="ADDRESS",
    help="Where results are stored: a folder, or an address such as s3://bucket/path.",
)  # fmt: skip
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
sets = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE",
    help="Change the spec, e.g. --set seeds=5 --set parameters.width=512. Can be repeated.",
)  # fmt: skip
mlflow = click.option(
    "--mlflow", "tracking_uri", default=None, envvar="MLFLOW_TRACKING_URI", show_envvar=True, metavar="URI",
    help="MLflow tracking address; with a password, use the variable. Default: a SQLite file in the store.",
)  # fmt: skip
quick = click.option("--quick", is_flag=True, help="Apply the spec's section `quick`, which makes the sweep small.")
CLUSTER: dict[str, Any] = {"envvar": "MISLABEL_CLUSTER", "show_envvar": True, "metavar": "ADDRESS"}
TOKEN_FILE: dict[str, Any] = {"envvar": "MISLABEL_TOKEN_FILE", "show_envvar": True, "metavar": "FILE"}
cluster = click.option(
    "--cluster", **CLUSTER,
    help="A cluster's job server, http://HOST:PORT. Default: the cluster of this machine.",
)  # fmt: skip
token_file = click.option(
    "--token-file", **TOKEN_FILE,
    help="File with the cluster's token. Not needed on the machine of the head.",
)  # fmt: skip


def time(value: str) -> str | int:
    """When a metric is taken: end, best or a step."""
    if value in ("end", "best"):
        return value
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r} is not a time; use end, best or a step such as 1000")
    return int(value)


at = click.option(
    "--at", default="end", show_default=True, metavar="TIME", callback=lambda ctx, param, value: time(value),
    help="When the metric is taken: end, best (each cell at the step where its mean is best), or a step.",
)  # fmt: skip


def _choose_folder(ctx: click.Context, param: click.Parameter, folder: str | None) -> None:
    from mislabel.tasks.data.folder import choose_folder

    choose_folder(folder)


data = click.option(
    "--data", envvar="MISLABEL_DATA", show_envvar=True, metavar="FOLDER", expose_value=False, callback=_choose_folder,
    help="Folder of the data sets, here and on the machines of the cluster. Default: in the user's cache.",
)  # fmt: skip


def _complete_spec(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The bundled specs that begin like this, and files."""
    from mislabel.sweeps.papers.bundled import spec_names

    names = [CompletionItem(name) for name in spec_names() if name.startswith(incomplete)]
    return [*names, CompletionItem(incomplete, type="file")]


spec_file = click.argument("spec", metavar="SPEC", shell_complete=_complete_spec)


class Query(click.Command):
    """A command that reads a store. With --cluster it runs on the cluster's head, where the store is.

    Without --cluster and --store, it reads the store in this folder, or else the store of this machine's cluster.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.params += [
            click.Option(["--cluster"], **CLUSTER, help="Read the store of this cluster, http://HOST:PORT."),
            click.Option(["--token-file"], **TOKEN_FILE, help="File with the cluster's token."),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        at, token = ctx.params.pop("cluster"), ctx.params.pop("token_file")
        named = "store" in ctx.params and ctx.get_parameter_source("store") is not ParameterSource.DEFAULT
        if at and not (named and ctx.get_parameter_source("cluster") is ParameterSource.ENVIRONMENT):
            return _run_on_head(at, token, given_words(ctx))
        if "store" in ctx.params and not named:
            ctx.params["store"] = _store_here(ctx.params["store"])
        return super().invoke(ctx)


def given_words(ctx: click.Context) -> list[str]:
    """The command and those of its parameters that were given on the command line, as words after `mislabel`."""
    words = ctx.command_path.removeprefix(ctx.find_root().command_path).split()
    for param in ctx.command.params:
        if param.name in ctx.params and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
            value = ctx.params[param.name]
            for each in value if isinstance(value, tuple) else (value,):
                words += [param.opts[0]] if isinstance(param, click.Option) else []
                words += [] if each is True else [str(each)]
    return words


def _run_on_head(address: str, token_file: str | None, words: Sequence[str]) -> int:
    from mislabel.cluster.jobs.client import Jobs
    from mislabel.cluster.jobs.remote_command import run_there
    from mislabel.cluster.jobs.request import refuse_command

    refuse_command(words)
    answer = run_there(Jobs.reached(address, token_file), words)
    click.echo(answer.out, nl=False)
    click.echo(answer.err, nl=False, err=True)
    return answer.code


def _store_here(default: str) -> str:
    if os.path.exists(os.path.join(default, "store.json")):
        return default
    from mislabel.cluster.head_state import Folder, read_state

    state = read_state(Folder.here())
    return state.store if state else default


def say(text: str) -> None:
    """Print a message to stderr, without secrets; stdout is for data."""
    click.echo(redacted(text), err=True)


def say_page(label: str, server: str, page: str, note: str = "") -> None:
    """Print the address of a page of MLflow to stderr. The name of a saved view in it is no secret."""
    click.echo(f"{label}{redacted(server)}/{page}{note}", err=True)


def write_file(path: str, data: bytes, message: str) -> None:
    """Write a file that a command creates, say so, and print its path."""
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise MislabelError(f"{path}: can't be written: {error.strerror or error}") from None
    say(message)
    click.echo(path)


def put_json(value: Any) -> None:
    click.echo(json.dumps(_without_nan(value), indent=2, default=str, allow_nan=False))


def _without_nan(value: Any) -> Any:
    """Replace nan and infinity, which JSON does not have, by null."""
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
