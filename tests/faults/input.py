"""Input: hostile specs, conditions, overrides and names of sweeps are accepted or refused, and do nothing else.

A seeded generator changes good input at random and mixes in what breaks parsers: code, bombs, deep nesting, huge
numbers, control characters, paths. Thousands of inputs share a fork. There, an audit hook sees every file that is
opened for writing, every new process and all code that is compiled from text.
"""

import contextlib
import copy
import os
import random
import resource
import string
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import yaml

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.errors import MislabelError, SpecError
from mislabel.sweeps.spec.condition import ExpressionError, parse_expression
from mislabel.sweeps.spec.document import read_document
from mislabel.sweeps.spec.model import spec_from_stored
from mislabel.sweeps.store.store import RESERVED, Store
from tests.bowls import bowl_values
from tests.faults.forks import forked
from tests.faults.suite import Case

FULL = {"specs": 40_000, "conditions": 30_000, "overrides": 20_000, "names": 10_000}
SAMPLE_SHARE = 100
AT_ONCE = 2_500
"""Inputs per fork."""
MOST_BYTES = 1 << 30

CODE = [
    "__import__('os').system('touch CANARY')",
    "open('CANARY', 'w')",
    "().__class__.__bases__[0].__subclasses__()",
    "x.__class__.__init__.__globals__",
    "[x for x in (1).__class__.__mro__]",
    "(lambda: open('CANARY', 'w'))()",
    "eval('1')",
    'f\'{open("CANARY", "w")}\'',
    "x if x else exec('1')",
    "(x := 3)",
    "{{7*7}}",
    "${HOME}",
    "$(touch CANARY)",
    "`touch CANARY`",
    "!!python/object/apply:os.system ['touch CANARY']",
    "!!python/name:os.system",
]
TEXTS = [
    *CODE,
    "9**9**9",
    "9**9**9**9 > x",
    "x ** -0.5 < 1e308 ** 2",
    "'a' * 9999999999",
    "x % 0 == 0",
    "x / 0 > 1",
    "not " * 200 + "x",
    "(" * 150 + "x" + ")" * 150,
    "x > 1 and " * 90 + "x",
    "x < " * 240 + "1",
    "9" * 999 + " > x",
    "-" * 900 + "1",
    "x in " + str(list(range(200))),
    "x == 0x" + "f" * 400,
    "1_000_000 < x",
    "1j > x",
    "b'a' == surface",
    "x is None",
    "x > nan",
    "inf > x",
    "\0",
    "a\0b",
    "\ud800",
    "\u202e\u0000",
    "名前",
    "é" * 60,
    "a" * 100_000,
    "../x",
    "../../etc/passwd",
    "/etc/passwd",
    "~/x",
    "a/b",
    "a\\b",
    ".",
    "..",
    "",
    " ",
    "-rf",
    "--set",
    "con",
    "a..b",
    "a.",
    ".a",
    "a\n",
    "a;b",
    "a|b",
    "s3://bucket/x",
    "file:///etc/passwd",
    "1e400h",
    "9" * 300 + "d",
    "{" * 400,
    "[" * 400,
    "&a [*a]",
    "a: &a [1]\nb: [*a, *a, *a]",
    "? [a]\n: b",
    "%YAML 9.9\n---\na",
    "<<: {a: 1}",
    *RESERVED,
]
NUMBERS = [
    0, -1, 1, 2, 3, 1.5, -0.0, 1e-320, 5e-324, 1e308, -1e308, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**12,
    10**18, 10**40, 10**400, float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
OTHERS: list[Any] = [None, True, False, [], {}, [[]], [None], {"a": {"b": {"c": []}}}, {1: 2}, {None: None}, {True: 1}]
KEYS = [
    "name", "task", "method", "metric", "parameters", "exclude", "seeds", "early_terminate", "budget", "resources",
    "track", "zip", "try_first", "baselines", "start_from", "keep", "quick", "values", "min", "max", "points", "step",
    "scale", "when", "grid", "goal", "count", "first", "up_to", "type", "min_steps", "eta", "per", "cells", "runs",
    "wall", "failures", "cpu", "gpu", "pack", "startup", "population", "seed", "x", "rate", "width", "level", "surface",
    "tilted", "steps", "frames", "snapshots", "precision", "spacing", "loss", "__class__", "__proto__",
]  # fmt: skip


def cases(full: bool) -> Iterator[Case]:
    for kind, count in FULL.items():
        inputs = count if full else count // SAMPLE_SHARE
        for first in range(0, inputs, AT_ONCE):
            some = min(AT_ONCE, inputs - first)
            yield Case(f"hostile {kind}", f"from {first:,}", _in_fork(kind, first, some), count=some, seconds=1800)


def _in_fork(kind: str, first: int, count: int) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        forked(try_inputs, kind, first, count, str(folder / "inside"), folder=folder / "logs", seconds=1800).expect(0)
        found = sorted(path.name for path in folder.iterdir())
        assert found == ["inside", "logs"], f"{found} were written outside of the store"
        written = sorted(path.name for path in (folder / "inside").iterdir())
        assert written in ([], ["store"]), f"{written} were written outside of the store"

    return run


def try_inputs(kind: str, first: int, count: int, folder: str) -> None:
    """Try these inputs, in a fork. Raises AssertionError at the first that does something it must not."""
    os.makedirs(folder)
    os.chdir(folder)
    _try(kind, random.Random("warm up"))  # imports, which open files and run code
    resource.setrlimit(resource.RLIMIT_DATA, (4 * MOST_BYTES, 4 * MOST_BYTES))
    forbidden: list[str] = []
    sys.addaudithook(lambda event, arguments: _watch(event, arguments, os.path.join(folder, "store"), forbidden))
    for number in range(first, first + count):
        try:
            _try(kind, random.Random(f"{kind} {number}"))
        except Exception as error:
            raise AssertionError(f"{kind} {number}: {type(error).__name__}") from error
        assert not forbidden, f"{kind} {number}: {forbidden[0]}"
    most = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert most < MOST_BYTES, f"{most / 2**20:.0f} MiB of memory were used"


def _watch(event: str, arguments: tuple[Any, ...], store: str, forbidden: list[str]) -> None:
    if event == "open":
        path, _, flags = arguments
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not _inside(path, store):
            forbidden.append(f"{path} was opened for writing")
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.truncate"):
        if not _inside(arguments[0], store):
            forbidden.append(f"{event} of {arguments[0]}")
    elif event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "socket.connect"):
        forbidden.append(f"{event} {arguments[0]}")
    elif event == "exec" and isinstance(arguments[0], CodeType):
        file = arguments[0].co_filename
        if file.startswith("<") and not file.startswith("<frozen"):
            forbidden.append(f"code of {file} was run")


