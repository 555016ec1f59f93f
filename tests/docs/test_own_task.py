"""The task that the guide shows keeps the contract of tasks."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from docs.tools.pages import DOCS, blocks_of
from mislabel.tasks.conformance import CHECKS
from mislabel.tasks.task import Task


@pytest.fixture(scope="module")
def example() -> Task[Any]:
    """The task as a module, like a user's file."""
    module = ModuleType("random_walk")
    sys.modules["random_walk"] = module
    page = (DOCS / "guides" / "own-task.md").read_text()
    text = next(block.text for block in blocks_of(page) if block.language == "python")
    exec(compile(text, "own-task.md", "exec"), module.__dict__)
    task: Task[Any] = module.task
    return task


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_task_in_the_guide_keeps_the_contract(check: Callable[[Task[Any]], None], example: Task[Any]) -> None:
    check(example)
    assert example.summary.startswith("Random walk")
