from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sweeps.commands.conftest import Mislabel, Said

pytestmark = pytest.mark.long


@pytest.mark.parametrize("file", ["a.png", "a.pdf", "a.svg"])
def test_a_figure_is_drawn_into_the_file(mislabel: Mislabel, ran: Callable[..., Said], folder: Path, file: str) -> None:
    ran()
    said = mislabel("figure", "bowls", "-m", "loss", "-m", "height", "--by", "x", "-o", file)
    assert said.code == 0
    assert said.out == f"{file}\n"
    assert (folder / file).stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bowl",), "did you mean bowls?"),
        (("bowls", "-m", "los"), "did you mean loss?"),
        (("bowls", "--by", "surfce"), "did you mean surface?"),
        (("bowls", "-o", "a.nonsense"), "a.nonsense: "),
        (("bowls", "-o", "no/such/folder.png"), "no/such/folder.png: "),
    ],
)
def test_a_mistake_is_named(
    mislabel: Mislabel, ran: Callable[..., Said], arguments: tuple[str, ...], message: str
) -> None:
    ran()
    said = mislabel("figure", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert message in said.err


def test_the_best_cells_of_branches_are_drawn(mislabel: Mislabel, ran: Callable[..., Said], folder: Path) -> None:
    ran(parameters={"x": {"values": [0, 1]}, "surface": {"values": ["smooth", "rough"], "grid": True}})
    assert mislabel("figure", "bowls", "--branches", "-o", "a.svg").code == 0
    assert "surface" in (folder / "a.svg").read_text()
    assert mislabel("figure", "bowls", "--branches", "--by", "x").code == 2


def test_a_heat_map_is_drawn(mislabel: Mislabel, ran: Callable[..., Said], folder: Path) -> None:
    ran(parameters={"x": {"values": [0, 1]}, "surface": {"values": ["smooth", "rough"]}, "level": {"values": [0, 5]}})
    assert mislabel("figure", "bowls", "--kind", "heatmap", "--x", "x", "--y", "surface", "-o", "a.svg").code == 0
    assert "surface" in (folder / "a.svg").read_text()
    assert mislabel("figure", "bowls", "--kind", "heatmap", "--at", "best", "-o", "b.svg").code == 0
    assert mislabel("figure", "bowls", "--difference", "level=0", "level=5", "-m", "height", "-o", "c.svg").code == 0
    assert "significant" in (folder / "c.svg").read_text()
    for wrong in (("--x", "x"), ("--kind", "heatmap", "--by", "x"), ("--at", "best"), ("--difference", "aa", "bb")):
        assert mislabel("figure", "bowls", *wrong).code == 2