def _inside(path: object, store: str) -> bool:
    return not isinstance(path, str | bytes | os.PathLike) or (
        os.path.abspath(os.fsdecode(path)).startswith((store, "/dev/", "/proc/"))
    )


def _try(kind: str, draw: random.Random) -> None:
    {"specs": _try_spec, "conditions": _try_condition, "overrides": _try_override, "names": _try_name}[kind](draw)


# Specs


def _try_spec(draw: random.Random) -> None:
    with contextlib.suppress(SpecError):
        _use(_broken_text(draw, _dumped(_changed_spec(draw))) if draw.random() < 0.4 else _dumped(_changed_spec(draw)))


def _use(text: str, *overrides: str) -> None:
    """Check a spec; if it is accepted, store it, read it again, and begin to list its cells."""
    document = read_document(text, "fuzzed.yaml")
    for assignment in overrides:
        document.set(assignment)
    spec, task = checked_spec(document)
    assert spec_from_stored(spec.to_yaml()) == spec
    space = Space(spec, task)
    space.sample_cell()
    if not spec.method.learns:
        next(iter(space.cells()), None)


def _good_spec(draw: random.Random) -> dict[str, Any]:
    methods: list[dict[str, Any]] = [
        {},
        {"method": "random", "budget": {"cells": 5}, "parameters": {"x": {"min": -1, "max": 1}}},
        {"method": {"name": "tpe", "seed": 1}, "budget": {"cells": 5}, "parameters": {"rate": {"min": 0.1, "max": 1}}},
        {"early_terminate": {"type": "asha", "min_steps": 2}, "exclude": ["x > 5"]},
        {"seeds": {"count": 2, "up_to": 4}, "resources": {"pack": "auto", "cpu": 1}, "track": {"per": "run"}},
        {"parameters": {"x": {"values": [1, 2]}, "level": {"min": 0, "max": 9, "when": "x > 1"}}},
        {"parameters": {"x": {"values": [1, 2]}, "level": {"values": [1, 2]}}, "zip": [["x", "level"]]},
    ]
    return copy.deepcopy({**bowl_values(), **draw.choice(methods)})


def _changed_spec(draw: random.Random) -> dict[str, Any]:
    values = _good_spec(draw)
    for _ in range(draw.choice([1, 1, 2, 3, 6])):
        at: Any = values
        while True:
            key = draw.choice([*at, draw.choice(KEYS)]) if isinstance(at, dict) else draw.randrange(len(at))
            inner = at.get(key) if isinstance(at, dict) else at[key]
            if isinstance(inner, dict | list) and inner and draw.random() < 0.7:
                at = inner
                continue
            break
        if isinstance(at, dict) and draw.random() < 0.1:
            at.pop(key, None)
        else:
            at[key] = _anything(draw)
    return values


