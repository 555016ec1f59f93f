import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mislabel.cluster.head_state import FOLDER, Folder, State, versions
from mislabel.cluster.jobs.client import ENTRYPOINT
from mislabel.cluster.jobs.head_job import ANSWER, RESTARTS
from mislabel.cluster.jobs.request import CommandRequest, FactsRequest, Request, SweepRequest
from mislabel.cluster.queue.queue import Queue, Ticket
from mislabel.sweeps.errors import ExitCode
from mislabel.sweeps.process import Process
from tests.bowls import bowl_spec

pytestmark = pytest.mark.server

ID = "bowls-0001"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A head's folder without the servers."""
    folder = Folder(tmp_path / "head")
    for path in (folder.queue, folder.jobs):
        path.mkdir(parents=True)
    State("127.0.0.1", "127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3", str(tmp_path / "store"), 1, "",
          versions()).write(folder)  # fmt: skip
    return folder


def job(folder: Folder, request: Request, cwd: Path | None = None, **more: str) -> "subprocess.Popen[str]":
    """The job's process, as Ray starts it."""
    config = {"metadata": {"job_submission_id": ID, "job_name": ID, **request.metadata()}}
    environment = {**os.environ, FOLDER: str(folder.path), "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(config), **more}
    command = [sys.executable, *ENTRYPOINT.split()[1:]]
    return subprocess.Popen(
        command, env=environment, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def said(process: "subprocess.Popen[str]") -> str:
    return process.communicate(timeout=120)[0]


def test_it_imports_nothing_heavy() -> None:
    script = "import mislabel.cluster.jobs.head_job, sys\n"
    script += "print([name for name in ('torch', 'ray', 'pyarrow') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


def test_it_returns_rays_address(folder: Folder) -> None:
    process = job(folder, FactsRequest())
    (line,) = said(process).splitlines()
    answer = json.loads(line.removeprefix(ANSWER))
    assert process.returncode == 0
    assert json.loads(answer["out"]) == {"ray": "127.0.0.1:1", "versions": versions()}


def test_it_runs_a_command_on_the_heads_store_and_returns_its_output(folder: Folder, tmp_path: Path) -> None:
    process = job(folder, CommandRequest(("list",)))
    (line,) = said(process).splitlines()
    answer = json.loads(line.removeprefix(ANSWER))
    assert (answer["code"], answer["out"]) == (0, "")
    assert str(tmp_path / "store") in answer["err"]


@pytest.mark.parametrize("request_", [FactsRequest(), CommandRequest(("list",))])
def test_files_of_the_working_directory_hide_no_module(folder: Folder, tmp_path: Path, request_: Request) -> None:
    for name in ("click", "mislabel", "tasks", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('wrong module')")
    process = job(folder, request_, cwd=tmp_path)
    (line,) = said(process).splitlines()
    assert json.loads(line.removeprefix(ANSWER))["code"] == 0


def test_a_head_that_was_started_otherwise_has_its_store_in_the_environment(folder: Folder, tmp_path: Path) -> None:
    folder.state.unlink()
    process = job(folder, CommandRequest(("list",)))
    assert "this head has no store; start it with `mislabel cluster up`, or set MISLABEL_STORE" in said(process)
    assert process.returncode == 2
    other = str(tmp_path / "other")
    process = job(folder, CommandRequest(("list",)), MISLABEL_STORE=other, RAY_ADDRESS="127.0.0.1:1")
    assert f"no sweeps in {other}" in said(process)
    assert process.returncode == 0


def test_a_sweep_waits_for_its_turn_and_leaves_when_it_is_told_to(folder: Folder) -> None:
    queue = Queue(folder.queue)
    busy = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        other = Ticket("other-1", "other", "ann", process=Process.of(busy.pid))
        queue.enter(other)
        assert queue.turn(other, at_once=1)
        process = job(folder, SweepRequest("bowls", bowl_spec().to_yaml(), "ben"))
        assert process.stdout is not None
        assert process.stdout.readline() == "mislabel: bowls waits in the queue, 0 ahead of it\n"
        (ticket,) = [each for each in queue.tickets() if each.sweep == "bowls"]
        assert (ticket.owner, ticket.runs) == ("ben", False)
        queue.ask_to_stop(ticket)
        assert "left the queue" in said(process)
        assert process.returncode == 130
        assert [each.sweep for each in queue.tickets()] == ["other"]
        assert list(folder.jobs.iterdir()) == []
    finally:
        busy.kill()
        busy.wait()


def test_a_wrong_spec_ends_the_job_with_the_reason(folder: Folder) -> None:
    process = job(folder, SweepRequest("bowls", "name: bowls\ntask: bwl\n", "ben"))
    assert "'bwl' is not an installed task" in said(process)
    assert process.returncode == 2


def run_with_driver(folder: Folder, tmp_path: Path, driver: str) -> "subprocess.CompletedProcess[str]":
    """The job of a sweep with this script in place of our command line."""
    fake = tmp_path / "fake" / "main.py"
    fake.parent.mkdir(parents=True)
    fake.write_text(driver)
    script = (
        "import mislabel.cluster.jobs.head_job as job, sys\n"
        f"job._MISLABEL = [sys.executable, {str(fake)!r}]\n"
        "job._PAUSE_SECONDS = 0.01\n"
        "sys.exit(job.main())\n"
    )
    config = {"metadata": {"job_submission_id": ID, **SweepRequest("bowls", bowl_spec().to_yaml(), "ben").metadata()}}
    environment = {**os.environ, FOLDER: str(folder.path), "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(config)}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)


def restarts(done: "subprocess.CompletedProcess[str]") -> int:
    assert done.returncode == 1, done.stderr
    assert "giving up" in done.stdout.splitlines()[-1]
    return sum("restarting" in line for line in done.stdout.splitlines())


def test_a_driver_that_dies_is_restarted_a_few_times(folder: Folder, tmp_path: Path) -> None:
    driver = f"import os\nos.kill(os.getpid(), {signal.SIGKILL})\n"
    assert restarts(run_with_driver(folder, tmp_path, driver)) == RESTARTS


# Raises the same error each time. In between, `status` counts the runs in the store.
FAILS = """
import json, sys
from pathlib import Path
from mislabel.cluster.jobs.crash import note_crash

counter = Path(__file__).with_name("runs")
runs = int(counter.read_text()) if counter.exists() else 0
if sys.argv[1] == "status":
    print(json.dumps({{"statuses": {{"done": runs}}}}))
    sys.exit()
counter.write_text(str(runs + {new_runs}))
try:
    raise ValueError("broken")
except ValueError as error:
    note_crash(error)
sys.exit(70)
"""


def test_a_driver_that_fails_twice_in_the_same_way_is_not_restarted_again(folder: Folder, tmp_path: Path) -> None:
    done = run_with_driver(folder, tmp_path, FAILS.format(new_runs=0))
    assert restarts(done) == 1
    assert "ValueError: broken" in done.stdout.splitlines()[-1]
    assert list(folder.queue.glob("*.crash")) == []


def test_a_driver_that_stores_runs_before_it_fails_is_restarted(folder: Folder, tmp_path: Path) -> None:
    assert restarts(run_with_driver(folder, tmp_path, FAILS.format(new_runs=1))) == RESTARTS


def test_a_driver_that_can_not_reach_ray_yet_is_restarted(folder: Folder) -> None:
    process = job(folder, SweepRequest("bowls", bowl_spec().to_yaml(), "ben"))
    assert process.stdout is not None
    assert any("restarting" in line for line in process.stdout)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
