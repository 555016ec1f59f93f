import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from mislabel.sweeps.commands import doctor
from mislabel.sweeps.commands.doctor import Broken, declared_versions, imported, requirements
from mislabel.sweeps.commands.main import cli

MISMATCH = "raise RuntimeError('operator torchvision::nms does not exist')"


def _library(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a library of this name first on the path of new Pythons."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_library_is_imported_as_a_script_imports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert imported("numpy") == version("numpy")
    _library(tmp_path, "numpy", "__version__ = '9.9'", monkeypatch)
    assert imported("numpy") == "9.9"


def test_a_library_that_a_script_cannot_import_fails_with_its_error_and_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _library(tmp_path, "pandas", "import nothing_of_this_name", monkeypatch)
    with pytest.raises(Broken) as broken:
        imported("pandas")
    assert "nothing_of_this_name" in str(broken.value)
    assert str(requirements()["pandas"]) in broken.value.fix


def test_a_python_that_dies_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _library(tmp_path, "pandas", "import os; os._exit(139)", monkeypatch)
    with pytest.raises(Broken, match="139"):
        imported("pandas")


def test_a_torchvision_for_another_torch_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _library(tmp_path, "torchvision", MISMATCH, monkeypatch)
    with pytest.raises(Broken) as broken:
        imported("torchvision")
    assert version("torch") in broken.value.fix
    assert "torchvision_import" in broken.value.fix


def test_the_declared_versions_are_compared_with_the_installed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert declared_versions().startswith(str(len(requirements())))
    declared = ["numpy<1.0", "pandas>=2", "no-such-library>1", "absent; extra == 'more'"]
    monkeypatch.setattr(doctor, "requires", lambda name: declared)
    with pytest.raises(Broken) as broken:
        declared_versions()
    assert broken.value.fix == 'pip install "numpy<1.0" "no-such-library>1"'


@pytest.mark.ray
def test_doctor_fails_exactly_where_an_import_fails(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["doctor", "--store", str(tmp_path / "store"), "--json"], standalone_mode=False)
    assert result.exception is None
    rows = {row["check"]: row for row in json.loads(result.stdout)}
    for name in ("torchvision", "pandas", "optuna"):
        done = subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False)
        works = done.returncode == 0
        assert (rows[f"import {name}"]["state"] == "ok") == works
        assert bool(rows[f"import {name}"]["fix"]) == (not works)
    assert rows["training"]["state"] == rows["ray"]["state"] == "ok"
    assert result.return_value == any(row["state"] == "fails" for row in rows.values())
    assert not (tmp_path / "store").exists()
