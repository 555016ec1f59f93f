"""The command without a cluster; tests/cluster/head/test_head.py has the tests with one."""

from tests.sweeps.commands.conftest import Mislabel


def test_it_needs_a_cluster(mislabel: Mislabel) -> None:
    said = mislabel("cancel", "bowls")
    assert (said.code, said.out) == (2, "")
    assert "--cluster" in said.err
