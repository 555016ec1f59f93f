"""Run the code blocks of a page in order, as a reader would, and compare the outputs that it displays.

A page is one session in a folder that has only the records. A YAML block whose first line is a file name, such as
`# noise.yaml`, is written to that file. Commands run in this process, which saves seconds of imports per command. Each
`mislabel run` must be `--inline`; its MLflow view is left out, because MLflow needs seconds to create a database.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from doctest import DocTestParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

from docs.tools.pages import RECORDS, Block, blocks_of

ELIDED = "..."
_VARIABLES = ("MISLABEL_STORE", "MISLABEL_CLUSTER", "MISLABEL_TOKEN_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS")
# Lines that a reader may see or not: progress, and notes on runs from a checkout with local changes.
_PASSING = re.compile(r"^\d[\d,]*/[\d,]+ runs · |^ *note: .*(modified checkout|is not recorded)")
_FOLDER = "~/sweeps"
# Click derives the program's name from the module that Python runs.
_PROGRAM = re.compile(r"python -m [\w.]*\bmislabel")
# What depends on the machine or the moment: both sides of a comparison show the replacement.
_VARIABLE = [
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:]+\+00:00"), "<time>"),
    (re.compile(r"((about|in|under) )+[\d.,]+ (ms|s|min|h|days)( \d+ (s|min))?\b"), "<duration>"),
    (re.compile(r"\([\d.,]+ µs per run-step\)"), "(<speed>)"),
    (re.compile(r"on \d+ workers?"), "<workers>"),
    (re.compile(r"^(memory +)[\d.]+ \w+"), r"\1<memory>"),
]


@dataclass(frozen=True)
class Shown:
    """One command or expression with the output that the page displays, and the real output."""

    source: str
    displayed: list[str]
    real: list[str]
    code: int
    """The exit code of the command."""
    start: int
    """Position of the displayed output in the page."""
    end: int

    @property
    def agrees(self) -> bool:
        """Whether the outputs are equal; a command without a displayed output must succeed."""
        if not self.displayed:
            return self.code == 0
        return _matches(_comparable(self.displayed), _comparable(self.real))


@dataclass
class Session:
    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    def run(self, page: str) -> Iterator[Shown]:
        """Run the page's blocks; yields every displayed output with the real one."""
        (self.folder / "records").symlink_to(RECORDS)
        for block in blocks_of(page):
            if block.language == "yaml" and block.file:
                (self.folder / block.file).write_text(block.text)
            if block.not_run:
                continue
            if block.language == "console":
                yield from self._console(block)
            elif block.language == "pycon":
                yield from self._pycon(block)
            elif block.language == "python":
                with self._inside() as output:
                    exec(compile(block.text, "page", "exec"), self.names)
                assert not output.getvalue(), "a python block prints something; make it a pycon block"

    def _console(self, block: Block) -> Iterator[Shown]:
        for command, displayed, start, end in commands_of(block):
            with self._inside() as output:
                code = _call(command, output)
            yield Shown(command, displayed, self._lines(output), code, start, end)

    def _pycon(self, block: Block) -> Iterator[Shown]:
        position = 0
        for part in DocTestParser().parse(block.text):
            if isinstance(part, str):
                position += len(part)
                continue
            position = block.text.index(">>>", position)
            lines = part.source.count("\n")
            start = position + len("".join(block.text[position:].splitlines(keepends=True)[:lines]))
            end = start + len(part.want)
            with self._inside() as output:
                exec(compile(part.source, "page", "single"), self.names)
            displayed, real = part.want.splitlines(), self._lines(output)
            code = 0 if displayed or not real else 1
            yield Shown(part.source, displayed, real, code, block.start + start, block.start + end)
            position = end

    def _lines(self, output: io.StringIO) -> list[str]:
        """What was printed, as in a terminal: with a reader's folder, and with `mislabel` as the program."""
        text = output.getvalue().replace(str(self.folder), _FOLDER)
        return _PROGRAM.sub("mislabel", text).splitlines()

    @contextlib.contextmanager
    def _inside(self) -> Iterator[io.StringIO]:
        """The session's folder is the current one; what is printed is collected."""
        output = io.StringIO()
        cleared = {key: value for key, value in os.environ.items() if key not in _VARIABLES} | {"COLUMNS": "110"}
        with (
            contextlib.chdir(self.folder),
            patch.dict(os.environ, cleared, clear=True),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            yield output


def commands_of(block: Block) -> Iterator[tuple[str, list[str], int, int]]:
    """Each command of a console block, the output displayed below it, and the output's position in the page."""
    command, displayed, position = "", list[str](), block.start
    start = position
    for line in block.text.splitlines(keepends=True):
        if line.startswith("$ "):
            if command:
                yield command, displayed, start, position
            command, displayed, start = line[2:].strip(), [], position + len(line)
        else:
            assert command, "a console block starts with a command"
            displayed.append(line.rstrip("\n"))
        position += len(line)
    if command:
        yield command, displayed, start, position


def words_of(command: str) -> list[str]:
    """The command's words, without its comment."""
    return shlex.split(command, comments=True)


def _call(command: str, output: io.StringIO) -> int:
    """Run the command; returns its exit code."""
    words = words_of(command)
    if words[0] != "mislabel":
        done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        output.write(done.stdout)
        return done.returncode
    from mislabel.sweeps.commands.main import main

    if words[1] == "run":
        assert "--inline" in words, f"`{command}` starts Ray; add --inline or mark the block as not run"
        words.append("--no-mlflow")
    with patch.object(sys, "argv", words):
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0


def _comparable(lines: list[str]) -> list[str]:
    """The lines without what depends on the machine or the moment."""
    kept = [line.rstrip() for line in lines if not _PASSING.match(line)]
    while kept and not kept[-1]:
        kept.pop()
    for pattern, replacement in _VARIABLE:
        kept = [pattern.sub(replacement, line) for line in kept]
    return kept


def _matches(displayed: list[str], real: list[str]) -> bool:
    """Whether the lines are equal, where a line `...` stands for any lines."""
    if not displayed:
        return not real
    if displayed[0].strip() == ELIDED:
        return any(_matches(displayed[1:], real[i:]) for i in range(len(real) + 1))
    return bool(real) and displayed[0] == real[0] and _matches(displayed[1:], real[1:])


def updated(page: str, folder: Path) -> str:
    """The page with the real outputs in place of those that differ."""
    for shown in sorted(Session(folder).run(page), key=lambda shown: -shown.start):
        if not shown.agrees:
            lines = [line for line in shown.real if not _PASSING.match(line)]
            page = page[: shown.start] + "".join(f"{line}\n" for line in lines) + page[shown.end :]
    return page
