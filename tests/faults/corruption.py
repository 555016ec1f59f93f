"""Files of a store are changed, swapped, emptied, deleted or replaced by a folder: that is noticed, or changes nothing.

Every corruption is made in a copy of a store. Readers then show the same tables as before, or say which file is wrong.
`doctor` finds every changed byte of a table. The same command repairs the sweep: its tables are as if nothing had
happened, and only runs of damaged parts were trained again.
"""

import logging
import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pandas as pd

from tests.faults.bowl_sweeps import KEYS, assert_same_table, run_sweep, run_undisturbed, table_of, write_spec
from tests.faults.forks import forked
from tests.faults.suite import Case, scratch
from tests.faults.taps import Crash

FLIPS = 12
"""Bits that are flipped in each file, spread over it."""
SAMPLE = 12
TABLES = tuple(KEYS)


def cases(full: bool) -> Iterator[list[Case]]:
    with scratch("corruption") as folder:
        for method in ("grid", "tpe"):
            for ended in (True, False):
                yield corruption_cases(method, ended, folder / f"{method}-{ended}", full)


def corruption_cases(method: str, ended: bool, folder: Path, full: bool) -> list[Case]:
    """Corruptions of a sweep that has ended, or whose driver was killed when half of its runs were stored."""
    spec = write_spec(folder, method)
    undisturbed, store = folder / "undisturbed", folder / "store"
    operations = run_undisturbed(spec, str(undisturbed))
    if ended:
        shutil.copytree(undisturbed, store)
    else:
        written = [o.number for o in operations if o.kind == "rename" and "/runs/" in o.path]
        crash = Crash(written[len(written) // 2], "after")
        forked(run_sweep, str(spec), str(store), crash, folder=folder).expect(Crash.CODE)
    found = [
        Case(
            f"{method}, {'ended' if ended else 'killed'} sweep: a file of the store is {what}",
            f"{path.relative_to(store)} {name}",
            partial(corrupt_and_repair, spec, store, undisturbed, path.relative_to(store), change),
        )
        for path in sorted(store.rglob("*"))
        if path.is_file() and _matters(path)
        for what, name, change in changes(path)
    ]
    return found if full else found[:: max(1, len(found) // SAMPLE)]


def _matters(path: Path) -> bool:
    """Whether a run may depend on the file: not the log, nor files whose writer was killed before it wrote `runs`."""
    unfinished = path.suffix == ".parquet" and not (path.parents[1] / "runs" / path.name).exists()
    return not unfinished and not path.name.startswith(".") and path.name not in ("store.json", "log.txt")


def changes(path: Path) -> Iterator[tuple[str, str, Callable[[Path], None]]]:
    """Ways to corrupt the file: what is done to it, where, and a function that does it to a copy."""
    size, draw = path.stat().st_size, random.Random(zlib.crc32(path.name.encode()))
    for at in sorted({round(i * (size - 1) / (FLIPS - 1)) for i in range(FLIPS)} if size else ()):
        bit = draw.randrange(8)
        yield "changed by one bit", f"byte {at}, bit {bit}", partial(_rewrite, partial(_flipped, at, bit))
    yield "truncated", "by half", partial(_rewrite, lambda data: data[: len(data) // 2])
    yield "truncated", "by one byte", partial(_rewrite, lambda data: data[:-1])
    yield "extended", "by one byte", partial(_rewrite, lambda data: data + b"x")
    yield "emptied", "", partial(_rewrite, lambda data: b"")
    yield "filled with random bytes", "", partial(_rewrite, lambda data: draw.randbytes(len(data)))
    yield "filled with zeros", "", partial(_rewrite, lambda data: bytes(len(data)))
    yield "deleted", "", Path.unlink
    yield "replaced by a folder", "", _into_folder
    if others := sorted(other for other in path.parent.glob(f"*{path.suffix}") if other != path and other.is_file()):
        other = others[0].read_bytes()
        yield "replaced by another file of its kind", others[0].name, partial(_rewrite, lambda data: other)


def _rewrite(change: Callable[[bytes], bytes], path: Path) -> None:
    path.write_bytes(change(path.read_bytes()))


def _flipped(at: int, bit: int, data: bytes) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


def _into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def corrupt_and_repair(
    spec: Path, original: Path, undisturbed: Path, file: Path, change: Callable[[Path], None], folder: Path
) -> None:
    store = folder / "store"
    shutil.copytree(original, store)
    change(store / file)
    forked(check_readers, str(store), str(original), str(file), folder=folder).expect(0)
    ran = forked(run_sweep, str(spec), str(store), folder=folder).expect(0, 1, 2)
    if ran.code:
        assert str(store / "bowls") in ran.err, f"the error names no file of the sweep\n{ran.err}"
    forked(check_repaired, str(store), str(original), str(undisturbed), str(file), ran.code, folder=folder).expect(0)


def check_readers(store: str, original: str, file: str) -> None:
    """Fail if a reader shows another table without a word, or if `doctor` would not find a changed table."""
    from mislabel.sweeps.errors import StoreError
    from mislabel.sweeps.store.store import Store

    heard = _listen()
    for table in TABLES:
        heard.clear()
        found = None
        try:
            found = table_of(store, table)
        except StoreError as error:
            heard.append(str(error))
        if found is None:
            assert any(file in text for text in heard), heard
            continue
        expected = table_of(original, table)
        if Path(file).match("runs/*.parquet") and not Path(store, file).exists():
            continue  # as if it had never been written
        if len(found) == len(expected):
            assert_same_table(found, expected)
        else:
            assert any(file in text for text in heard), f"{table} has {len(found)} rows instead of {len(expected)}"
    damage = Store(store).sweep("bowls").damage(whole=True)
    is_table = Path(file).parts[1] in TABLES
    if is_table and not (Path(file).match("runs/*.parquet") and not Path(store, file).exists()):
        assert any(file in path for path in damage), f"doctor finds {damage}"
    else:
        assert damage == {}


def check_repaired(store: str, original: str, undisturbed: str, file: str, code: int) -> None:
    """Fail if the sweep is not as if nothing had happened. A search without its proposals may run other cells."""
    if code == 0 and "proposals" not in file:
        for table in TABLES:
            assert_same_table(table_of(store, table), table_of(undisturbed, table))
    kept, before = (_all_columns(each) for each in (store, original))
    if Path(file).parts[1] in TABLES:
        return
    kept = kept[kept.index.isin(before.index)]
    pd.testing.assert_frame_equal(kept.loc[before.index, before.columns], before, check_exact=True)


def _all_columns(store: str) -> pd.DataFrame:
    from mislabel.sweeps.store.store import Store

    table: pd.DataFrame = Store(store).sweep("bowls").read("runs").to_pandas()
    return table.set_index("run_id").sort_index() if len(table) else table


def _listen() -> list[str]:
    """A list that our modules' messages are added to."""
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("mislabel").addHandler(handler)
    return heard
