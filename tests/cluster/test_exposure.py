"""Other users of the machine can neither read nor use what `mislabel run` and `mislabel cluster up` start."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from mislabel.cluster.process import descendants, end
from mislabel.sweeps.process import Process
from tests.bowls import bowl_values
from tests.cluster.exposure import files_of, open_to_others, ports_of, within
from tests.cluster.heads import DRIFT, MISLABEL, head, title_of, until
from tests.pace import Pace

pytestmark = [pytest.mark.ray, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
SOFTWARE = (ROOT, Path(sys.prefix), Path(sys.base_prefix), Path("/proc"), Path("/sys"), Path("/usr"), Path("/lib"))
HELD = bowl_values(parameters={"x": {"values": [0.0, 1.0]}, "steps": 2000}, seeds=4)


@dataclass(frozen=True)
class Started:
    family: list[Process]
    created: list[Path]
    """The folders in which it may create files: home, and the one for temporary files."""
    store: Path


@contextmanager
def a_local_run(path: Path, pace: Pace) -> Iterator[Started]:
    """A `mislabel run` in the middle of its packs, with a home and a folder for temporary files of its own."""
    spec, store = path / "bowls.yaml", path / "store"
    spec.write_text(yaml.safe_dump(HELD))
    folders = {"HOME": path / "home", "TMPDIR": path / "tmp"}
    for folder in folders.values():
        folder.mkdir()
    plain = {name: value for name, value in os.environ.items() if not name.startswith(DRIFT)}
    pace.hold()
    log_file = path / "home" / "log"
    log_file.touch(mode=0o600)
    with log_file.open("wb") as log:
        driver = subprocess.Popen(
            [MISLABEL, "run", str(spec), "--store", str(store)], cwd=path / "home", stdout=log, stderr=log,
            env={**plain, **{name: str(folder) for name, folder in folders.items()}},
        )  # fmt: skip
    process = Process.of(driver.pid)
    assert process is not None
    try:
        until(lambda: _trains(process), 240, log_file.read_text)
        yield Started([process, *descendants([process])], list(folders.values()), store)
    finally:
        family = [process, *descendants([process])]
        driver.kill()
        driver.wait()
        end(family, 10)


def _trains(driver: Process) -> bool:
    assert driver.lives
    return any("Trainable" in title_of(each) for each in descendants([driver]))


@contextmanager
def a_cluster(path: Path) -> Iterator[Started]:
    """A cluster on this machine that runs a sweep."""
    with head(path, "--cpus", "1") as cluster:
        cluster.pace.hold()
        cluster.submit(cluster.write_spec(**HELD))
        servers = list(cluster.state.processes.values())
        until(lambda: any("Trainable" in title_of(each) for each in descendants(servers)), 240)
        created = [cluster.folder.path, Path(cluster.state.ray_folder)]
        yield Started([*servers, *descendants(servers)], created, Path(cluster.state.store))


def assert_not_exposed(started: Started) -> None:
    ports = ports_of(started.family)
    assert len(ports) > 5
    assert [port for port in ports if not port.is_loopback] == []
    answers = {f"{port.number} ({port.owner[:60]})": port.answers_without_a_token() for port in ports}
    assert {port: answer for port, answer in answers.items() if answer} == {}
    used = files_of(started.family)
    sockets = [path for path in used if path.is_socket()]
    assert sockets, "Ray's own sockets are among them"
    created = [path for folder in started.created for path in within(folder)]
    # The store has the permissions that its owner's umask gives it.
    ours = {path for path in {*used, *created} if not path.is_relative_to(started.store)}
    found = [path for path in ours if not any(path.is_relative_to(each) for each in SOFTWARE)]
    assert len(found) > 10
    assert sorted(str(path) for path in found if path not in started.created and open_to_others(path)) == []


def test_a_local_run_is_closed_to_other_users(pace: Pace) -> None:
    # Not pytest's folder, which other users can't enter.
    with tempfile.TemporaryDirectory(prefix="exposed-") as folder:
        Path(folder).chmod(0o755)
        with a_local_run(Path(folder), pace) as started:
            assert_not_exposed(started)


def test_a_cluster_is_closed_to_other_users() -> None:
    with tempfile.TemporaryDirectory(prefix="exposed-") as folder:
        Path(folder).chmod(0o755)
        with a_cluster(Path(folder)) as started:
            assert_not_exposed(started)
