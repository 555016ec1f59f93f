import os
import subprocess
import sys

import pytest

from mislabel.cluster.tune.runner import configured


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
