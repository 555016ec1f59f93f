"""Checks before anything is sent; tests/cluster/head/test_head.py has the rest."""

from collections.abc import Callable
from pathlib import Path

from mislabel.sweeps.commands.submit import login
from tests.sweeps.commands.conftest import Mislabel


def test_a_wrong_spec_is_not_sent(mislabel: Mislabel, write_spec: Callable[..., str]) -> None:
    said = mislabel("submit", write_spec(task="bwl"), "--cluster", "http://127.0.0.1:9")
    assert said.code == 2
    assert "did you mean bowl?" in said.err


def test_it_needs_a_cluster(mislabel: Mislabel, write_spec: Callable[..., str]) -> None:
    said = mislabel("submit", write_spec())
    assert said.code == 2
    assert "--cluster" in said.err


def test_a_token_must_be_given(mislabel: Mislabel, write_spec: Callable[..., str], folder: Path) -> None:
    said = mislabel("submit", write_spec(), "--cluster", "http://127.0.0.1:9")
    assert said.code == 2
    assert "--token-file" in said.err
    said = mislabel("submit", write_spec(), "--cluster", "127.0.0.1", "--token-file", "token")
    assert said.code == 2
    assert "127.0.0.1" in said.err


def test_the_cluster_checks_specs_of_tasks_that_are_not_installed_here(
    mislabel: Mislabel, write_spec: Callable[..., str]
) -> None:
    said = mislabel("submit", write_spec(task="quite.another"), "--cluster", "http://127.0.0.1:9")
    assert "quite.another" in said.err
    assert "--token-file" in said.err


def test_a_login_has_only_plain_characters() -> None:
    assert login()
    assert all(letter.isalnum() or letter in "_.@-" for letter in login())
