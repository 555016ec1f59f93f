"""Folders of users that contain `tasks.py`, `analysis/`, `sweeps.py` and `cluster/queue/`: ours are imported anyway."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mislabel import load
from tests.bowls import bowl_values
from tests.cluster.heads import MISLABEL, head

# Importing any of these raises, so a run that imports one fails.
SHADOWS = ("tasks.py", "sweeps.py", "analysis/__init__.py", "cluster/__init__.py", "cluster/queue/__init__.py")
SPEC = bowl_values(name="shadowed", parameters={"x": {"values": [0.0, 1.0]}}, seeds=2)


def _shadow(folder: Path) -> None:
    for name in SHADOWS:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"raise RuntimeError('imported the user\\'s {name}')\n")
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _shadow(tmp_path)
    return tmp_path


def _python(folder: Path, code: str) -> str:
    """What the code prints in a Python that has the working directory on its path, as notebooks do."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_shadows_are_imported_without_the_prefix(folder: Path) -> None:
    """So the other tests of this file can fail."""
    for name in ("tasks", "sweeps", "analysis", "cluster"):
        done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=folder, capture_output=True, check=False)
        assert b"imported the user's" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("words", [["--inline"], pytest.param([], marks=pytest.mark.ray)], ids=["inline", "local Ray"])
def test_a_sweep_runs_in_such_a_folder(folder: Path, words: list[str]) -> None:
    command = [MISLABEL, "run", "spec.yaml", "--store", "store", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert load(str(folder / "store"), "shadowed").runs["status"].tolist() == ["done"] * 4
    said = _python(folder, "import mislabel; print(*mislabel.load('store', 'shadowed').runs['status'])")
    assert said.split() == ["done"] * 4


@pytest.mark.slow
@pytest.mark.ray
def test_a_cluster_runs_sweeps_in_such_a_folder(tmp_path: Path) -> None:
    _shadow(tmp_path / "cluster" / "work")
    with head(tmp_path / "cluster", "--cpus", "2") as cluster:
        job = cluster.submit("spec.yaml")
        assert cluster.wait(job) == 0, cluster.jobs.logs(job)
        assert load(cluster.state.store, "shadowed").runs["status"].tolist() == ["done"] * 4


@pytest.mark.long
def test_a_folder_called_mislabel_does_not_hide_the_package(tmp_path: Path) -> None:
    """Such as a clone of the repository, beside a notebook."""
    (tmp_path / "mislabel" / "tasks").mkdir(parents=True)
    assert _python(tmp_path, "import mislabel; print(callable(mislabel.load))") == "True"


def test_the_command_line_starts_without_pandas() -> None:
    heavy = "('torch', 'ray', 'mlflow', 'optuna', 'pandas', 'pyarrow', 'matplotlib')"
    code = "import json, sys; import mislabel.sweeps.commands.main; "
    code += f"print(json.dumps([name for name in {heavy} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
