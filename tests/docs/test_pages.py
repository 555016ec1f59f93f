"""Pages agree with the records, the claims and the code, and the site builds."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from docs.tools import faults, papers
from docs.tools.pages import DOCS, ROOT, blocks_of, page_name, pages
from docs.tools.reference import our_tasks, reference_pages
from mislabel.analysis.claims.claim import paper
from mislabel.sweeps.commands.main import COMMANDS
from mislabel.sweeps.papers.bundled import experiments, spec_path
from mislabel.sweeps.spec.document import read_document
from mislabel.sweeps.spec.model import EarlyTerminate, Method, Spec
from tests.faults.suite import topics
from tests.test_house import FOLDERS, ORDER


@pytest.mark.long
@pytest.mark.parametrize("page", papers.paper_pages(), ids=page_name)
def test_the_page_of_a_paper_agrees_with_the_records(page: Path) -> None:
    """After an intended change, `make docs-pages` writes the page again."""
    assert page.read_text() == papers.updated(page)


def test_the_page_of_faults_agrees_with_the_record() -> None:
    assert faults.PAGE.read_text() == faults.updated()


def test_every_topic_of_the_fault_suite_is_on_the_page() -> None:
    named = re.findall(r"^\| ([a-z ,]+) \|", faults.PAGE.read_text(), re.MULTILINE)
    assert {topic.replace("_", " ") for topic in topics()} <= {topic for line in named for topic in line.split(", ")}


def test_every_paper_has_a_page() -> None:
    assert {page.stem for page in papers.paper_pages()} == {name.partition("/")[0] for name in experiments()}


def test_every_claim_is_on_its_page_and_every_item_of_a_paper_too() -> None:
    for page in papers.paper_pages():
        text = page.read_text().replace("\\", "")
        known = paper(page.stem)
        assert [claim for claim in known.claims.values() if claim.statement not in text] == []
        assert [item for item in known.items if f"| {item.item} | {item.says} |" not in text] == []


def test_the_reference_has_every_key_command_and_task() -> None:
    made = reference_pages()
    for name in Spec.model_fields:
        assert f"| `{name}` |" in made["reference/spec.md"]
    for name in COMMANDS:
        assert f"## mislabel {name}\n" in made["reference/commands.md"]
    for task in our_tasks():
        page = made[f"reference/tasks/{task.name}.md"]
        for name in [*task.parameters, *task.metrics]:
            assert f"| `{name}` |" in page


def test_the_guide_to_search_names_every_method_and_every_stopping_rule() -> None:
    named = set(re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`[^|]*`) \|", _page("guides/search.md"), re.M))))
    for section, field in ((Method, "name"), (EarlyTerminate, "type")):
        assert set(get_args(section.model_fields[field].annotation)) <= named


@pytest.mark.parametrize("paper", ["self-labeling", "clean-priority"])
def test_the_guide_to_example_searches_shows_the_bundled_specs(paper: str) -> None:
    (shown,) = (b for b in blocks_of(_page("guides/searches.md")) if b.file == f"{paper}-search.yaml")
    bundled = read_document(Path(spec_path(f"{paper}/search")).read_text(), "bundled").values
    del bundled["quick"]
    assert read_document(shown.text, "shown").values == bundled


def test_contributing_shows_the_order_of_the_packages() -> None:
    (text,) = (block.text for block in blocks_of(_page("contributing.md")) if block.language == "text")
    assert [[f"mislabel.{name}" for name in line.split(", ")] for line in text.splitlines()] == ORDER


def test_contributing_lists_the_marks_of_tests() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    _, _, tests = _page("contributing.md").partition("| mark | meaning |")
    assert re.findall(r"^\| `(\w+)` \|", tests, re.MULTILINE) == [mark.partition(":")[0] for mark in declared]


def test_the_architecture_is_short_and_names_files_that_exist() -> None:
    text = _page("architecture.md")
    assert len(text.splitlines()) <= 300
    for path in re.findall(r"`((?:src|tasks|sweeps|cluster|analysis|tests)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path
    modules = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert set(re.findall(r"`(\w+\.py)`", text)) <= modules


@pytest.mark.parametrize("page", pages(), ids=page_name)
def test_files_and_folders_that_are_named_exist(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"`((?:src|tasks|sweeps|cluster|analysis|tests)/[A-Za-z0-9_/.-]+)`", text)
    for path in named:
        assert "PAPER" in path or (ROOT / path).exists(), path


@pytest.mark.long
def test_the_site_builds_without_warnings_and_without_other_hosts(tmp_path: Path) -> None:
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    loaded = re.compile(r"""<(?:script|link|img)[^>]+(?:src|href)=["']?(https?:[^"'> ]+)""")
    for page in tmp_path.rglob("*.html"):
        assert not [url for url in loaded.findall(page.read_text()) if "canonical" not in url], page


def _page(name: str) -> str:
    return (DOCS / name).read_text()
