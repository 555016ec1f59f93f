import hashlib
import multiprocessing
import time
from pathlib import Path

import pytest

from mislabel.tasks.data.folder import atomic_file, choose_folder, chosen_folder, data_folder, data_lock, md5_of, shown


def test_the_folder_is_given_or_named_by_the_environment_or_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MISLABEL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "cache" / "mislabel" / "data"
    monkeypatch.setenv("MISLABEL_DATA", str(tmp_path / "shared"))
    assert data_folder() == tmp_path / "shared"
    assert data_folder(tmp_path / "own") == tmp_path / "own"


def test_a_path_is_shown_with_a_tilde() -> None:
    assert shown(Path.home() / "data") == "~/data"
    assert shown(Path("/data")) == "/data"


def test_a_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with pytest.raises(ZeroDivisionError), atomic_file(path) as unfinished:
        unfinished.write_text(f"half {1 / 0}")
    assert list(path.parent.iterdir()) == []
    with atomic_file(path) as unfinished:
        unfinished.write_text("whole")
        assert not path.exists()
    assert [each.name for each in path.parent.iterdir()] == ["file"]
    assert path.read_text() == "whole"
    assert md5_of(path) == hashlib.md5(b"whole").hexdigest()


def _hold(folder: Path, marks: Path) -> None:
    with data_lock(folder, "mnist"):
        first = not marks.exists()
        marks.touch()
        time.sleep(0.2)
        if first:
            marks.unlink()


@pytest.mark.long
def test_only_one_process_at_a_time_holds_the_lock(tmp_path: Path) -> None:
    """If both were in the body at once, the second would find the mark of the first."""
    marks = tmp_path / "busy"
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_hold, args=(tmp_path, marks)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert not marks.exists()


def test_other_machines_get_the_chosen_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MISLABEL_DATA", raising=False)
    assert chosen_folder() is None
    choose_folder(None)
    assert chosen_folder() is None
    monkeypatch.setenv("MISLABEL_DATA", "")
    choose_folder("shared")
    assert chosen_folder() == str(tmp_path / "shared") == str(data_folder())
    choose_folder("~/shared")
    assert chosen_folder() == "~/shared"  # each machine has its own home folder
