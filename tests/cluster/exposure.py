"""What other users of a machine can reach of the processes that a command started: files, folders and ports."""

import http.client
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil

from mislabel.sweeps.process import Process
from tests.cluster.heads import title_of

_OTHERS = 0o077
# A method of each of Ray's gRPC servers, and one that does not exist.
_METHODS = (
    "NodeInfoGcsService/GetAllNodeInfo", "JobInfoGcsService/GetAllJobInfo", "InternalKVGcsService/InternalKVKeys",
    "NodeManagerService/GetNodeStats", "ObjectManagerService/Push", "CoreWorkerService/GetCoreWorkerStats",
    "ReporterService/GetTraceback", "RayletDriver/ClusterInfo", "NoService/NoMethod",
)  # fmt: skip
# Paths of Ray's and MLflow's HTTP servers. "/" is missing: there the dashboard asks for the token.
_PATHS = (
    "/index.html", "/metrics", "/api/jobs/", "/api/version", "/api/job_agent/jobs/", "/logs", "/nodes",
    "/get_or_create_runtime_env", "/worker/traceback", "/api/2.0/mlflow/experiments/search?max_results=1",
    "/ajax-api/2.0/mlflow/experiments/search?max_results=1", "/no/such/path",
)  # fmt: skip
_REFUSED = (401, 403)


@dataclass(frozen=True)
class Port:
    host: str
    number: int
    owner: str
    """The title of the process that listens."""

    @property
    def is_loopback(self) -> bool:
        return self.host in ("127.0.0.1", "::1", "::ffff:127.0.0.1")

    def answers_without_a_token(self) -> list[str]:
        """The requests that the server does not refuse."""
        if self._speaks_http():
            return [f"{path}: {status}" for path in _PATHS if (status := self._status(path)) not in _REFUSED]
        codes = {method: self._code(method) for method in _METHODS}
        answered = [f"{method}: {code}" for method, code in codes.items() if code not in _NO_ANSWER]
        return answered if grpc.StatusCode.UNAUTHENTICATED in codes.values() else [*answered, "no method is refused"]

    def _speaks_http(self) -> bool:
        try:
            self._status("/")
        except http.client.BadStatusLine:  # gRPC's server begins with settings of HTTP 2
            return False
        return True

    def _status(self, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.number, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def _code(self, method: str) -> grpc.StatusCode:
        with grpc.insecure_channel(f"127.0.0.1:{self.number}") as channel:
            try:
                channel.unary_unary(f"/ray.rpc.{method}")(b"", timeout=60)
            except grpc.RpcError as error:
                code: grpc.StatusCode = error.code()
                return code
        return grpc.StatusCode.OK


_NO_ANSWER = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED)


def ports_of(processes: Iterable[Process]) -> list[Port]:
    """The TCP ports on which the processes listen."""
    found = set()
    for process in processes:
        try:
            connections = psutil.Process(process.pid).net_connections("tcp")
        except psutil.NoSuchProcess:
            continue
        listening = [each.laddr for each in connections if each.status == psutil.CONN_LISTEN]
        found |= {Port(at.ip, at.port, title_of(process)) for at in listening}
    return sorted(found, key=lambda port: port.number)


def files_of(processes: Iterable[Process]) -> set[Path]:
    """Files, sockets and working directories that the processes use, without devices and installed software."""
    found: set[str] = set()
    for process in processes:
        try:
            system = psutil.Process(process.pid)
            # psutil lists neither sockets nor memory that is shared through a file.
            found |= {each.path for each in system.open_files()} | {system.cwd()}
            found |= {str(each.laddr) for each in system.net_connections("unix") if str(each.laddr).startswith("/")}
            found |= {each.path for each in system.memory_maps() if each.path.startswith("/dev/shm")}
        except (psutil.NoSuchProcess, FileNotFoundError):
            continue
    return {Path(path) for path in found if not path.endswith("(deleted)") and Path(path).exists()}


def open_to_others(path: Path) -> bool:
    """Whether other users can read, write or enter the path."""
    closed = any(not folder.stat().st_mode & _OTHERS for folder in path.parents)
    return not closed and bool(path.lstat().st_mode & _OTHERS)


def within(folder: Path) -> Iterator[Path]:
    yield folder
    yield from folder.rglob("*")
