"""Where results come from: code, versions, machine, command, time."""

import getpass
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

_PACKAGES = ("mislabel", "torch", "ray", "optuna", "mlflow", "pandas", "pyarrow", "numpy")


def provenance(task_module: str) -> dict[str, Any]:
    """What a reader of the results may want to know in a year; `task_module` is where the task's code lies."""
    module = sys.modules[task_module]
    return {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "user": _user(),
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: found for name in [*_PACKAGES, *_owners(task_module)] if (found := _version(name))},
        "git": _git(Path(str(module.__file__)).parent),
    }


def _git(folder: Path) -> dict[str, Any]:
    """The commit of the task's code and whether files differ from it; empty where it is not in a checkout."""
    commit = _output(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if not commit:
        return {}
    changed = _output(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return {"commit": commit, "dirty": bool(changed)}


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _owners(module: str) -> list[str]:
    return [name for name in packages_distributions().get(module.split(".")[0], []) if name not in _PACKAGES]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
