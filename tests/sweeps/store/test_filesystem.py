import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyarrow import fs

from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.store.filesystem import FileSystem, as_store_errors, opened, within

LOCAL = FileSystem(fs.LocalFileSystem())


def test_a_file_is_written_with_its_folders_and_read_back(tmp_path: Path) -> None:
    path = f"{tmp_path}/a/b/c.json"
    LOCAL.put(path, b"first")
    LOCAL.put(path, b"second")
    assert LOCAL.get(path) == b"second"
    assert LOCAL.is_file(path)
    assert [info.base_name for info in LOCAL.listed(f"{tmp_path}/a/b")] == ["c.json"]


def test_a_missing_file_or_folder_reads_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert LOCAL.get(f"{tmp_path}/no/such") is None
    assert LOCAL.get(f"{tmp_path}/file/inside") is None
    assert LOCAL.listed(f"{tmp_path}/no") == []
    assert not LOCAL.is_file(f"{tmp_path}")
    assert not LOCAL.is_file(f"{tmp_path}/no")


@pytest.mark.faults
def test_a_folder_can_be_listed_while_its_files_are_replaced_and_removed(tmp_path: Path) -> None:
    ended = threading.Event()

    def change() -> None:
        while not ended.is_set():
            LOCAL.put(f"{tmp_path}/changing", b"x")
            LOCAL.remove(f"{tmp_path}/changing")

    LOCAL.put(f"{tmp_path}/staying", b"12345")
    writer = threading.Thread(target=change)
    writer.start()
    try:
        for _ in range(1000):
            assert [info.size for info in LOCAL.listed(str(tmp_path)) if info.base_name == "staying"] == [5]
    finally:
        ended.set()
        writer.join()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    LOCAL.put(f"{tmp_path}/a", b"old")
    with pytest.raises(TypeError):
        LOCAL.put(f"{tmp_path}/a", "not bytes")  # type: ignore[arg-type]
    assert LOCAL.get(f"{tmp_path}/a") == b"old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("nested", ["a", "a/b/c"])
