import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mislabel.cluster.process import descendants, end, oom_kills, start, working_directory
from mislabel.sweeps.process import Process

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
# Starts a child, prints its number, and ignores SIGTERM.
STUBBORN = (
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    f"child = subprocess.Popen({SLEEP!r})\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


def test_another_process_with_the_same_number_is_not_ended() -> None:
    child = subprocess.Popen(SLEEP)
    try:
        end([Process(child.pid, "another time")], 0.5)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_a_started_process_has_its_own_session_and_writes_to_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(
        [sys.executable, "-c", "import os; print(os.getsid(0), os.environ['WORD'])"], {"WORD": "hello"}, log
    )
    deadline = time.monotonic() + 120
    while process.lives:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert log.read_text() == f"{process.pid} hello\n"
    assert log.stat().st_mode & 0o077 == 0


def test_a_process_can_be_started_elsewhere_and_imports_as_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"here{os.pathsep}")
    script = "import os, sys; print(os.getcwd(), sys.path[1:3])"
    with working_directory("empty"):
        printed = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert printed.startswith(f"{tmp_path / 'empty'} ['{tmp_path / 'here'}', ")
    assert str(tmp_path) not in printed.split(",")[1]
    assert (Path.cwd(), os.environ["PYTHONPATH"]) == (tmp_path, f"here{os.pathsep}")


@pytest.mark.long
def test_processes_that_a_dead_process_left_behind_are_ended(tmp_path: Path) -> None:
    process = start([sys.executable, "-c", STUBBORN], os.environ, tmp_path / "log")
    deadline = time.monotonic() + 120
    while not (tmp_path / "log").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send(signal.SIGKILL)
    os.waitpid(process.pid, 0)
    (child,) = descendants([process])
    assert child.pid == int((tmp_path / "log").read_text())
    assert descendants([Process(process.pid, "of another start of the machine")]) == []
    end([process], 0.5)
    assert not child.lives


@pytest.mark.long
def test_a_process_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    process = start([sys.executable, "-c", STUBBORN], os.environ, tmp_path / "log")
    deadline = time.monotonic() + 120
    while not (tmp_path / "log").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (child,) = descendants([process])
    assert child.pid == int((tmp_path / "log").read_text())
    end([process], 0.5)
    assert not process.lives
    assert not child.lives
    process.send(signal.SIGTERM)  # it has ended


def test_the_system_counts_processes_killed_for_memory() -> None:
    assert oom_kills() >= 0
