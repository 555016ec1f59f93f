"""Names that content fixes: a cell's id is a hash of what determines its result, a run's id adds the seed."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from mislabel.tasks.parameters import Value

_DIGEST_BYTES = 10


def cell_id(task: str, version: int, values: Mapping[str, Value]) -> str:
    """The id of one setting of all of a task's parameters, defaults included, whatever their order."""
    return _digest(
        _head(task, version) + ",".join(f"{json.dumps(name)}:{_text(values[name])}" for name in sorted(values)) + "}]"
    )


def cell_ids(
    task: str, version: int, common: Mapping[str, Value], columns: Mapping[str, Sequence[Value]], count: int
) -> list[str]:
    """`cell_id` of many cells that share most values: what they share is written out once."""
    parts: list[str | list[str]] = [_head(task, version)]
    for i, name in enumerate(sorted(common.keys() | columns.keys())):
        label = f"{',' if i else ''}{json.dumps(name)}:"
        if name in columns:
            parts += [label, _texts(columns[name])]
        else:
            parts.append(label + _text(common[name]))
    parts.append("}]")
    rows = zip(*(part if isinstance(part, list) else [part] * count for part in _merged(parts)), strict=True)
    return [_digest("".join(row)) for row in rows]


def run_id(cell: str, seed: int) -> str:
    return f"{cell}-{seed}"


def pack_id(run_ids: Iterable[str]) -> str:
    """The id of a set of runs, whatever their order."""
    return _digest("\n".join(sorted(run_ids)))


def _head(task: str, version: int) -> str:
    return f"[{json.dumps(task)},{version},{{"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _text(value: Value) -> str:
    # Minus zero is the same setting as zero.
    return json.dumps(0.0 if value == 0 and isinstance(value, float) else value)


def _texts(column: Sequence[Value]) -> list[str]:
    known: dict[tuple[type, Value], str] = {}
    texts = []
    for value in column:
        key = (type(value), value)
        text = known.get(key)
        if text is None:
            text = _text(value)
            if len(known) < 10_000:
                known[key] = text
        texts.append(text)
    return texts


def _merged(parts: list[str | list[str]]) -> list[str | list[str]]:
    """Neighbouring constant parts joined, so that a row is put together from as few pieces as it can be."""
    merged: list[str | list[str]] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged
