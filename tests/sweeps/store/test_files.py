from pathlib import Path

import pytest

from mislabel.sweeps.store.filesystem import Files, opened


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


def test_names_are_sorted_and_list_files_only(files: Files) -> None:
    assert files.names("parts") == []
    for name in ("b", "a", ".hidden", "deeper/c"):
        files.write(f"parts/{name}", b"")
    assert files.names("parts") == ["a", "b"]
    files.remove("parts/a")
    files.remove("parts/never-was")
    assert files.names("parts") == ["b"]