def _anything(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.random()
    if kind < 0.35:
        return draw.choice(TEXTS) if draw.random() < 0.8 else _noise(draw)
    if kind < 0.7:
        return draw.choice(NUMBERS)
    if kind < 0.8 or depth > 3:
        return copy.deepcopy(draw.choice(OTHERS))
    if kind < 0.9:
        return [_anything(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(KEYS): _anything(draw, depth + 1) for _ in range(draw.randrange(4))}


def _noise(draw: random.Random) -> str:
    alphabet = string.printable + "äß名\u2028\ufeff\x7f\x85"
    return "".join(draw.choice(alphabet) for _ in range(draw.randrange(30)))


def _dumped(values: object) -> str:
    return yaml.dump(values, allow_unicode=True, sort_keys=False)


def _broken_text(draw: random.Random, text: str) -> str:
    """The text of a spec with something inserted, removed or repeated."""
    at = draw.randrange(len(text) + 1)
    to = min(len(text), at + draw.randrange(1, 40))
    return draw.choice(
        [
            lambda: text[:at] + draw.choice(TEXTS) + text[at:],
            lambda: text[:at] + _noise(draw) + text[at:],
            lambda: text[:at] + text[to:],
            lambda: text[:to] + text[at:],
            lambda: text[:at],
            lambda: text[:at] + "\n" + text,
            lambda: text + f"\nmore: {draw.choice('[{') * draw.choice([5, 50, 5000])}",
            lambda: text + "".join(f"\na{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 30)),
            lambda: text + "\n" + "key: value\n" * draw.choice([2, 2000]),
            lambda: text + "#" * draw.choice([10, 2_000_000]),
        ]
    )()


# Conditions


_SIGNS = ["==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "**", "and", "or", "in"]
_WRONG_SIGNS = ["//", "@", "&", "|", "^", "<<", ">>", "is", ";", ",", ".", ":", ":=", "if", "->", "(", "[", "{", "="]
_VALUES: dict[str, Any] = {"x": 1.5, "width": 8, "level": 0, "rate": 1e-300, "surface": "rough", "tilted": True}


def _try_condition(draw: random.Random) -> None:
    text = _condition(draw) if draw.random() < 0.7 else _broken_text(draw, _condition(draw))
    with contextlib.suppress(ExpressionError):
        expression = parse_expression(text)
        if expression.names <= _VALUES.keys():
            assert expression.holds(_VALUES) in (True, False)


def _condition(draw: random.Random, depth: int = 0) -> str:
    kind = draw.random()
    if kind < 0.3 or depth > 4:
        return draw.choice(list(_VALUES)) if draw.random() < 0.7 else draw.choice(TEXTS)
    if kind < 0.45:
        return repr(draw.choice(NUMBERS))
    left, right = _condition(draw, depth + 1), _condition(draw, depth + 1)
    if kind < 0.9:
        return f"({left} {draw.choice(_SIGNS if draw.random() < 0.8 else _WRONG_SIGNS)} {right})"
    return draw.choice([f"not {left}", f"-{left}", f"{left}({right})", f"{left}.{right}", f"{left}[{right}]"])


# Overrides


def _try_override(draw: random.Random) -> None:
    overrides = [_override(draw) for _ in range(draw.choice([1, 1, 2, 5]))]
    with contextlib.suppress(SpecError):
        _use(_dumped(_good_spec(draw)), *overrides)


def _override(draw: random.Random) -> str:
    path = ".".join(draw.choice(KEYS) for _ in range(draw.choice([1, 1, 2, 2, 3, 30])))
    if draw.random() < 0.1:
        path = draw.choice(TEXTS)
    value = draw.choice(TEXTS) if draw.random() < 0.4 else str(_anything(draw))
    return f"{path}{draw.choice(['=', '=', '=', '==', ' = ', ''])}{value}"


# Names of sweeps


def _try_name(draw: random.Random) -> None:
    """A name that a spec may have is written inside the store; other names are refused, also by commands."""
    name = draw.choice([*TEXTS, _noise(draw), "a" * draw.randrange(1, 300)])
    if draw.random() < 0.5:
        name = draw.choice(["", "a", ".", "../", "a.", "-"]) + name + draw.choice(["", "b", "/", "..", "\0", ".b"])
    store = Store("store")
    with contextlib.suppress(MislabelError):
        store.existing(name)
    try:
        spec, _ = checked_spec(read_document(_dumped({**bowl_values(), "name": name}), "fuzzed.yaml"))
    except SpecError:
        return
    assert spec.name == name
    assert os.sep not in name
    files = store.sweep(spec.name)
    files.write_text("spec.yaml", "a: 1\n")
    assert store.existing(spec.name).read_text("spec.yaml") == "a: 1\n"
    assert not set(os.listdir("store")) & set(RESERVED)
    files.remove("spec.yaml")
