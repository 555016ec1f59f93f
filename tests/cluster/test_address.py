import socket

import pytest

from mislabel.cluster.address import Address, free_ports, refuse_where_no_ray_answers
from mislabel.sweeps.errors import MislabelError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("http://127.0.0.1:8265", "127.0.0.1", 8265),
        ("http://head.example.org:80/", "head.example.org", 80),
        ("10.0.0.1:6379", "10.0.0.1", 6379),
        ("[::1]:6379", "::1", 6379),
    ],
)
def test_addresses_are_read_with_and_without_a_scheme(text: str, host: str, port: int) -> None:
    address = Address.parse(text, "a job server")
    assert address == Address(host, port)
    assert Address.parse(address.url, "a job server") == address


@pytest.mark.parametrize("text", ["", "nonsense", "http://", "host:port", "http://a b:80", "host:99999", "http://-x:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(MislabelError, match="is not the address of a job server; one looks like"):
        Address.parse(text, "a job server")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.0.0.2", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("::", False)],
)
def test_loopback_is_what_only_this_machine_can_reach(host: str, loopback: bool) -> None:
    assert Address(host, 80).is_loopback is loopback


def test_a_server_answers_and_a_free_port_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert Address("127.0.0.1", server.getsockname()[1]).answers()
    ports = free_ports("127.0.0.1", 5)
    assert len(set(ports)) == 5
    assert not Address("127.0.0.1", ports[0]).answers()


def test_a_host_that_is_not_ours_has_no_free_ports() -> None:
    with pytest.raises(MislabelError, match=r"192\.0\.2\.200: not an address of this machine"):
        free_ports("192.0.2.200", 1)


def test_a_ray_that_is_not_there_is_told_within_seconds() -> None:
    with pytest.raises(MislabelError, match="no Ray cluster answers at"):
        refuse_where_no_ray_answers(f"127.0.0.1:{free_ports('127.0.0.1', 1)[0]}")
