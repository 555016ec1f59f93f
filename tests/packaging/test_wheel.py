"""The source distribution and the wheel: what they contain, and that the wheel works in an empty environment."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from mislabel.sweeps.errors import ExitCode
from tests.cluster.heads import MISLABEL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
FOLDERS = ("tasks", "sweeps", "cluster", "analysis")
# Nothing that the tests' own environment sets leads to the repository or to another store.
CLEARED = ("PYTHONPATH", "MISLABEL_STORE", "MISLABEL_CLUSTER", "MLFLOW_TRACKING_URI", "RAY_ADDRESS", "VIRTUAL_ENV")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in CLEARED}


def _call(*words: str, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def _run_on_ray(*words: str, cwd: Path) -> None:
    """Ray gives its processes 30 s to start. On a busy machine that may be too short: the command ends with code 2."""
    for _ in range(5):
        done = subprocess.run(words, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        if done.returncode != ExitCode.WRONG:
            break
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and with the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("packaging")
    ignored = shutil.ignore_patterns(
        ".git", ".venv", ".*_cache", "__pycache__", "*.egg-info", "results", "build", "dist"
    )
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=ignored)
    _call(sys.executable, "-m", "build", "--outdir", str(folder / "dist"), cwd=folder / "source")
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (wheel,) = dist.glob("mislabel-*.whl")
    return wheel


def test_the_wheel_has_every_module_and_data_file_under_the_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in names} == {"mislabel"}
    modules = {f"mislabel/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    specs = {f"mislabel/{path.relative_to(ROOT)}" for path in (ROOT / "sweeps" / "papers" / "specs").rglob("*.yaml")}
    deploy = {f"mislabel/cluster/deploy/{name}" for name in ("Dockerfile", "compose.yaml", "kuberay/rayjob.yaml")}
    assert specs
    assert specs | deploy | {"mislabel/tasks/data/cifar10_filenames.txt.xz", "mislabel/py.typed"} <= names
    assert {name for name in names if name.endswith(".py")} == modules | {"mislabel/__init__.py"}


def test_the_wheel_has_no_records_no_pictures_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert [name for name in names if re.search(r"records/|tests?/|\.parquet$|\.png$", name)] == []
    assert wheel.stat().st_size < 2 << 20


def test_the_source_distribution_has_what_building_and_testing_need(dist: Path) -> None:
    (archive,) = dist.glob("mislabel-*.tar.gz")
    with tarfile.open(archive) as tar:
        members = {member.name.partition("/")[2]: member for member in tar.getmembers()}
    files = {"pyproject.toml", "constraints.txt", "Makefile", "README.md", "CHANGELOG.md", "LICENSE", ".ci/run"}
    files |= {
        "tests/conftest.py",
        "tests/regression/store/store.json",
        "records/store.json",
        "docs/pictures/mlflow.png",
    }
    assert files - members.keys() == set()
    links = {name: members[f"src/mislabel/{name}"] for name in FOLDERS}
    assert {name: link.linkname for name, link in links.items() if link.issym()} == {
        name: f"../../{name}" for name in FOLDERS
    }
    assert not [name for name in members if "__pycache__" in name or ".venv" in name]


def test_the_wheel_works_in_an_empty_environment_outside_the_repository(wheel: Path, tmp_path: Path) -> None:
    """Only the wheel and its declared dependencies are installed there, so an undeclared one would be missing."""
    _call(sys.executable, "-m", "venv", str(tmp_path / "env"), cwd=tmp_path)
    python, mislabel = str(tmp_path / "env" / "bin" / "python"), str(tmp_path / "env" / "bin" / "mislabel")
    constraints = str(ROOT / "constraints.txt")
    _call(python, "-m", "pip", "install", "--quiet", "--constraint", constraints, str(wheel), cwd=tmp_path)
    _call(python, "-m", "pip", "check", cwd=tmp_path)

    work = tmp_path / "work"
    work.mkdir()
    file = Path(_call(python, "-c", "import mislabel; print(mislabel.__file__)", cwd=work).strip())
    assert file.is_relative_to(tmp_path / "env")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        version = Parser().parsestr(archive.read(metadata).decode())["Version"]
    assert _call(mislabel, "--version", cwd=work).split() == ["mislabel", version]

    _call(mislabel, "run", "quickstart", "--inline", "--no-mlflow", "--store", "inline", cwd=work)
    _run_on_ray(mislabel, "run", "quickstart", cwd=work)
    code = "import mislabel; print(*mislabel.load('{}', 'quickstart').runs['status'])"
    for store in ("inline", "results"):
        assert _call(python, "-c", code.format(store), cwd=work).split() == ["done"] * 40
    # The repository's own installation reads what the wheel's has written.
    rows = json.loads(_call(MISLABEL, "results", "quickstart", "--store", str(work / "results"), "--json", cwd=work))
    assert len(rows) == 8
