"""The project's files agree with each other: versions, dependencies, make targets, changelog, citation, CI."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import mislabel

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
_PYTHON = "Programming Language :: Python :: "
TESTED = [text.removeprefix(_PYTHON) for text in PROJECT["classifiers"] if text.startswith(_PYTHON)]
# Modules that use internals of a library, and where they name the version that they were tested with.
ADAPTERS = {
    "ray": "cluster/ray_private.py",
    "optuna": "sweeps/search/optuna_private.py",
    "mlflow": "analysis/mlflow_view/saved_view.py",
}


def _minor(text: str) -> tuple[int, int]:
    return Version(text).major, Version(text).minor


def _requirement(library: str) -> Requirement:
    (found,) = (each for each in map(Requirement, PROJECT["dependencies"]) if each.name == library)
    return found


def test_the_version_has_one_source() -> None:
    assert mislabel.__version__ == version("mislabel") == PROJECT["version"]
    command = [sys.executable, "-m", "mislabel.sweeps.commands.main", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["mislabel", PROJECT["version"]]


def test_deployment_files_name_the_image_of_this_version() -> None:
    deploy = [path for path in (ROOT / "cluster" / "deploy").rglob("*") if path.is_file()]
    tags = [tag for path in deploy for tag in re.findall(r"mislabel:(\d[\w.]*)", path.read_text())]
    assert set(tags) == {PROJECT["version"]}


def test_the_changelog_describes_this_version_and_what_comes_next() -> None:
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["Unreleased", PROJECT["version"]]


@pytest.mark.parametrize("library", [*ADAPTERS, "torch", "torchvision"])
def test_versions_of_libraries_whose_internals_we_use_end_with_the_tested_minor_version(library: str) -> None:
    major, minor = _minor(CONSTRAINTS[library])
    specifier = _requirement(library).specifier
    assert specifier.contains(CONSTRAINTS[library])
    assert f"<{major}.{minor + 1}" in {str(bound) for bound in specifier}
    if library in ADAPTERS:
        assert f"{major}.{minor}" in (ROOT / ADAPTERS[library]).read_text()


def test_every_dependency_is_pinned_to_a_version_that_it_allows() -> None:
    texts = [*PROJECT["dependencies"], *(text for texts in PROJECT["optional-dependencies"].values() for text in texts)]
    pinned = {re.sub(r"[-_.]+", "-", name).lower(): number for name, number in CONSTRAINTS.items()}
    for requirement in map(Requirement, texts):
        if requirement.name != PROJECT["name"]:  # an extra that contains another one
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            assert requirement.specifier.contains(pinned[name]), requirement


def test_make_help_lists_every_target() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):(?!=)", MAKEFILE, re.MULTILINE))
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    described = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert {"help", "quickstart", "test", "test-all", "lint", "bench"} <= described.keys() == targets
    assert set(re.findall(r"[\w-]+", MAKEFILE.partition(".PHONY:")[2].partition("\n")[0])) == targets
    assert all(text[0].isupper() and text.endswith(".") for text in described.values())


def test_ci_runs_the_same_script_on_the_tested_versions() -> None:
    (job,) = WORKFLOW["jobs"].values()
    assert ".ci/run" in [step.get("run") for step in job["steps"]]
    assert job["strategy"]["matrix"]["python"] == TESTED
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in TESTED


def test_contributing_is_one_page_and_names_the_tested_versions() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert len(text.splitlines()) <= 60
    (said,) = re.findall(r"We test on Linux \(x86-64\) with Python (.*?), and", text)
    assert re.findall(r"\d+\.\d+", said) == TESTED
    assert "docs/" in text


def test_the_ci_script_calls_targets_that_exist() -> None:
    called = re.findall(r"^make ([\w-]+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert called
    assert all(f"\n{target}:" in MAKEFILE for target in called)


def test_commit_hooks_run_the_linters_of_the_virtual_environment() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = {hook["id"]: hook["entry"].split() for hook in repository["hooks"]}
    assert repository["repo"] == "local"
    assert {"ruff", "ruff-format", "mypy"} <= entries.keys()
    for program, *words in entries.values():
        assert program.startswith(".venv/bin/") or f"\n{words[0]}:" in MAKEFILE


def test_the_citation_names_the_five_papers() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["license"] == PROJECT["license"]
    surnames = [paper["authors"][0]["family-names"] for paper in citation["references"]]
    assert surnames == ["Liu", "Zhang", "Cornacchia", "Zhou", "Frei"]
    assert all(paper["title"] for paper in citation["references"])


@pytest.mark.parametrize(
    ("schema", "file"), [("github-workflows", ".github/workflows/ci.yml"), ("citation-file-format", "CITATION.cff")]
)
def test_files_for_other_programs_follow_their_schemas(schema: str, file: str) -> None:
    program = str(Path(sys.executable).parent / "check-jsonschema")
    command = [program, "--builtin-schema", f"vendor.{schema}", str(ROOT / file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_every_import_is_a_declared_dependency(tmp_path: Path) -> None:
    """As `make dependencies` checks it."""
    for words in re.findall(r"^\t\$\(BIN\)/deptry (.*)", MAKEFILE, re.MULTILINE):
        report = tmp_path / "deptry.json"
        arguments = [word.strip("'").replace("$$", "$") for word in words.split()]
        command = [sys.executable, "-m", "deptry", *arguments, "--json-output", str(report)]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        assert json.loads(report.read_text()) == []


def test_no_file_names_a_package_registry_or_a_folder_of_a_machine() -> None:
    files = ["pyproject.toml", "constraints.txt", "Makefile", ".pre-commit-config.yaml", ".github/workflows/ci.yml"]
    for name in files:
        assert not re.search(r"index-url|https?://|/root/|/home/|/tmp/", (ROOT / name).read_text()), name
