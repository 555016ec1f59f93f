"""Without a cluster; with one, see tests/cluster/test_service.py."""

from tests.sweeps.commands.conftest import Mislabel


def test_a_cluster_must_be_named_where_none_runs(mislabel: Mislabel) -> None:
    said = mislabel("cancel", "bowls")
    assert (said.code, said.out) == (2, "")
    assert "which cluster? name one with --cluster http://HOST:PORT" in said.err
