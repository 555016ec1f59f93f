"""The README's blocks run as typed and print what it shows; the README and CONTRIBUTING name what exists."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.tools.pages import blocks_of
from docs.tools.papers import verdict_lines
from docs.tools.session import Shown, commands_of, words_of

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
MOST_LINES, MOST_BYTES = 150, 9 * 1024

# A separator that no command prints.
_MARK = "\x1e"
# `make test` would run this test again. `mislabel ui` serves until it is ended; `timeout` ends it with its children.
_INSTEAD = {
    "make test": "make --dry-run test",
    "mislabel ui": "timeout 300 mislabel ui > ui.log 2>&1 & python answers.py; code=$?; kill $!; wait; (exit $code)",
}
_ANSWERS = """
import re, time, urllib.request
for _ in range(600):
    time.sleep(0.2)
    address = re.search(r"http://[\\d.:]+", open("ui.log").read())
    try:
        if address and urllib.request.urlopen(address[0]).status == 200:
            raise SystemExit
    except OSError:
        pass
raise SystemExit("MLflow does not answer")
"""


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES
    assert len(README.encode()) <= MOST_BYTES


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but what `make` needs and a virtual environment with our wheel.

    The environment has the packages of this one, except the editable installation of Mislabel: Python does not follow
    the .pth files in a folder that another .pth file names.
    """
    folder = tmp_path_factory.mktemp("readme")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (folder / name).write_text((ROOT / name).read_text())
    source, wheels = tmp_path_factory.mktemp("source") / "mislabel", tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "records", "results", "tests")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(source)], check=True)
    (wheel,) = wheels.glob("mislabel-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / ".venv")], check=True)
    python = folder / ".venv" / "bin" / "python"
    subprocess.run([*pip, "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)], check=True)
    (packages,) = (folder / ".venv" / "lib").glob("python3*/site-packages")
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "others.pth").write_text("\n".join(others))
    (folder / ".venv" / ".installed").touch()
    return folder


def _commands(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Write the README's files into the folder; yields each command, as it is run, with the output displayed below."""
    (folder / "answers.py").write_text(_ANSWERS)
    for i, block in enumerate(blocks_of(README)):
        if block.language == "yaml":
            assert block.file, "a spec of the README begins with its file name"
            (folder / block.file).write_text(block.text)
        elif block.language == "pycon":
            (folder / f"session{i}.txt").write_text(block.text)
            yield f"python -m doctest -o ELLIPSIS -o NORMALIZE_WHITESPACE session{i}.txt", []
        else:
            assert block.language == "console"
            for command, displayed, _, _ in commands_of(block):
                yield " ".join(words_of(command)), displayed


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_block_runs_as_typed_and_prints_what_is_displayed(installed: Path) -> None:
    """In one shell, in order, from the wheel, in a folder without our sources."""
    commands = list(_commands(installed))
    script = "".join(
        f"printf '{_MARK}'\n{_INSTEAD.get(command, command)}\nprintf '{_MARK}%d{_MARK}' $?\n" for command, _ in commands
    )
    hidden = ("MISLABEL_", "MLFLOW_", "RAY_", "PYTHONPATH", "VIRTUAL_ENV", "BOWL_")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    path = os.pathsep.join(part for part in plain["PATH"].split(os.pathsep) if ".venv" not in part)
    environment = {**plain, "PATH": path, "COLUMNS": "120", "MISLABEL_CLUSTER_DIR": str(installed / "cluster")}
    try:
        done = subprocess.run(
            ["bash", "-c", f"exec 2>&1; {script}"], cwd=installed, env=environment, stdout=subprocess.PIPE, text=True,
            check=False, timeout=1500,
        )  # fmt: skip
    finally:
        down = [str(installed / ".venv" / "bin" / "mislabel"), "cluster", "down"]
        subprocess.run(down, cwd=installed, env=environment, capture_output=True, check=False, timeout=120)
    outputs = re.findall(rf"{_MARK}(.*?){_MARK}(\d+){_MARK}", done.stdout, re.DOTALL)
    assert len(outputs) == len(commands), done.stdout[-3000:]
    wrong = []
    for (command, displayed), (output, code) in zip(commands, outputs, strict=True):
        shown = Shown(command, displayed, output.splitlines(), int(code), 0, 0)
        if shown.code or not shown.agrees:
            wrong.append(f"$ {command}\n{output}(exit code {code})")
    assert not wrong, "\n".join(wrong)
    made = ("quickstart.png", "quickstart", "noise", "tradeoff", "mlflow.db")
    assert [name for name in made if not (installed / "results" / name).exists()] == []


@pytest.mark.long
def test_the_verdicts_are_those_of_the_records() -> None:
    """`make docs-pages` writes them."""
    assert re.findall(r"^\| \[.*", README, re.MULTILINE) == list(verdict_lines().values())


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_files_and_folders_that_are_named_exist(text: str) -> None:
    linked = re.findall(r"\]\(([^)#:]+)\)", text)
    quoted = re.findall(r"`((?:src|tasks|sweeps|cluster|analysis|tests|docs)/[A-Za-z0-9_/.-]+)`", text)
    assert linked or quoted
    for path in [*linked, *(each for each in quoted if "PAPER" not in each)]:
        assert (ROOT / path).exists(), path
