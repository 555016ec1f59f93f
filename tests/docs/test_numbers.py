"""Numbers in the text of hand-written pages have a source: a constant, a file, or a fixed name.

Numbers in code blocks are compared by test_snippets, and those in the pages of papers by test_pages.
"""

import json
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from docs.tools.pages import DOCS, RECORDS, ROOT, blocks_of, page_name, pages, prose_of
from docs.tools.papers import MARKER
from mislabel.analysis.claims.page import Checked
from mislabel.analysis.mlflow_view.results import FEW_CELLS
from mislabel.analysis.statistics.comparison import SIGNIFICANT
from mislabel.sweeps.errors import ExitCode
from mislabel.sweeps.papers.bundled import experiments, spec_path
from mislabel.sweeps.run.live_rows import SHARE
from mislabel.sweeps.seed_means import CONFIDENCE
from mislabel.sweeps.spec.document import read_document
from mislabel.tasks.data.images import EMBEDDED, images
from tests.test_house import MOST_LINES, MOST_MODULES

_PYTHON = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
_INTERVAL = f"{100 * CONFIDENCE:g}"
_TAIL = f"{50 * (1 - CONFIDENCE):g}"
_LANES = "0"
"""The axis of lanes."""


def _spec(page: str, file: str) -> dict[str, object]:
    (text,) = (block.text for block in blocks_of((DOCS / page).read_text()) if block.file == file)
    return dict(read_document(text, file).values["parameters"])


def _digits_size() -> list[str]:
    return [str(size) for size in images(EMBEDDED).train_x.shape[2:]]


def _mutation_counts() -> list[str]:
    """The mutants that were run and all mutants; then those found, timed out, survived and without tests."""
    modules = json.loads((ROOT / "tests" / "mutation.json").read_text())["modules"].values()
    total = sum((Counter(counts) for counts in modules), Counter[str]())
    results = [total[name] for name in ("found", "timed out", "survived", "without tests")]
    return [f"{count:,}" for count in (sum(results), total.total(), *results)]


def _first_seeds() -> set[str]:
    """The first seed of the papers' experiments."""
    texts = (Path(spec_path(name)).read_text() for name in experiments())
    return {first for text in texts for first in re.findall(r"first: (\d+)", text)}


@cache
def _figures_of_clean_priority() -> list[str]:
    """The figures whose records are older than their rules, and the one of them that lacks seeds."""
    found = {name.rpartition("fig")[2]: rows for name, rows in Checked("clean-priority", str(RECORDS)).findings.items()}
    old = [figure for figure, rows in found.items() if any(row.rule_is_newer for row in rows)]
    few = [figure for figure, rows in found.items() if any("of 8 seeds" in row.judgement.reason for row in rows)]
    return [*old, *few]


@cache
def _numbers() -> dict[str, list[str]]:
    """The numbers of each page, in order."""
    codes = [str(int(code)) for code in ExitCode]
    sources = [str(i) for i in range(1, 11)]
    quickstart = (ROOT / "sweeps" / "papers" / "specs" / "quickstart.yaml").read_text()
    dims = read_document(quickstart, "quickstart.yaml").values["parameters"]["dim"]["values"]
    _, noise, _ = _spec("getting-started.md", "noise.yaml")["noise_rate"]["values"]  # type: ignore[index]
    return {
        "architecture.md": [str(i) for i in range(1, 7)],
        "comparison.md": [*"1234", "5", "6", "5", "7", "8", "9", "10", *_cited(sources)],
        "concepts/cells.md": [_INTERVAL],
        "concepts/packs.md": [_LANES],
        "concepts/store.md": [f"{100 * SHARE:g}"],
        "contributing.md": [str(MOST_LINES), str(MOST_MODULES), *_mutation_counts()],
        "data.md": [*_digits_size(), "4.0", "3.0", "2.0"],  # versions of licences
        "getting-started.md": [_PYTHON, _INTERVAL, str(noise)],
        "glossary.md": [_LANES],
        "guides/claims.md": [_INTERVAL, _INTERVAL, "0", _TAIL, *_first_seeds(), "1", *"1234"],  # α = 1, then steps
        "guides/images.md": _digits_size(),
        "guides/mlflow.md": [str(FEW_CELLS)],
        "guides/own-task.md": [_LANES, "0"],
        "guides/pandas.md": [_INTERVAL],
        "guides/search.md": ["1"],  # of 1/eta
        "guides/statistics.md": [
            _INTERVAL,
            "1",
            _INTERVAL,
            f"{SIGNIFICANT:.2g}",
            f"{100 * SIGNIFICANT:.2g}",
        ],  # 1 of 1 / Σ w²
        "index.md": [*map(str, dims), _INTERVAL, "2.0"],
        "papers/clean-priority.md": [*"79", *"79", *_figures_of_clean_priority(), "1"],  # digits, figures, α = 1
        "papers/index.md": [_INTERVAL],
        "papers/misclassification.md": ["1"],
        "papers/self-labeling.md": ["2"],
        "troubleshooting.md": [*codes, str(int(ExitCode.FAILED))],
    }


def _cited(sources: list[str]) -> list[str]:
    """The numbers in the list of sources: issues and the years since when they are open."""
    years = {"2": ["433"], "3": ["2020", "939"], "7": ["2019", "6618"]}
    return [number for source in sources for number in (source, *years.get(source, []))]


@pytest.mark.long
@pytest.mark.parametrize("page", pages(), ids=page_name)
def test_every_number_in_the_text_has_a_source(page: Path) -> None:
    text = prose_of(page.read_text().partition(MARKER)[0])
    text = re.sub(r"CIFAR-10|\bS3\b|Apache-", "", text)
    found = [number.rstrip(".,") for number in re.findall(r"\d[\d.,]*", text)]
    assert found == _numbers().get(page_name(page), [])
