"""The command line as a user calls it, in this process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from mislabel.sweeps.commands.main import main
from tests.bowls import bowl_values


@dataclass(frozen=True)
class Said:
    """A command's exit code and output."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        def refuse(constant: str) -> None:
            raise ValueError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


Mislabel = Callable[..., Said]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands are called; its store is `results`."""
    for name in ("MISLABEL_STORE", "MISLABEL_CLUSTER", "MISLABEL_TOKEN_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    # Hide a cluster that may run on this machine.
    monkeypatch.setenv("MISLABEL_CLUSTER_DIR", str(tmp_path / "no-cluster"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def mislabel(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Mislabel:
    def call(*arguments: str) -> Said:
        monkeypatch.setattr("sys.argv", ["mislabel", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return Said(int(ended.value.code or 0), out, err)

    return call


@pytest.fixture
def write_spec(folder: Path) -> Callable[..., str]:
    """Write a spec of the bowl task with some keys changed; returns the file's name."""

    def write(**changes: Any) -> str:
        values = bowl_values(**changes)
        path = folder / f"{values['name']}.yaml"
        path.write_text(yaml.safe_dump(values, sort_keys=False))
        return path.name

    return write


@pytest.fixture
def ran(mislabel: Mislabel, write_spec: Callable[..., str]) -> Callable[..., Said]:
    """Run a sweep of the bowl task in this process, with some keys of its spec changed."""

    def run(**changes: Any) -> Said:
        return mislabel("run", write_spec(**changes), "--inline", "--no-mlflow")

    return run
