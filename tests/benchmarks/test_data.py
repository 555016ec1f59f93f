from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mislabel.tasks.data.images import AbsentData
from tests.benchmarks.data import is_fetched
from tests.benchmarks.images import fully_connected_in_packs, segment_measurement, steps_of_convolutions


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Benchmarks set the number of torch's threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_benchmark_without_its_data_prints_the_command_that_fetches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MISLABEL_DATA", str(tmp_path))
    for measure in (fully_connected_in_packs, segment_measurement):
        assert list(measure()) == []
        assert AbsentData("mnist", tmp_path).command in capsys.readouterr().err
    assert list(steps_of_convolutions()) == []
    said = capsys.readouterr().err
    assert all(AbsentData(name, tmp_path).command in said for name in ("mnist", "cifar10"))


def test_bundled_data_are_always_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MISLABEL_DATA", str(tmp_path))
    assert is_fetched("digits")
    assert capsys.readouterr().err == ""
