import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mislabel.sweeps.store.parts import FileRecord, Manifest, Part, encoded, generation_of, is_intact, manifest_of
from tests.sweeps.run.parts import tables

NAME, CONTENTS = encoded(tables(["a-0", "a-1"], "p"), 7, ["000003-0123456789abcdef0123"])


def manifest() -> Manifest:
    found = manifest_of(NAME, pq.read_metadata(pa.BufferReader(CONTENTS["runs"])).metadata)
    assert found is not None
    return found


def test_a_part_is_named_after_its_generation_and_its_runs() -> None:
    assert list(CONTENTS) == ["curves", "runs"]
    assert f"000007-{hashlib.sha256(CONTENTS['runs']).hexdigest()[:20]}" == NAME
    assert generation_of(NAME) == 7
    assert encoded(tables(["a-0", "a-1"], "p"), 8)[0] != NAME


def test_the_same_rows_give_the_same_files() -> None:
    assert encoded(tables(["a-0", "a-1"], "p"), 7, ["000003-0123456789abcdef0123"]) == (NAME, CONTENTS)


def test_runs_contain_the_sizes_and_checksums_of_the_other_files() -> None:
    curves = CONTENTS["curves"]
    record = manifest().files["curves"]
    assert (record.size, record.sha256) == (len(curves), hashlib.sha256(curves).hexdigest())
    assert manifest().replaces == ("000003-0123456789abcdef0123",)


@pytest.mark.parametrize("name", ["187ddb534382bb85e14d", "p", "7-187ddb534382bb85e14d", "000007-187ddb534382bb85e14"])
def test_other_names_are_of_an_older_layout_and_cannot_be_checked(name: str) -> None:
    assert generation_of(name) == -1
    assert manifest_of(name, {}) is None
    assert is_intact(name, b"anything")


@pytest.mark.parametrize("stored", [None, b"", b"{}", b"[]", b'{"files": {"curves": 3}}', b"\xff"])
def test_metadata_that_do_not_describe_the_part_are_refused(stored: bytes | None) -> None:
    metadata = {} if stored is None else {b"mislabel.part": stored}
    with pytest.raises(pa.ArrowInvalid):
        manifest_of(NAME, metadata)


@pytest.mark.parametrize(
    ("sizes", "problems"),
    [({"curves": 5, "runs": 9}, []), ({"runs": 9}, ["curves"]), ({"curves": 4, "runs": 9}, ["curves"]),
     ({"curves": 5, "arrays": 1, "runs": 9}, ["arrays"])],
)  # fmt: skip
def test_a_listing_shows_missing_wrong_and_foreign_files(sizes: dict[str, int], problems: list[str]) -> None:
    part = Part(NAME, sizes, Manifest({"curves": FileRecord(5, "a", "b")}))
    assert list(part.size_problems()) == problems
    assert part.missing == (problems if "curves" not in sizes else [])


def test_a_changed_byte_changes_the_checksum() -> None:
    part = Part(NAME, {table: len(data) for table, data in CONTENTS.items()}, manifest())
    for table, data in CONTENTS.items():
        assert part.content_problem(table, hashlib.sha256(data).hexdigest()) is None
        assert part.content_problem(table, hashlib.sha256(data[:-1] + b"x").hexdigest()) is not None
    assert is_intact(NAME, CONTENTS["runs"])
    assert not is_intact(NAME, CONTENTS["runs"] + b"x")
