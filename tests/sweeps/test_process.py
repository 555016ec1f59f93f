import os
import subprocess
import sys
import time
from dataclasses import asdict

from mislabel.sweeps.process import Process, numbering


def test_a_process_is_identified_by_its_number_and_start_time() -> None:
    own = Process.own()
    assert own.pid == os.getpid()
    assert own.lives
    assert Process.from_json(asdict(own)) == own
    assert not Process(own.pid, "another time").lives


def test_a_process_that_waits_to_be_reaped_does_not_live() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = Process.of(child.pid)
    deadline = time.monotonic() + 120
    while process is not None and process.lives:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert Process.of(child.pid) is None
    child.wait()


def test_process_numbers_of_this_process_and_its_children_are_the_same() -> None:
    code = "from mislabel.sweeps.process import numbering; print(numbering())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == numbering()
