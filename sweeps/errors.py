"""What can go wrong, by what the caller should do about it."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


class MislabelError(Exception):
    """Anything that we report in a sentence instead of a traceback."""


@dataclass(frozen=True)
class Problem:
    """One mistake: where it stands and what would be right."""

    path: str
    text: str
    place: str = ""

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.place, self.path) if part)
        return f"{where}: {self.text}" if where else self.text


class SpecError(MislabelError):
    """The spec, or a command's words, must be mended before anything can run."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = list(problems)
        super().__init__("\n".join([source, *(f"  {problem}" for problem in self.problems)]))


class StoreError(MislabelError):
    """The store can't be read or written: mend it, then run the same command again. Nothing written is lost."""


class SweepBusyError(MislabelError):
    """Another process is running this sweep."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """'; did you mean …?' where one of the choices is close to the word, else nothing."""
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
