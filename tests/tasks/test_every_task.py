"""Every installed task passes all checks of the contract."""

from collections.abc import Callable
from typing import Any

import pytest

from mislabel.tasks.conformance import CHECKS
from mislabel.tasks.registry import find_task, task_names
from mislabel.tasks.task import Task

pytestmark = pytest.mark.long


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", task_names())
def test_every_task_keeps_the_contract(name: str, check: Callable[[Task[Any]], None]) -> None:
    check(find_task(name))
