import multiprocessing
import time
from pathlib import Path

import pytest
import torch
from filelock import Timeout

from mislabel.tasks.files import atomic_path, locked, write_atomically


def _write_half(path: Path) -> None:
    path.write_text("half")
    raise ZeroDivisionError


def test_a_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(ZeroDivisionError), atomic_path(path) as unfinished:
        _write_half(unfinished)
    assert list(tmp_path.iterdir()) == []
    write_atomically(path, b"old")
    with atomic_path(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "new"


def test_torch_writes_to_the_temporary_path(tmp_path: Path) -> None:
    """torch.save refuses names such as `.name`."""
    with atomic_path(tmp_path / "file.pt") as unfinished:
        torch.save({"x": torch.ones(2)}, unfinished)
    assert torch.load(tmp_path / "file.pt")["x"].tolist() == [1, 1]


def test_a_folder_that_is_gone_is_not_created_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "gone" / "file", b"")
    assert list(tmp_path.iterdir()) == []


def test_a_held_lock_is_refused_without_waiting_and_free_afterwards(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(Timeout), locked(tmp_path / "lock", wait=False):
        pass
    with locked(tmp_path / "lock", wait=False):
        pass


def _hold_until_killed(lock: Path, held: Path) -> None:
    with locked(lock):
        held.touch()
        time.sleep(600)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    lock, held = tmp_path / "lock", tmp_path / "held"
    other = multiprocessing.get_context("fork").Process(target=_hold_until_killed, args=(lock, held))
    other.start()
    while not held.exists():
        assert other.is_alive()
        time.sleep(0.01)
    with pytest.raises(Timeout), locked(lock, wait=False):
        pass
    other.kill()
    other.join()
    with locked(lock, wait=False):
        pass
