"""Build the source distribution like the checkout: `src/mislabel` contains links to the four folders.

Setuptools follows these links and would pack every module twice. Everything else is in pyproject.toml.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist


class LinkedSources(sdist):
    def make_release_tree(self, base_dir: str, files: Sequence[str]) -> None:
        super().make_release_tree(base_dir, files)
        for link in (path for path in Path("src/mislabel").iterdir() if path.is_symlink()):
            shutil.rmtree(Path(base_dir, link))
            os.symlink(os.readlink(link), Path(base_dir, link))


setup(cmdclass={"sdist": LinkedSources})
