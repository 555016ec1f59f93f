"""The deployment files as a whole."""

import shutil

from tests.cluster.deploy.files import BIN, DEPLOY, PYPROJECT, TEXTS


def test_every_file_is_in_the_distribution() -> None:
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["mislabel.cluster.deploy"]
    packed = {str(path.relative_to(DEPLOY)) for pattern in patterns for path in DEPLOY.glob(pattern)}
    assert packed | {"__init__.py"} == TEXTS.keys()
    assert len(packed) > 12


def test_linters_are_installed_in_this_environment() -> None:
    assert all(shutil.which(name, path=str(BIN)) for name in ("shellcheck", "hadolint", "check-jsonschema"))
