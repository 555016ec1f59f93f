"""Errors, grouped by what the caller should do about them, and the exit codes of the command line."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    """Some runs failed, or the store did."""
    WRONG = 2
    """Wrong usage or a wrong spec: nothing was run."""
    CRASHED = 70
    """An unexpected error. The head restarts a driver that ends like this."""
    INTERRUPTED = 130
    """The same command continues."""


TICKET = "MISLABEL_TICKET"
"""The environment variable with the path of a driver's ticket in the head's queue. The head restarts such a driver if
it ends with CRASHED."""


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


class LeaseLostError(StoreError):
    """Another driver took over the sweep. This one must not write any more; what it has finished is kept."""

    retry = False


class DamagedFileError(StoreError):
    """A file of the store has a content that can't be used, or is a folder."""

    retry = False


class AccessError(StoreError):
    """The store denies access."""

    retry = False


class SweepBusyError(MislabelError):
    """Another process is running this sweep."""

    retry = True


class UnreachableError(MislabelError):
    """A server of the cluster does not answer."""

    retry = True


class RayLostError(MislabelError):
    """Ray ended or became unreachable while a sweep was running. The same command continues."""

    exit_code = ExitCode.FAILED
    retry = True


def nearest(word: str, choices: Iterable[str]) -> str:
    """'; did you mean …?' if one of the choices is close to the word, else an empty string."""
    close = closest(word, choices)
    return f"; did you mean {close}?" if close else ""


def closest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that the word most likely stands for: a near miss, an abbreviation, a synonym or a part of it."""
    known, lower = list(choices), word.lower().replace("-", "_")
    found = [choice for choice in known if choice.rpartition(".")[2] == lower]
    found += [match for form in (word, lower) for match in difflib.get_close_matches(form, known, n=1, cutoff=0.6)]
    found += [choice for choice in known if "".join(part[:1] for part in choice.split("_")) == lower]
    found += [choice for choice in _SYNONYMS.get(lower, "").split() if choice in known]
    parts = [choice for choice in known if len(lower) > 2 and lower in choice.split("_")]
    found += parts if len(parts) == 1 else []
    return found[0] if found else None


_SYNONYMS = {
    "lr": "learning_rate step_size", "eta": "learning_rate step_size", "step_size": "learning_rate",
    "learning_rate": "step_size", "epochs": "steps", "iterations": "steps", "hidden": "width", "neurons": "width",
    "batch_size": "batch", "bs": "batch", "dataset": "data", "model": "network", "arch": "network", "n": "samples",
    "d": "dim",
}  # fmt: skip


def is_denied(error: BaseException | None) -> bool:
    """Whether the error, or one that caused it, says that this user may not do something: waiting does not help."""
    while error is not None:
        if isinstance(error, PermissionError):
            return True
        error = error.__cause__ or error.__context__
    return False
