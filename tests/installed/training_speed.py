"""Training that is slower or faster than this machine, for `pytest --step-delay` and `pytest --train-every`.

The two environment variables reach all processes that tests start. `sitecustomize` reads them there.
"""

import functools
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

DELAY, EVERY = "TEST_STEP_DELAY", "TEST_TRAIN_EVERY"
_MODULE = "mislabel.tasks.task"


def change(task_class: Any) -> None:
    """Change the speed of all tasks, those that exist already included."""
    task_class.advance = _Changed()


class _Changed:
    """Replaces the attribute `advance` of tasks. What a task keeps and pickles is still its own function."""

    def __get__(self, task: Any, owner: Any = None) -> Any:
        if task is None:
            raise AttributeError("advance")
        return _changed(vars(task)["advance"], task.block)

    def __set__(self, task: Any, advance: Any) -> None:
        is_changed = isinstance(advance, functools.partial) and advance.func is _advance
        vars(task)["advance"] = advance.args[0] if is_changed else advance


@functools.cache
def _changed(advance: Any, block: int) -> Any:
    return functools.partial(_advance, advance, block)


def _advance(advance: Any, block: int, lanes: Any, state: Any, start: int, stop: int) -> Any:
    time.sleep(float(os.environ.get(DELAY, 0)))
    every = int(os.environ.get(EVERY, 1))
    if every == 1 or lanes.shape.steps < 10 * every:  # short runs take no time, and what happens in them has its step
        return advance(lanes, state, start, stop)
    pause = getattr(sys.modules[advance.__module__], "pause", None)  # a bowl that a test holds stays held
    while start < stop:
        end = min(stop, (start // block + 1) * block)
        if start // block % every == 0:
            state = advance(lanes, state, start, end)
        elif pause is not None:
            pause(lanes, end - start)
        start = end
    return state


def change_on_import() -> None:
    """Change the speed when tasks are first imported: importing them here would load torch into every process."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_change(module: Any) -> None:
            execute(module)
            change(module.Task)

        loader.exec_module = execute_and_change
        return spec
