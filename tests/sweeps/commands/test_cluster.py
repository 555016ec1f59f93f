"""What can be said without a cluster; with one, see tests/cluster/test_service.py."""

import time
from pathlib import Path

import pytest

from mislabel.cluster.address import free_ports
from mislabel.cluster.secret import make_secret
from tests.sweeps.commands.conftest import Mislabel


def test_without_a_cluster_there_is_none_to_show_or_to_end(mislabel: Mislabel) -> None:
    said = mislabel("cluster", "status")
    assert (said.code, said.out) == (2, "")
    assert "no cluster runs on this machine; `mislabel cluster up` starts one" in said.err
    said = mislabel("cluster", "down")
    assert (said.code, said.err) == (0, "no cluster runs on this machine\n")


def test_a_host_that_is_not_this_machines_is_refused_and_nothing_is_left(mislabel: Mislabel, folder: Path) -> None:
    said = mislabel("cluster", "up", "--host", "192.0.2.200")
    assert said.code == 2
    assert "192.0.2.200: not an address of this machine" in said.err
    assert not (folder / "no-cluster" / "state.json").exists()
    assert not (folder / "no-cluster" / "token").exists()


@pytest.mark.parametrize(
    "words", [("cluster", "join", "ADDRESS"), ("list", "--cluster", "ADDRESS"), ("logs", "x", "--cluster", "ADDRESS")]
)
def test_an_address_where_nothing_answers_is_told_within_seconds(
    mislabel: Mislabel, folder: Path, words: tuple[str, ...]
) -> None:
    make_secret(folder / "token")
    address = f"http://127.0.0.1:{free_ports('127.0.0.1', 1)[0]}"
    began = time.monotonic()
    said = mislabel(*(address if word == "ADDRESS" else word for word in words), "--token-file", str(folder / "token"))
    assert said.code == 2
    assert address in said.err
    assert time.monotonic() - began < 10
