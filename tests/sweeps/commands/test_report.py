from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sweeps.commands.conftest import Mislabel, Said

pytestmark = pytest.mark.long


@pytest.fixture
def bowls(ran: Callable[..., Said]) -> None:
    assert ran().code == 0


@pytest.mark.usefixtures("bowls")
@pytest.mark.parametrize(("arguments", "file"), [((), "bowls.html"), (("-o", "a.html", "-m", "height"), "a.html")])
def test_a_report_is_written_and_its_name_is_printed(
    mislabel: Mislabel, folder: Path, arguments: tuple[str, ...], file: str
) -> None:
    said = mislabel("report", "bowls", *arguments)
    assert (said.code, said.out) == (0, f"{file}\n")
    assert (folder / file).read_text().startswith("<!DOCTYPE html>")


@pytest.mark.usefixtures("bowls")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bowl",), "did you mean bowls?"),
        (("bowls", "-m", "los"), "did you mean loss?"),
        (("bowls", "-o", "no/such/folder.html"), "no/such/folder.html: "),
    ],
)
def test_a_mistake_is_named(mislabel: Mislabel, arguments: tuple[str, ...], message: str) -> None:
    said = mislabel("report", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert message in said.err
