"""The deployment files as texts and values, and the linters for them."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent.parent
DEPLOY = ROOT / "cluster" / "deploy"
PAGES = {path.name: path.read_text() for path in sorted(DEPLOY.glob("*.md"))}
TEXTS = {
    str(path.relative_to(DEPLOY)): path.read_text()
    for path in sorted(DEPLOY.rglob("*"))
    if path.is_file() and path.suffix != ".pyc" and not {"secrets", "specs"} & {*path.relative_to(DEPLOY).parts}
}
CONSTRAINTS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = str(PYPROJECT["project"]["version"])
BIN = Path(sys.executable).parent


def read(name: str) -> Any:
    return yaml.safe_load(TEXTS[name])


def tool(*words: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a linter, which must be installed in the development environment."""
    return subprocess.run([BIN / words[0], *words[1:]], input=given, capture_output=True, text=True, timeout=240)
