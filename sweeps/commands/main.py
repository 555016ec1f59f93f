"""The command line: one small module per command, imported when it is called."""

import importlib
import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from mislabel.sweeps.errors import TICKET, ExitCode, MislabelError, RayLostError, is_denied, nearest
from mislabel.sweeps.redaction import has_secret, redacted

COMMANDS = {
    "run": "Run a sweep on this machine, or continue it.",
    "plan": "Show what a spec would run, and how long it would take.",
    "list": "List the sweeps of a store.",
    "status": "Show the progress of a sweep.",
    "results": "Print a table of cells: mean and 95 % interval over seeds.",
    "compare": "Compare two values of a parameter, two cells or two sweeps.",
    "weights": "List or export the trained weights of a sweep.",
    "submit": "Submit a sweep to a cluster.",
    "logs": "Show the log of a sweep on a cluster.",
    "stop": "Stop a sweep after it has saved checkpoints.",
    "cancel": "Kill a sweep on a cluster.",
    "retry": "Submit a sweep to its cluster again.",
    "cluster": "Start, join, show or shut down a cluster.",
    "reproduce": "Run a paper's experiment and check its claims.",
    "report": "Write a report of a sweep: one HTML file with tables and figures.",
    "figure": "Draw metrics over training steps.",
    "tasks": "List tasks, or the parameters and metrics of one.",
    "schema": "Print the JSON schema of a spec, for editors.",
    "data": "Fetch, list or check data sets.",
    "sync": "Update or rebuild the MLflow view of a sweep.",
    "ui": "Open the MLflow UI on a store.",
    "doctor": "Check that everything a sweep needs works on this machine.",
}


class _Commands(click.Group):
    """Knows names and one line of help; a command's module is imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"mislabel.sweeps.commands.{cmd_name}").command  # type: ignore[no-any-return]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS:
            ctx.fail(f"no command {args[0]!r}{nearest(args[0], COMMANDS)}; `mislabel --help` lists them")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.option("-v", "--verbose", is_flag=True, help="Report every pack.")
@click.version_option(package_name="mislabel", message="mislabel %(version)s")
def cli(debug: bool, verbose: bool) -> None:
    """Sweeps for research on learning with label noise.

    A spec names a task, the values of its parameters, and how many seeds each cell is run from. `run` trains what the
    store does not have yet; running it again continues, and a wider spec runs only what is new. SPEC is a YAML file or
    the name of a bundled spec; `mislabel reproduce` lists them.

    \b
      mislabel run quickstart                       # run a sweep
      mislabel results quickstart                   # its table, mean ± 95 % interval
      mislabel ui                                   # follow it in the browser

    Results are printed to stdout, everything else to stderr. Exit code 0: done; 1: some runs failed, or the
    store did; 2: wrong usage or spec, nothing was run; 130: interrupted, the same command continues.
    """
    logger = logging.getLogger("mislabel")
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        logger.addHandler(_Stderr())


class _Stderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "mislabel.details":  # see sweeps.run.sweep_log, which takes long to import
            click.echo(redacted(record.getMessage()), err=True)


# Options that take an address that may contain a password, and the variables that replace them.
_PRIVATE = {"--mlflow": "MLFLOW_TRACKING_URI", "--mlflow-backend": "MISLABEL_MLFLOW_BACKEND"}


def without_secrets(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The arguments without options that contain a secret, and the environment variables that replace them."""
    words, variables = list(arguments), {}
    for i in reversed(range(len(words))):
        option, is_one_word, value = words[i].partition("=")
        value = value if is_one_word else "".join(words[i + 1 : i + 2])
        if option in _PRIVATE and has_secret(value):
            variables[_PRIVATE[option]] = value
            del words[i : i + (1 if is_one_word else 2)]
    return words, variables


def _hide_secrets() -> None:
    """Start this program again if its command line contains a secret, with the secret in the environment.

    All users of a machine can see command lines, and Ray stores that of a driver. Only the same user can see a
    process's environment.
    """
    words, variables = without_secrets(sys.argv[1:])
    # In an embedded Python, the process's command line is not ours.
    if not variables or sys.orig_argv[-len(sys.argv[1:]) :] != sys.argv[1:]:
        return
    for option, variable in _PRIVATE.items():
        if variable in variables:
            advice = f"change it, and set {variable} instead of {option}"
            click.echo(f"{option}: other users and the shell's history may have seen this password; {advice}", err=True)
    before = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv[1:])]
    os.execve(sys.executable, [*before, *words], {**os.environ, **variables})


def main() -> None:
    _hide_secrets()
    debug = "--debug" in sys.argv
    try:
        sys.exit(cli.main(standalone_mode=False) or ExitCode.DONE)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(ExitCode.INTERRUPTED)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        click.echo(redacted(shown.getvalue()), nl=False, err=True)
        sys.exit(ExitCode.WRONG)
    except MislabelError as error:
        click.echo(redacted(traceback.format_exc() if debug else f"mislabel: {error}"), err=True)
        # A driver that the head's queue started asks to be restarted if the error may pass. This imports nothing: the
        # error may be that no file can be opened.
        may_pass = error.retry and not is_denied(error)
        code = ExitCode.CRASHED if may_pass and TICKET in os.environ else error.exit_code
        if isinstance(error, RayLostError):
            _exit_now(code)
        sys.exit(code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(ExitCode.FAILED)
    except Exception as error:
        click.echo(redacted(traceback.format_exc()), nl=False, err=True)
        if TICKET in os.environ:
            from mislabel.cluster.jobs.crash import note_crash

            note_crash(error)
        sys.exit(ExitCode.CRASHED)


def _exit_now(code: int) -> None:
    """End without waiting for threads: a thread that waits for a lost Ray may never end."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
