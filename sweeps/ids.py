"""Ids that depend on content alone: a cell's id hashes what determines its result; a run's id adds the seed."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mislabel.tasks.parameters import Value

if TYPE_CHECKING:
    from mislabel.tasks.task import Task


def cell_id(task: "Task[Any]", values: Mapping[str, Value]) -> str:
    """The id of one setting of a task's parameters, defaults included, in any order.

    A parameter that was added to the task later is left out of the hash at its `earlier` value, so that runs from
    before keep their ids.
    """
    return cell_ids(task, values, {}, 1)[0]


def cell_ids(
    task: "Task[Any]", common: Mapping[str, Value], columns: Mapping[str, Sequence[Value]], count: int
) -> list[str]:
    """`cell_id` of many cells that share most values. The text of the shared values is made once."""
    template, varying, earlier = "", [], task.earlier
    for name in sorted(common.keys() | columns.keys()):
        if name in columns:
            template += "%s"
            # Many cells share a value. Its type is part of the key, because 1, 1.0 and true are equal.
            keys = [(type(value), value) for value in columns[name]]
            items = {key: _item(name, key[1], earlier) for key in set(keys)}
            varying.append([items[key] for key in keys])
        else:
            template += _item(name, common[name], earlier).replace("%", "%%")
    rows = zip(*varying, strict=True) if varying else [()] * count
    head = f"[{json.dumps(task.name)},{task.version},"
    return [_digest(f"{head}{{{(template % row).removeprefix(',')}}}]") for row in rows]


def run_id(cell: str, seed: int) -> str:
    return f"{cell}-{seed}"


def pack_id(run_ids: Iterable[str]) -> str:
    """The id of a set of runs, in any order."""
    return _digest("\n".join(sorted(run_ids)))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def _item(name: str, value: Value, earlier: Mapping[str, Value]) -> str:
    """A comma and the parameter as JSON; nothing if the parameter has its earlier value."""
    text = _text(value)
    return "" if name in earlier and text == _text(earlier[name]) else f",{json.dumps(name)}:{text}"


def _text(value: Value) -> str:
    # Minus zero is the same setting as zero.
    return json.dumps(0.0 if value == 0 and isinstance(value, float) else value)
