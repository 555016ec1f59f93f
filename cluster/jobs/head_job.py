"""The process of one job on the head: `python -P -m mislabel.cluster.jobs.head_job`. The metadata contains the request.

For a sweep, this small process waits in the queue, then runs the driver as its child. It restarts a driver that dies:
the next one continues from the store. A driver that fails twice in the same way, without a new run in the store, is not
restarted again. The process keeps running when the client disconnects.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType

from mislabel.cluster.head_state import Folder, State, head_state
from mislabel.cluster.jobs.crash import take_crash
from mislabel.cluster.jobs.request import CommandRequest, FactsRequest, SweepRequest, is_id, request_from_metadata
from mislabel.cluster.queue.queue import Queue, Ticket
from mislabel.cluster.ray_private import job_metadata
from mislabel.cluster.secret import write_private
from mislabel.sweeps.errors import TICKET, ExitCode, MislabelError
from mislabel.sweeps.process import Process
from mislabel.sweeps.redaction import redacted

ANSWER = "mislabel answers "
"""The start of the log line with a command's output."""
# Give up after this many restarts in a row. A driver that ran for a while resets the count.
RESTARTS = 5
_LONG_RUN_SECONDS = 600.0
_PAUSE_SECONDS = 2.0
_POLL_SECONDS = 0.5
# -P, and an empty working directory: no file of that directory can hide a module of the same name, here or in Ray's
# workers, which import from the working directory of their driver.
_MISLABEL = [sys.executable, "-P", "-m", "mislabel.sweeps.commands.main"]


def main() -> int:
    metadata, environment = job_metadata(os.environ)
    folder = Folder.here()
    try:
        state = head_state(folder)
        if state is None:
            raise MislabelError("this head has no store; start it with `mislabel cluster up`, or set MISLABEL_STORE")
        environment |= {"MISLABEL_STORE": state.store}
        environment |= {"MLFLOW_TRACKING_URI": state.mlflow} if state.mlflow else {}
        environment |= state.mlflow_environment(folder)
        match request_from_metadata(metadata):
            case FactsRequest():
                facts = {"ray": state.ray, "versions": state.versions}
                return _answer(ExitCode.DONE, json.dumps(facts), "")
            case CommandRequest(words):
                return _run_command(words, environment)
            case SweepRequest() as request:
                id = metadata.get("job_submission_id", "")
                if not is_id(id):
                    raise MislabelError(f"{id!r} is not the id of a job")
                return SweepJob(id, request, state, folder, environment).run()
    except MislabelError as error:
        _say(str(error))
        return error.exit_code


def _say(text: str) -> None:
    print(f"mislabel: {redacted(text)}", flush=True)  # noqa: T201


def _run_command(words: tuple[str, ...], environment: Mapping[str, str]) -> int:
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [*_MISLABEL, *words], env=dict(environment), cwd=empty, capture_output=True, text=True, check=False
        )
    return _answer(done.returncode, done.stdout, done.stderr)


def _answer(code: int, out: str, err: str) -> int:
    print(ANSWER + json.dumps({"code": code, "out": out, "err": err}), flush=True)  # noqa: T201
    return ExitCode.DONE


class SweepJob:
    def __init__(
        self, id: str, request: SweepRequest, state: State, folder: Folder, environment: Mapping[str, str]
    ) -> None:
        for path in (folder.queue, folder.jobs):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._request = request
        self._state = state
        self._queue = Queue(folder.queue)
        self._ticket = Ticket(id, request.name, request.owner, request.priority, time.time(), process=Process.own())
        self._spec = folder.jobs / f"{id}.yaml"
        # Temporary files go here, so that they are removed even if the driver is killed.
        self._scratch = folder.jobs / f"{id}.tmp"
        self._empty = self._scratch / "empty"
        self._environment = {**environment, TICKET: str(folder.queue / f"{id}.json"), "TMPDIR": str(self._scratch)}
        self._ending = False
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run until the sweep has ended, and return its exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        self._queue.enter(self._ticket)
        try:
            write_private(self._spec, self._request.spec)
            self._scratch.mkdir(mode=0o700)
            self._empty.mkdir()
            return self._run_in_turn()
        finally:
            self._queue.leave(self._ticket)
            self._spec.unlink(missing_ok=True)
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Pass the signal on: at the first one, packs save checkpoints; at the second one, the driver ends at once."""
        self._ending = True
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)

    def _run_in_turn(self) -> int:
        if not self._waited():
            _say(f"{self._request.name} left the queue; nothing was run")
            return ExitCode.INTERRUPTED
        deaths, last = 0, None
        while True:
            began = time.monotonic()
            code = self._driven()
            crashed = code < 0 or code == ExitCode.CRASHED
            if not crashed or self._ending:
                return ExitCode.INTERRUPTED if crashed else code
            deaths = 1 if time.monotonic() - began > _LONG_RUN_SECONDS else deaths + 1
            before, last = last, self._failure()
            if last is not None and last == before:
                _say(f"the driver of {self._request.name} failed again in the same way, {last[0]}; giving up")
                return ExitCode.FAILED
            how = f"by signal {-code}" if code < 0 else "with an error"
            if deaths > RESTARTS:
                _say(f"the driver of {self._request.name} died {how}, after {deaths - 1} restarts; giving up")
                return ExitCode.FAILED
            _say(f"the driver of {self._request.name} died {how}; restarting it from the store")
            time.sleep(_PAUSE_SECONDS * deaths)

    def _failure(self) -> tuple[str, str, int] | None:
        """The error that ended the driver, its place, and how many runs the store has; None if it was killed."""
        crash = take_crash(Path(self._environment[TICKET]))
        if crash is None:
            return None
        words = [*_MISLABEL, "status", self._request.name, "--json"]
        asked = subprocess.run(
            words, env=self._environment, cwd=self._empty, capture_output=True, text=True, check=False
        )
        runs = 0
        with suppress(ValueError, KeyError):
            runs = sum(json.loads(asked.stdout)["statuses"].values())
        return crash.error, crash.place, runs

    def _waited(self) -> bool:
        """Wait until the sweep may run; False if it is stopped while it waits."""
        said = None
        while not self._ending and not self._queue.is_asked_to_stop(self._ticket):
            if ticket := self._queue.turn(self._ticket, self._state.at_once):
                self._ticket = ticket
                return True
            before = self._queue.places(self._state.at_once).get(self._ticket.id, 0)
            if before != said:
                _say(f"{self._request.name} waits in the queue, {before} ahead of it")
                said = before
            time.sleep(_POLL_SECONDS)
        return False

    def _driven(self) -> int:
        """Run the driver, and return its exit code."""
        words = ["run", str(self._spec), "--address", self._state.ray]
        words += ["--retry-failed"] if self._request.retry_failed else []
        self._child = subprocess.Popen([*_MISLABEL, *words], env=self._environment, cwd=self._empty)
        while True:
            try:
                return self._child.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if not self._ending and self._queue.is_asked_to_stop(self._ticket):
                    self._on_signal(signal.SIGTERM, None)


if __name__ == "__main__":
    sys.exit(main())
