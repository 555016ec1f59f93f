"""Ids that depend on content alone: a cell's id hashes what determines its result; a run's id adds the seed."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mislabel.tasks.parameters import Value

if TYPE_CHECKING:
    from mislabel.tasks.task import Task

_DIGEST_BYTES = 10


def cell_id(task: "Task[Any]", values: Mapping[str, Value]) -> str:
    """The id of one setting of a task's parameters, defaults included, in any order.

    A parameter that was added to the task later is left out of the hash at its `earlier` value, so that runs from
    before keep their ids.
    """
    earlier = task.earlier
    items = [_item(name, values[name], earlier) for name in sorted(values)]
    return _cell_digest(task, "".join(items))


def cell_ids(
    task: "Task[Any]", common: Mapping[str, Value], columns: Mapping[str, Sequence[Value]], count: int
) -> list[str]:
    """`cell_id` of many cells that share most values. The text of the shared values is made once."""
    earlier = task.earlier
    parts: list[str | list[str]] = [""]
    for name in sorted(common.keys() | columns.keys()):
        if name in columns:
            parts.append(_items(name, columns[name], earlier))
        else:
            parts.append(_item(name, common[name], earlier))
    rows = zip(*(part if isinstance(part, list) else [part] * count for part in _merged(parts)), strict=True)
    return [_cell_digest(task, "".join(row)) for row in rows]


def run_id(cell: str, seed: int) -> str:
    return f"{cell}-{seed}"


def pack_id(run_ids: Iterable[str]) -> str:
    """The id of a set of runs, in any order."""
    return _digest("\n".join(sorted(run_ids)))


def _cell_digest(task: "Task[Any]", items: str) -> str:
    return _digest(f"[{json.dumps(task.name)},{task.version},{{{items.removeprefix(',')}}}]")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _item(name: str, value: Value, earlier: Mapping[str, Value]) -> str:
    """A comma and the parameter as JSON; nothing if the parameter has its earlier value."""
    text = _text(value)
    return "" if name in earlier and text == _text(earlier[name]) else f",{json.dumps(name)}:{text}"


def _items(name: str, column: Sequence[Value], earlier: Mapping[str, Value]) -> list[str]:
    known: dict[tuple[type, Value], str] = {}
    items = []
    for value in column:
        key = (type(value), value)
        item = known.get(key)
        if item is None:
            item = _item(name, value, earlier)
            if len(known) < 10_000:
                known[key] = item
        items.append(item)
    return items


def _text(value: Value) -> str:
    # Minus zero is the same setting as zero.
    return json.dumps(0.0 if value == 0 and isinstance(value, float) else value)


def _merged(parts: list[str | list[str]]) -> list[str | list[str]]:
    """The parts with neighbouring constants joined, so that each row is built from few pieces."""
    merged: list[str | list[str]] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged
