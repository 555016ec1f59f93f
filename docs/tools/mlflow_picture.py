"""Retake the picture of MLflow that the README shows, or take another one.

    python -m docs.tools.mlflow_picture                                   # docs/pictures/mlflow.png
    python -m docs.tools.mlflow_picture URL FILE                          # of a page of a running server

This needs the package selenium (pip install selenium), and the programs chromium and chromedriver (on Debian: apt-get
install chromium chromium-driver). A plain `chromium --screenshot` shows MLflow blank: its page loads its data later.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from docs.tools.pages import DOCS

PICTURE = DOCS / "pictures" / "mlflow.png"
SPEC = """\
name: noise
task: xor_clusters
metric: {name: clean_test_accuracy, goal: maximize}
parameters:
  noise_rate: {values: [0.0, 0.1, 0.2, 0.3, 0.4]}
  dim: {values: [10, 20, 40]}
  step_size: {values: [0.3, 1.0]}
  samples: 80
  width: 20
  test_samples: 500
  steps: 600
  frames: 12
seeds: 5
"""
_SIZE = (1600, 900)
_START_SECONDS = 180.0
_LOAD_SECONDS = 60.0
_DRAW_SECONDS = 6.0


def take(url: str, file: Path) -> None:
    """Open the page in Chromium, wait until it has loaded its data, and write a picture of it."""
    with _browser() as driver:
        driver.set_window_size(*_SIZE)
        # MLflow opens its assistant on the first visit.
        driver.get(url.partition("#")[0] + "health")
        driver.execute_script("localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')")
        driver.get(url)
        until = time.monotonic() + _LOAD_SECONDS
        while "mislabel" not in driver.page_source and "cell" not in driver.page_source and time.monotonic() < until:
            time.sleep(0.5)
        time.sleep(_DRAW_SECONDS)
        driver.save_screenshot(str(file))


@contextmanager
def _browser() -> Iterator[Any]:
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ModuleNotFoundError:
        missing.append("the Python package selenium")
    if missing:
        sys.exit(f"not found: {', '.join(missing)}; see the beginning of {__file__}")
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (
            "headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking",
            "disable-component-update", "disable-sync", "hide-scrollbars", f"user-data-dir={profile}",
        ):  # fmt: skip
            options.add_argument(f"--{flag}")
        driver = webdriver.Chrome(options, Service(str(shutil.which("chromedriver"))))
        try:
            yield driver
        finally:
            driver.quit()


@contextmanager
def _served(store: Path) -> Iterator[str]:
    """Run the sweep and `mislabel ui`; gives the address of the sweep's table of cells."""
    mislabel = [sys.executable, "-P", "-m", "mislabel.sweeps.commands.main"]
    spec = store.parent / "noise.yaml"
    spec.write_text(SPEC)
    environment = {**os.environ, "MISLABEL_STORE": str(store)}
    subprocess.run([*mislabel, "run", str(spec), "--inline"], env=environment, check=True)
    log = store.parent / "ui.log"
    with log.open("w") as output:
        server = subprocess.Popen([*mislabel, "ui", "--no-browser"], env=environment, stderr=output, stdout=output)
    try:
        until = time.monotonic() + _START_SECONDS
        while "MLflow UI: " not in log.read_text():
            if server.poll() is not None or time.monotonic() > until:
                sys.exit(f"`mislabel ui` does not answer:\n{log.read_text()}")
            time.sleep(0.5)
        yield log.read_text().partition("MLflow UI: ")[2].split()[0]
    finally:
        server.terminate()
        server.wait()


def main(words: list[str]) -> None:
    if words:
        url, file = words
        take(url, Path(file))
        return
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder, "results")) as url:
        take(url, PICTURE)


if __name__ == "__main__":
    main(sys.argv[1:])
