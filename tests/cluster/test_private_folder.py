import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mislabel.cluster.private_folder import make_private_folder, private_folder

# Creates a folder, prints its path, and waits.
KEEP = (
    "import sys, time\n"
    "from mislabel.cluster.private_folder import private_folder\n"
    "with private_folder(sys.argv[1]) as folder:\n"
    "    print(folder, flush=True)\n"
    "    time.sleep(600)\n"
)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_its_owner_can_enter_it_and_it_is_removed(tmp_path: Path) -> None:
    with private_folder(str(tmp_path)) as folder:
        assert mode(folder) == 0o700
        (folder / "inside").mkdir(mode=0o777)
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_stays_is_short_and_private() -> None:
    folder = make_private_folder()
    try:
        assert mode(folder) == 0o700
        # A socket's path has at most 107 characters, and Ray adds 74 of them.
        assert len(str(folder)) < 30
    finally:
        folder.rmdir()


def test_folders_of_killed_processes_are_removed_and_others_are_kept(tmp_path: Path) -> None:
    def started() -> "tuple[subprocess.Popen[str], Path]":
        process = subprocess.Popen([sys.executable, "-c", KEEP, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    unlocked = tmp_path / "mislabel-cluster"
    unlocked.mkdir(mode=0o700)
    (killed, leftover), (running, used) = started(), started()
    try:
        killed.kill()
        killed.communicate()
        assert leftover.is_dir()
        with private_folder(str(tmp_path)):
            assert not leftover.exists()
            assert used.is_dir()
            assert unlocked.is_dir()
    finally:
        running.kill()
        running.communicate()


@pytest.mark.long
def test_a_folder_is_removed_while_others_still_write_there(tmp_path: Path) -> None:
    """Like workers of a Ray that was lost. They end a moment later."""
    writes = threading.Event()

    def write(folder: Path) -> None:
        for i in range(200):
            with suppress(FileNotFoundError):
                (folder / "ray").mkdir(exist_ok=True)
                (folder / "ray" / f"log-{i}").write_text("x")
            writes.set()
            time.sleep(0.005)

    with private_folder(str(tmp_path)) as folder:
        writer = threading.Thread(target=write, args=(folder,))
        writer.start()
        writes.wait()
    writer.join()
    with private_folder(str(tmp_path)) as other:
        assert list(tmp_path.iterdir()) == [other]


def test_what_can_not_be_removed_is_removed_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, private_folder(str(tmp_path)) as folder:
        (folder / "ray").mkdir()
        patched.setattr("mislabel.cluster.private_folder.shutil.rmtree", lambda *words, **options: None)
        patched.setattr("mislabel.cluster.private_folder._PAUSE_SECONDS", 0.0)
    assert folder.is_dir()
    with private_folder(str(tmp_path)) as other:
        assert list(tmp_path.iterdir()) == [other]
