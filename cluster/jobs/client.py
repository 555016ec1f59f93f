"""A client of Ray's job server over HTTP, which submits sweeps and reads their state.

It imports neither Ray nor torch: commands start fast, and a laptop does not need the cluster's version of Ray.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from mislabel.cluster.address import Address
from mislabel.cluster.head_state import Folder, read_state
from mislabel.cluster.secret import read_secret
from mislabel.sweeps.errors import MislabelError, UnreachableError

ENTRYPOINT = "python -P -m mislabel.cluster.jobs.head_job"
"""The command of every job. All else is in its metadata, which no shell reads."""
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_SECONDS = 30.0
_TOKEN_REFUSED = (401, 403)


@dataclass(frozen=True)
class Job:
    id: str
    status: str
    metadata: dict[str, str]
    began: float
    code: int | None
    """The exit code of its process."""
    message: str

    @property
    def ended(self) -> bool:
        return self.status in ENDED


class Jobs:
    def __init__(self, address: str, token: str) -> None:
        self.address = Address.parse(address, "a job server")
        self._headers = {"Authorization": f"Bearer {token}"}

    @classmethod
    def reached(cls, address: str | None, token_file: str | None) -> "Jobs":
        """The job server at the address, by default of this machine's cluster."""
        folder = Folder.here()
        state = read_state(folder)
        if not address:
            if state is None:
                raise MislabelError(
                    "no cluster is given; use --cluster http://HOST:PORT (or MISLABEL_CLUSTER), or start one "
                    "on this machine with `mislabel cluster up`"
                )
            address = state.jobs
        at = Address.parse(address, "a job server")
        if not token_file and not (state and Address.parse(state.jobs, "a job server") == at):
            raise MislabelError(
                f"the cluster at {at} needs its token: give the file with --token-file or MISLABEL_TOKEN_FILE; "
                "on the head's machine it is ~/.local/state/mislabel/cluster/token"
            )
        found = cls(address, read_secret(Path(token_file) if token_file else folder.token))
        found.check()
        return found

    @classmethod
    def of_folder(cls, folder: Folder) -> "Jobs":
        """The job server of the cluster whose head is this machine."""
        state = read_state(folder)
        assert state is not None
        return cls(state.jobs, read_secret(folder.token))

    def check(self) -> None:
        """Raise within seconds if no server answers, or if it refuses the token."""
        if not self.address.answers():
            raise UnreachableError(f"no cluster answers at {self.address.url}; is it up and reachable from here?")
        self._asked("GET", "/api/version")

    def is_ready(self) -> bool:
        try:
            self._asked("GET", "/api/jobs/", seconds=5.0)
        except MislabelError:
            return False
        return True

    def submit(self, id: str, metadata: dict[str, str]) -> None:
        self._asked("POST", "/api/jobs/", {"entrypoint": ENTRYPOINT, "submission_id": id, "metadata": metadata})

    def list(self) -> list[Job]:
        """Mislabel's jobs, newest first."""
        found = [_job(values) for values in self._asked("GET", "/api/jobs/") if values.get("submission_id")]
        ours = [job for job in found if "mislabel" in job.metadata]
        return sorted(ours, key=lambda job: job.began, reverse=True)

    def get(self, id: str) -> Job:
        return _job(self._asked("GET", f"/api/jobs/{quote(id, safe='')}"))

    def stop(self, id: str) -> None:
        """Send SIGTERM to the job's processes, and SIGKILL three seconds later."""
        self._asked("POST", f"/api/jobs/{quote(id, safe='')}/stop")

    def delete(self, id: str) -> None:
        self._asked("DELETE", f"/api/jobs/{quote(id, safe='')}")

    def logs(self, id: str) -> str:
        return str(self._asked("GET", f"/api/jobs/{quote(id, safe='')}/logs")["logs"])

    def follow(self, id: str) -> Iterator[str]:
        """The job's output from its start, as it is written, until the job ends or the connection is lost."""
        import asyncio

        with asyncio.Runner() as runner:
            tail = self._tail(id)
            while (text := runner.run(anext(tail, None))) is not None:
                yield text

    async def _tail(self, id: str) -> Any:
        import aiohttp

        url = f"{self.address.url}/api/jobs/{quote(id, safe='')}/logs/tail"
        try:
            async with (
                aiohttp.ClientSession(headers=self._headers) as session,
                session.ws_connect(url, heartbeat=_SECONDS) as socket,
            ):
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        yield message.data
        except aiohttp.ClientError as error:
            raise UnreachableError(f"the cluster at {self.address.url} closed the connection: {error}") from None

    def _asked(self, method: str, path: str, body: Any = None, seconds: float = _SECONDS) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        request = Request(f"{self.address.url}{path}", data, headers, method=method)
        try:
            with urlopen(request, timeout=seconds) as answer:
                return json.loads(answer.read())
        except HTTPError as error:
            kind = MislabelError if error.code in _TOKEN_REFUSED else UnreachableError
            raise kind(f"the cluster at {self.address.url} {_refusal(error)}") from None
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise UnreachableError(f"the cluster at {self.address.url} does not answer: {reason}") from None


def _refusal(error: HTTPError) -> str:
    if error.code in _TOKEN_REFUSED:
        return "refuses this token; each start of a cluster creates a new one"
    text = error.read(4000).decode(errors="replace").strip()
    return f"answers with {error.code}: {text.splitlines()[-1] if text else error.reason}"


def _job(values: dict[str, Any]) -> Job:
    return Job(
        id=values["submission_id"],
        status=values["status"],
        metadata=values.get("metadata") or {},
        began=(values.get("start_time") or 0) / 1000,
        code=values.get("driver_exit_code"),
        message=values.get("message") or "",
    )