def test_other_file_systems_are_written_too(tmp_path: Path, nested: str) -> None:
    in_memory = FileSystem(fs.FileSystem.from_uri("mock:///")[0])
    below_a_folder = FileSystem(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    for filesystem in (in_memory, below_a_folder):
        filesystem.put(nested, b"data")
        assert filesystem.get(nested) == b"data"
        assert filesystem.get("missing") is None


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "the disk is full; free some space"),
        (errno.EACCES, "--store"),
        (errno.EROFS, "--store"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_disk_error_says_what_to_do(code: int, advice: str) -> None:
    with pytest.raises(StoreError) as caught, as_store_errors("results"):
        raise OSError(code, os.strerror(code))
    assert str(caught.value).startswith("results: ")
    assert advice in str(caught.value)


WRITE = """
import sys
from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.store.store import Store
files = Store(sys.argv[1]).sweep("a")
try:
    files.write_text("small", "kept")
    files.write_text("large", "x" * 1_000_000)
except StoreError as error:
    print(error)
"""


def in_own_mount(tmp_path: Path, options: str, script: str) -> str:
    """The output of the script if the folder is a separate file system that only this process sees."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare, to mount a file system without being root")
    folder = tmp_path / "mounted"
    folder.mkdir()
    (tmp_path / "script.py").write_text(script)
    command = f"mount -t tmpfs {options} tmpfs {folder} && exec {sys.executable} {tmp_path}/script.py {folder}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, cwd=os.getcwd())
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"may not mount a file system here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.faults
def test_a_full_disk_is_named_and_leaves_no_half_file(tmp_path: Path) -> None:
    script = WRITE + "import os; print(sorted(os.listdir(sys.argv[1] + '/a')))"
    error, left = in_own_mount(tmp_path, "-o size=256k", script).splitlines()
    assert "/a: the disk is full" in error
    assert left == "['small']"


@pytest.mark.faults
def test_a_read_only_disk_is_named(tmp_path: Path) -> None:
    (error,) = in_own_mount(tmp_path, "-o ro", WRITE).splitlines()
    assert "/a: " in error
    assert "--store" in error


@pytest.mark.long
@pytest.mark.faults
def test_a_limit_on_the_size_of_files_is_named(tmp_path: Path) -> None:
    limited = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    )
    command = [sys.executable, "-c", limited + WRITE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/a: the file size limit is reached; raise it, then run the same command again\n"
    assert os.listdir(tmp_path / "a") == ["small"]


# Object stores; those that answer are in tests/cluster/test_object_store.py


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("results", "results/a"),
        ("/results?/", "/results?/a"),
        ("s3://bucket/path/", "s3://bucket/path/a"),
        ("s3://bucket?region=here", "s3://bucket/a?region=here"),
    ],
)
def test_options_come_after_the_path(address: str, inside: str) -> None:
    assert within(address, "a") == inside


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(StoreError, match=r"^s3://…@bucket/path: .*AWS_ACCESS_KEY_ID") as caught:
        opened("s3://key:secret@bucket/path")
    assert "secret" not in str(caught.value)


class Moody:
    """A file system that fails a few times before it answers."""

    def __init__(self, *errors: str) -> None:
        self.errors = list(errors)

    def get_file_info(self, path: str) -> fs.FileInfo:
        if self.errors:
            raise OSError(f"When getting information: AWS Error {self.errors.pop(0)} during HeadObject operation")
        return fs.FileInfo(path, fs.FileType.File)


def test_temporary_failures_are_retried_and_others_are_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    assert FileSystem(Moody("SLOW_DOWN", "NETWORK_CONNECTION", "UNKNOWN (HTTP status 503)")).is_file("a")
    assert [0.25 <= pauses[0] <= 0.5, 0.5 <= pauses[1] <= 1.0, 1.0 <= pauses[2] <= 2.0] == [True] * 3
    with pytest.raises(StoreError, match="ACCESS_DENIED"):
        FileSystem(Moody("ACCESS_DENIED")).is_file("a")
    with pytest.raises(OSError, match="NO_SUCH_UPLOAD"):
        FileSystem(Moody("NO_SUCH_UPLOAD")).is_file("a")
    assert len(pauses) == 3
    with pytest.raises(StoreError, match="SLOW_DOWN"):
        FileSystem(Moody("SLOW_DOWN")).with_patience(0).is_file("a")


class Unsteady:
    """Stands for os.fsync on a network file system whose server is away for a few calls."""

    def __init__(self, failures: int, code: int) -> None:
        self.failures, self.code = failures, code

    def __call__(self, descriptor: int) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise OSError(self.code, os.strerror(self.code))


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_a_folder_whose_server_is_away_for_a_moment_is_written(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("os.fsync", Unsteady(3, code))
    LOCAL.put(f"{tmp_path}/a", b"new")
    monkeypatch.setattr("os.fsync", Unsteady(1, code))
    assert LOCAL.create(f"{tmp_path}/b", b"new")
    assert LOCAL.get(f"{tmp_path}/a") == LOCAL.get(f"{tmp_path}/b") == b"new"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_folder_whose_server_stays_away_fails_and_a_full_disk_fails_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    for code, attempts in ((errno.EIO, 6), (errno.ENOSPC, 1)):
        monkeypatch.setattr("os.fsync", Unsteady(100, code))
        with pytest.raises(OSError, match=os.strerror(code)):
            LOCAL.put(f"{tmp_path}/a", b"new")
        assert len(pauses) == attempts - 1
        pauses.clear()


@pytest.mark.long
def test_a_request_that_never_ends_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mislabel.sweeps.store.filesystem._HUNG_SECONDS", 0.5)
    given_up = threading.Event()

    class Hung:
        def get_file_info(self, path: str) -> None:
            given_up.wait(120)

    with pytest.raises(StoreError, match=r"no answer within"):
        FileSystem(Hung(), patience_seconds=0).is_file("a")
    given_up.set()
