import multiprocessing
import os
import time
from pathlib import Path

import pytest
import torch
from filelock import Timeout

from mislabel.tasks.files import UNFINISHED, atomic_path, create_exclusively, locked, make_folder, write_atomically


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


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and folders that were synchronized, in order."""
    found: list[Path] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_a_written_file_and_its_folder_are_synchronized(tmp_path: Path, synced: list[Path]) -> None:
    """A rename that is not synchronized may be lost in a power cut, even if that of a later file is not."""
    write_atomically(tmp_path / "file", b"data")
    content, folder = synced
    assert content.match(UNFINISHED)
    assert folder == tmp_path


def test_new_folders_are_synchronized_too(tmp_path: Path, synced: list[Path]) -> None:
    make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert synced == [tmp_path / "a" / "b", tmp_path / "a", tmp_path]
    make_folder(tmp_path / "a" / "b" / "c")
    assert len(synced) == 3


def test_an_unfinished_file_that_somebody_removes_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that starts removes the unfinished files that it finds."""
    replace, removed = os.replace, list[str]()

    def removing(source: str, target: str) -> None:
        if not removed:
            removed.append(source)
            os.unlink(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", removing)
    write_atomically(tmp_path / "file", b"data")
    assert removed
    assert (tmp_path / "file").read_bytes() == b"data"


@pytest.mark.parametrize("exists", [True, False])
def test_a_file_is_created_exclusively_although_somebody_removes_the_unfinished_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    """As the successor of a paused driver does. The paused one must learn that the file exists."""
    path, sync, calls = tmp_path / "lease.json", os.fsync, list[int]()

    def remove_once(descriptor: int) -> None:
        sync(descriptor)
        if not calls:
            for unfinished in tmp_path.glob(UNFINISHED):
                unfinished.unlink()
        calls.append(descriptor)

    if exists:
        path.write_bytes(b"other")
    monkeypatch.setattr(os, "fsync", remove_once)
    assert create_exclusively(path, b"own") is not exists
    assert path.read_bytes() == (b"other" if exists else b"own")
    assert os.listdir(tmp_path) == ["lease.json"]


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
