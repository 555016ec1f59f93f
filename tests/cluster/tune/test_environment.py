import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mislabel.cluster.ray_private import servers, started_processes
from mislabel.cluster.tune.runner import configured, connected


@pytest.mark.long
def test_importing_the_runner_leaves_the_environment_alone() -> None:
    script = "import os; before = dict(os.environ); import mislabel.cluster.tune.runner\n"
    script += "print(sorted(name for name in os.environ if name.startswith(('RAY_', 'TUNE_')) and name not in before))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


def test_the_variables_are_set_in_the_body_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "7")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.delenv("TUNE_DISABLE_SIGINT_HANDLER", raising=False)
    before = dict(os.environ)
    with configured():
        assert os.environ["TUNE_DISABLE_SIGINT_HANDLER"] == "1"
        assert os.environ["TUNE_GLOBAL_CHECKPOINT_S"] != "7"
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1", "the user's choice counts"
        with configured():
            pass
        assert os.environ["TUNE_DISABLE_SIGINT_HANDLER"] == "1"
    assert dict(os.environ) == before


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_local_ray_has_its_own_token_and_leaves_that_of_the_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray is imported before its token is chosen, as in a notebook."""
    import ray
    from ray import _raylet

    raylet: Any = _raylet
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of-the-user")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    before = dict(os.environ)
    with connected(None):
        token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
        assert raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN
        assert raylet.AuthenticationTokenLoader.instance().get_raw_token() == token.read_text()
        assert token.stat().st_mode & 0o777 == 0o600
        assert token.parent.stat().st_mode & 0o777 == 0o700
        assert ray.util.get_node_ip_address() == "127.0.0.1"
        assert all(server.is_loopback and server.answers() for server in servers())
        started = started_processes()
        assert len(started) > 2
    assert dict(os.environ) == before
    assert raylet.get_authentication_mode() == raylet.AuthenticationMode.DISABLED
    assert not token.parent.exists()
    assert [process for process in started if process.lives] == []
