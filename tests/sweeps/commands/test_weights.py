from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.sweeps.commands.conftest import Mislabel, Said


def test_weights_are_listed_best_run_first_and_exported(
    mislabel: Mislabel, ran: Callable[..., Said], folder: Path
) -> None:
    ran(keep="weights")
    listed = mislabel("weights", "bowls").out.splitlines()
    assert listed[0].split() == ["run_id", "seed", "x", "loss"]
    losses = [float(line.split()[-1]) for line in listed[1:]]
    assert losses == sorted(losses)
    assert len(losses) == 6
    run = listed[1].split()[0]
    said = mislabel("weights", "bowls", run, "-o", "a.pt")
    assert said.out == "a.pt\n"
    assert torch.load(folder / "a.pt", weights_only=True)["rolled"].shape == (2,)
    assert mislabel("weights", "bowls", run).out == f"bowls-{run}.pt\n"


def test_a_sweep_without_weights_lists_none_and_explains_how_to_keep_them(
    mislabel: Mislabel, ran: Callable[..., Said]
) -> None:
    ran()
    said = mislabel("weights", "bowls")
    assert (said.code, said.out) == (0, "")
    assert "keep: weights" in said.err


@pytest.mark.parametrize("words", [("no-such-run",), ("../spec",)])
def test_a_run_without_weights_is_refused(mislabel: Mislabel, ran: Callable[..., Said], words: tuple[str, ...]) -> None:
    ran(keep="weights")
    said = mislabel("weights", "bowls", *words)
    assert said.code == 2
    assert words[0] in said.err


def test_a_file_that_cannot_be_written_is_named(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    ran(keep="weights")
    run = mislabel("weights", "bowls").out.splitlines()[1].split()[0]
    said = mislabel("weights", "bowls", run, "-o", "no/such/folder.pt")
    assert said.code == 2
    assert "no/such/folder.pt" in said.err
