"""Run a command on a cluster's head, where the store is, and return its output."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mislabel.cluster.jobs.client import Job, Jobs
from mislabel.cluster.jobs.head_job import ANSWER
from mislabel.cluster.jobs.request import CommandRequest, FactsRequest, Request, new_id
from mislabel.sweeps.errors import MislabelError, nearest

_POLL_SECONDS = 0.3
_LONGEST_SECONDS = 600.0


@dataclass(frozen=True)
class Answer:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


def run_there(jobs: Jobs, words: Sequence[str]) -> Answer:
    """Run the command on the head; MislabelError if clients may not run it."""
    return _asked(jobs, CommandRequest(tuple(words)), words[0])


def facts(jobs: Jobs) -> dict[str, Any]:
    """Ray's address and the head's versions."""
    told: dict[str, Any] = json.loads(_asked(jobs, FactsRequest(), "facts").out)
    return told


def _asked(jobs: Jobs, request: Request, name: str) -> Answer:
    id = new_id(f"ask-{name}")
    jobs.submit(id, request.metadata())
    deadline = time.monotonic() + _LONGEST_SECONDS
    while not (job := jobs.get(id)).ended:
        if time.monotonic() > deadline:
            raise MislabelError(f"the cluster at {jobs.address.url} takes too long to answer")
        time.sleep(_POLL_SECONDS)
    lines = jobs.logs(id).splitlines()
    jobs.delete(id)
    for line in lines:
        if line.startswith(ANSWER):
            return Answer(**json.loads(line.removeprefix(ANSWER)))
    said = next((line for line in reversed(lines) if line.startswith("mislabel: ")), job.message or job.status)
    raise MislabelError(f"the cluster at {jobs.address.url}: {said.removeprefix('mislabel: ')}")


def job_of(jobs: Jobs, name: str, live: bool = False) -> Job:
    """The last job of this sweep, or the job with this id. With `live`, only jobs that have not ended."""
    found = [job for job in jobs.list() if job.metadata.get("kind") == "sweep"]
    for job in found:
        if name in (job.id, job.metadata.get("sweep")) and not (live and job.ended):
            return job
    names = sorted({job.metadata["sweep"] for job in found if not (live and job.ended)})
    what = "running or waiting" if live else "known"
    known = nearest(name, names) or (f"; there are {', '.join(names)}" if names else f"; no sweep is {what} there")
    raise MislabelError(f"{name!r} is not a sweep that is {what} to the cluster at {jobs.address.url}{known}")
