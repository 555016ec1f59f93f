from pathlib import Path

import pytest
from pydantic import TypeAdapter

from mislabel.sweeps.errors import DamagedFileError, StoreError
from mislabel.sweeps.store.files import Files
from mislabel.sweeps.store.filesystem import opened


@pytest.fixture
def files(tmp_path: Path) -> Files:
    filesystem, root = opened(str(tmp_path))
    return Files(filesystem, f"{root}/sweep", "sweep", str(tmp_path))


def test_written_files_can_be_read(files: Files) -> None:
    files.write("deep/a.bin", b"\x00\xff")
    files.write_text("a.txt", "δ = 0.3")
    files.write_json("a.json", {"runs": [1]})
    assert files.read_bytes("deep/a.bin") == b"\x00\xff"
    assert files.read_text("a.txt") == "δ = 0.3"
    assert files.read_json("a.json") == {"runs": [1]}


def test_a_missing_or_damaged_file_reads_as_none(files: Files) -> None:
    assert [files.read_bytes("a"), files.read_text("a"), files.read_json("a")] == [None, None, None]
    files.write("a.json", b"{")
    files.write("b.json", b"\xff")
    assert [files.read_json("a.json"), files.read_json("b.json")] == [None, None]


def test_a_file_that_cannot_be_used_is_named(files: Files) -> None:
    files.write("text", b"\xff\xfe")
    with pytest.raises(DamagedFileError) as caught:
        files.read_text("text")
    assert str(caught.value).startswith(files.shown("text"))
    Path(files.address, "folder").mkdir()
    for use in (files.read_bytes, files.read_text, lambda file: files.write(file, b""), files.remove,
                lambda file: files.append_text(file, "more")):  # fmt: skip
        with pytest.raises(StoreError) as refused:
            use("folder")
        assert str(refused.value).startswith(files.shown("folder"))


def test_a_folder_that_is_a_file_is_named(files: Files) -> None:
    files.write("parts", b"")
    for use in (files.names, lambda folder: files.write(f"{folder}/a", b"")):
        with pytest.raises(StoreError) as refused:
            use("parts")
        assert str(refused.value).startswith(files.shown("parts"))


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"3", b'{"a": "x"}', b"[" * 100_000, b'{"a": 1e999}'])
def test_a_value_of_another_shape_is_reported_once_and_ignored(files: Files, messages: list[str], data: bytes) -> None:
    shape = TypeAdapter(dict[str, int])
    assert files.read_value("a.json", shape) is None
    assert messages == []
    files.write("a.json", b'{"a": 1}')
    assert files.read_value("a.json", shape) == {"a": 1}
    files.write("a.json", data)
    assert files.read_value("a.json", shape) is None
    assert files.read_value("a.json", shape) is None
    assert [message.split(" ")[0] for message in messages] == [files.shown("a.json")]


def test_names_are_sorted_and_list_files_only(files: Files) -> None:
    assert files.names("parts") == []
    for name in ("b", "a", ".hidden", "deeper/c"):
        files.write(f"parts/{name}", b"")
    assert files.names("parts") == ["a", "b"]
    files.remove("parts/a")
    files.remove("parts/never-was")
    assert files.names("parts") == ["b"]
