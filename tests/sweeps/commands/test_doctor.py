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
from mislabel.sweeps.store.store import Store
from tests.bowls import run

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


def _checked(store: Store, monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code of `doctor` on a store, and the rows about its sweeps. Imports, training and Ray are left out."""
    monkeypatch.setattr(doctor, "_IMPORTS", ())
    for name in ("_training", "_ray", "_tasks"):
        monkeypatch.setattr(doctor, name, lambda: "")
    result = CliRunner().invoke(cli, ["doctor", "--store", store.address, "--json"], standalone_mode=False)
    assert result.exception is None
    rows = {row["check"]: row for row in json.loads(result.stdout)}
    return result.return_value, {name: row for name, row in rows.items() if name.startswith("sweep ")}


def test_doctor_compares_the_checksums_of_all_sweeps(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    files = run(store, name="first").files
    run(store, name="second")
    _, rows = _checked(store, monkeypatch)
    assert {name: row["state"] for name, row in rows.items()} == {"sweep first": "ok", "sweep second": "ok"}
    (curves,) = Path(files.address, "curves").glob("*.parquet")
    data = bytearray(curves.read_bytes())
    data[len(data) // 2] ^= 1
    curves.write_bytes(bytes(data))
    code, rows = _checked(store, monkeypatch)
    assert code == 1
    assert {name: row["state"] for name, row in rows.items()} == {"sweep first": "fails", "sweep second": "ok"}
    assert rows["sweep first"]["detail"].startswith(str(curves))
    assert "mislabel run" in rows["sweep first"]["fix"]


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
