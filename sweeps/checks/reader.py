"""Read a spec and report every mistake in it at once: its location, the value and what would be right."""

import logging
from pathlib import Path as FilePath
from typing import Any

from mislabel.sweeps.checks.draft import Draft, task_rules, typed_spec
from mislabel.sweeps.checks.rules import axis_rules, method_rules, space_rules, stopping_rules, zip_rules
from mislabel.sweeps.errors import Problem, SpecError, nearest
from mislabel.sweeps.papers.bundled import bundled_name, near_names, spec_path
from mislabel.sweeps.spec.document import LARGEST_BYTES, Document, read_document
from mislabel.sweeps.spec.model import Spec
from mislabel.tasks.task import Task

_log = logging.getLogger(__name__)


def read_spec(path: str, overrides: tuple[str, ...] = (), quick: bool = False) -> tuple[Spec, Task[Any]]:
    """The spec in that file with the `--set` overrides applied, and its task. SpecError with all mistakes.

    The path may be the name of a bundled spec, such as `quickstart`, if there is no file of that name. `quick` applies
    the spec's section `quick`, which makes the sweep small, and marks its name.
    """
    return checked_spec(opened_spec(path, overrides, quick))


def opened_spec(path: str, overrides: tuple[str, ...] = (), quick: bool = False) -> Document:
    """The document that `read_spec` checks."""
    file = FilePath(path)
    try:
        if not file.is_file() and (bundled := bundled_name(path)):
            _log.info("using the bundled spec %s", bundled)
            file = FilePath(spec_path(bundled))
        size = file.stat().st_size
        if size > LARGEST_BYTES:
            raise SpecError(path, [Problem("", f"{size:,} bytes; a spec has at most {LARGEST_BYTES:,}")])
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SpecError(path, [Problem("", "is not UTF-8 text; a spec is a YAML file")]) from None
    except OSError as error:
        near = _near_file(file)
        is_name = isinstance(error, FileNotFoundError) and not file.suffix and not near
        wrong = "is neither a file nor a bundled spec" if is_name else f"can't be read: {error.strerror}"
        raise SpecError(path, [Problem("", wrong + (near_names(path) if is_name else near))]) from None
    document = read_document(text, path)
    _take_quick(document, quick)
    for assignment in overrides:
        document.set(assignment)
    return document


def checked_spec(document: Document) -> tuple[Spec, Task[Any]]:
    """The spec in the document, and its task. SpecError with all mistakes, in the order of the document."""
    draft = Draft(document.values)
    draft.add(task_rules(draft))
    draft.add(method_rules(draft))
    draft.add(stopping_rules(draft))
    if draft.task is not None:
        for rule in (axis_rules, zip_rules, space_rules):
            draft.add(rule(draft, draft.task))
    if draft.mistakes or draft.task is None:
        lines = list(document.places.values())
        problems = [document.problem(mistake.path, mistake.text) for mistake in draft.mistakes]
        raise SpecError(document.source, sorted(problems, key=lambda p: (*lines, p.place).index(p.place)))
    return typed_spec(draft.spec, draft.task), draft.task


def _near_file(file: FilePath) -> str:
    """Suggest an existing file if there is none of this name."""
    if file.exists() or not file.parent.is_dir():
        return ""
    paths = [path for pattern in ("*.yaml", "*.yml") for path in file.parent.glob(pattern)]
    same = [path for path in paths if path.stem == file.name]
    return f"; did you mean {same[0]}?" if same else nearest(str(file), map(str, paths))


def _take_quick(document: Document, apply: bool) -> None:
    """Remove the section `quick` from the document and, with `apply`, put its values in place."""
    changes = document.values.pop("quick", None)
    if changes is None and not apply:
        return
    if not isinstance(changes, dict) or not isinstance(changes.get("parameters", {}), dict):
        text = "must be a mapping of what the small sweep changes, such as {seeds: 2, parameters: {steps: 100}}"
        raise SpecError(document.source, [document.problem(("quick",), text)])
    if not apply:
        return
    for key, value in changes.items():
        given = document.values.get(key) or {}
        if key != "parameters":
            document.values[key] = value
        elif isinstance(given, dict):
            document.values[key] = {**given, **value}
    for path in [path for path in document.places if path[:1] == ("quick",) and len(path) > 1]:
        document.places[path[1:]] = document.places[path]
    if isinstance(document.values.get("name"), str):
        document.values["name"] += "-quick"
