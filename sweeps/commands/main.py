"""The command line: one small module per command, imported when it is called."""

import importlib
import logging
import os
import sys
import traceback
from typing import Any

import click

from mislabel.sweeps.errors import ExitCode, MislabelError, nearest

COMMANDS = {
    "run": "Run a sweep on this machine, or continue it.",
    "plan": "Show what a spec would run, and how long it would take.",
    "list": "List the sweeps of a store.",
    "status": "Show the progress of a sweep.",
    "results": "Print a table of cells: mean and 95 % interval over seeds.",
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
        click.echo(record.getMessage(), err=True)


def main() -> None:
    debug = "--debug" in sys.argv
    try:
        sys.exit(cli.main(standalone_mode=False) or ExitCode.DONE)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(ExitCode.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.WRONG)
    except MislabelError as error:
        if debug:
            raise
        click.echo(f"mislabel: {error}", err=True)
        from mislabel.cluster.queue.fair_share import TICKET

        # A driver that the head's queue started asks to be restarted if the error may pass.
        sys.exit(ExitCode.CRASHED if error.retry and TICKET in os.environ else error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(ExitCode.FAILED)
    except Exception:
        traceback.print_exc()
        sys.exit(ExitCode.CRASHED)


if __name__ == "__main__":
    main()
