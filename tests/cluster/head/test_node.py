import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mislabel.cluster.head.node import Joining, join
from mislabel.cluster.jobs.client import Jobs
from mislabel.sweeps.errors import MislabelError

pytestmark = pytest.mark.slow


def namespaces_can_be_made() -> bool:
    tools = all(shutil.which(tool) for tool in ("unshare", "ip"))
    return tools and subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0


def test_a_cluster_of_one_machine_can_not_be_joined(tmp_path: Path) -> None:
    with pytest.raises(MislabelError, match="can only be reached from its own machine"):
        join(Jobs("http://127.0.0.1:9", "0" * 64), tmp_path, Joining(), print)


@pytest.mark.ray
@pytest.mark.faults
@pytest.mark.skipif(not namespaces_can_be_made(), reason="needs to make a network namespace: root, unshare and ip")
def test_a_machine_joins_comes_back_when_it_was_cut_off_and_leaves(tmp_path: Path) -> None:
    """And MLflow asks for a password where others can reach it."""
    words = ["unshare", "--net", sys.executable, "-m", "tests.cluster.beyond_loopback", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stdout + done.stderr
