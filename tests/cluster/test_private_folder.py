import subprocess
import sys
from pathlib import Path

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
