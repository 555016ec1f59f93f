"""Errors, grouped by what the caller should do about them, and the exit codes of the command line."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    FAILED = 1
    """Some runs failed, or the store did."""
    WRONG = 2
    """Wrong usage or a wrong spec: nothing was run."""
    CRASHED = 70
    """An unexpected error. The head restarts a driver that ends like this."""
    INTERRUPTED = 130
    """The same command continues."""


class MislabelError(Exception):
    """An error that is shown as a sentence instead of a traceback."""

    exit_code: ClassVar = ExitCode.WRONG
    retry: ClassVar = False
    """Whether the same command may succeed later, without any change by the user."""


@dataclass(frozen=True)
class Problem:
    """One mistake: where it is and what would be right."""

    path: str
    text: str
    place: str = ""

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.place, self.path) if part)
        return f"{where}: {self.text}" if where else self.text


class SpecError(MislabelError):
    """The spec, or a command's arguments, must be corrected before anything can run."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = list(problems)
        super().__init__("\n".join([source, *(f"  {problem}" for problem in self.problems)]))


class StoreError(MislabelError):
    """The store can't be read or written. The same command continues once it can; nothing written is lost."""

    exit_code = ExitCode.FAILED
    retry = True


class WrongStoreError(StoreError):
    """The address is not a store that this version can use."""

    exit_code = ExitCode.WRONG
    retry = False


class SweepBusyError(MislabelError):
    """Another process is running this sweep."""

    retry = True


class UnreachableError(MislabelError):
    """A server of the cluster does not answer."""

    retry = True


def nearest(word: str, choices: Iterable[str]) -> str:
    """'; did you mean …?' if one of the choices is close to the word, else an empty string."""
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
