"""Addresses of servers, free ports, and whether a server answers."""

import ipaddress
import re
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit

from mislabel.sweeps.errors import MislabelError, UnreachableError

ANSWER_SECONDS = 5.0
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9a-fA-F:.]+")


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, what: str) -> "Address":
        """Read host:port, with or without a scheme; `what` names the server in messages."""
        try:
            parts = urlsplit(text if "://" in text else f"//{text}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        example = "127.0.0.1:6379" if "Ray" in what else "http://127.0.0.1:8265"
        if host is None or port is None or not _HOST.fullmatch(host):
            raise MislabelError(f"{text!r} is not the address of {what}; one looks like {example}")
        return cls(host, port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach a server at the address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def answers(self, seconds: float = ANSWER_SECONDS) -> bool:
        """Whether a server listens at the address."""
        try:
            with socket.create_connection((self.host, self.port), timeout=seconds):
                return True
        except OSError:
            return False


def refuse_where_no_ray_answers(address: str) -> None:
    """UnreachableError within seconds if nothing listens there. Ray itself would try for minutes."""
    if address not in ("auto", "local") and not Address.parse(address, "a Ray cluster").answers():
        raise UnreachableError(f"no Ray cluster answers at {address}; is it up and reachable from here?")


def free_ports(host: str, count: int) -> list[int]:
    """Free ports of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket(family)) for _ in range(count)]
        for each in sockets:
            try:
                each.bind((host, 0))
            except OSError as error:
                raise MislabelError(f"{host}: not an address of this machine: {error.strerror}") from None
        return [each.getsockname()[1] for each in sockets]
