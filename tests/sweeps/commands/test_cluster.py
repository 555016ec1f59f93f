"""Commands without a cluster; tests/cluster/head/test_head.py has the tests with one."""

from pathlib import Path

import pytest

from mislabel.cluster.address import free_ports
from mislabel.cluster.secret import make_secret
from tests.sweeps.commands.conftest import Mislabel


def test_without_a_cluster_status_is_refused_and_down_does_nothing(mislabel: Mislabel) -> None:
    said = mislabel("cluster", "status")
    assert (said.code, said.out) == (2, "")
    assert "mislabel cluster up" in said.err
    said = mislabel("cluster", "down")
    assert (said.code, said.out) == (0, "")


def test_a_host_of_another_machine_is_refused_and_leaves_no_files(mislabel: Mislabel, folder: Path) -> None:
    said = mislabel("cluster", "up", "--host", "192.0.2.200")
    assert said.code == 2
    assert "192.0.2.200" in said.err
    assert not (folder / "no-cluster" / "state.json").exists()
    assert not (folder / "no-cluster" / "token").exists()


@pytest.mark.parametrize(
    "words", [("cluster", "join", "ADDRESS"), ("list", "--cluster", "ADDRESS"), ("logs", "x", "--cluster", "ADDRESS")]
)
def test_an_address_where_nothing_answers_is_reported_within_seconds(
    mislabel: Mislabel, folder: Path, words: tuple[str, ...]
) -> None:
    make_secret(folder / "token")
    address = f"http://127.0.0.1:{free_ports('127.0.0.1', 1)[0]}"
    said = mislabel(*(address if word == "ADDRESS" else word for word in words), "--token-file", str(folder / "token"))
    assert said.code == 2
    assert address in said.err
