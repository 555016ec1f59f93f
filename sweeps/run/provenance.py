"""The provenance of results: code, data, versions, machine, command and time."""

import getpass
import platform
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from mislabel.sweeps.redaction import redacted

MODIFIED = "-dirty"
"""The end of a commit's name if files of the checkout differed from the commit, as in `git describe --dirty`."""
_PACKAGES = ("mislabel", "torch", "ray", "optuna", "mlflow", "pandas", "pyarrow", "numpy")


def provenance(task_module: str, data: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a reader of the results may want to know in a year. `data` are the data sets that runs read."""
    module = sys.modules[task_module]
    versions = {}
    for name in [*_PACKAGES, *_owners(task_module)]:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join([Path(sys.argv[0]).name, *map(redacted, sys.argv[1:])]),
        "user": _user(),
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
        "git": _git(Path(str(module.__file__))),
        "data": dict(data or {}),
    }


def commit_of(launch: Mapping[str, Any]) -> str:
    """The commit of a launch's code, with `-dirty` if files differed from it; empty if it was not in a checkout."""
    git = launch.get("git") or {}
    return f"{git.get('commit', '')}{MODIFIED if git.get('dirty') else ''}"


def _git(file: Path) -> dict[str, Any]:
    """The commit of the task's code and whether files differ from it; empty if the code is not in a checkout.

    A file that the repository ignores is not part of it: it may be in a virtual environment inside the checkout.
    """
    git = ["git", "-C", str(file.parent)]
    commit = _output([*git, "rev-parse", "HEAD"])
    own = _output([*git, "status", "--porcelain", "--ignored", "--", file.name])
    if not commit or own.startswith("!!"):
        return {}
    changed = _output([*git, "status", "--porcelain", "--untracked-files=no"])
    return {"commit": commit, "dirty": bool(own or changed)}


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


@cache
def _owners(module: str) -> list[str]:
    """Installed packages that contain the module, except ours. Cached, because this reads the files of all packages."""
    return [name for name in packages_distributions().get(module.split(".")[0], []) if name not in _PACKAGES]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
