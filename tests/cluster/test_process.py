import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mislabel.cluster.process import Process, descendants, end, start, working_directory

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
# Starts a child, says its number, and ends at nothing but force.
STUBBORN = (
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    f"child = subprocess.Popen({SLEEP!r})\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


def test_a_process_is_known_by_its_number_and_its_start() -> None:
    own = Process.own()
    assert own.pid == os.getpid()
    assert own.lives
    assert Process.from_json(own.to_json()) == own
    assert not Process(own.pid, "another time").lives


def test_another_process_of_the_same_number_is_not_ended() -> None:
    child = subprocess.Popen(SLEEP)
    try:
        end([Process(child.pid, "another time")], 0.5)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_a_process_that_has_ended_but_was_not_waited_for_does_not_live() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = Process.of(child.pid)
    deadline = time.monotonic() + 120
    while process is not None and process.lives:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert Process.of(child.pid) is None
    child.wait()


def test_a_started_process_has_a_session_of_its_own_and_writes_to_its_log(tmp_path: Path) -> None:
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


def test_what_a_dead_process_has_left_behind_is_found_and_ended(tmp_path: Path) -> None:
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


def test_what_does_not_end_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
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
    process.send(signal.SIGTERM)  # nobody is there any more
