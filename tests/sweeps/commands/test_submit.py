"""What is told before anything is sent; see tests/cluster/test_service.py for the rest."""

from collections.abc import Callable
from pathlib import Path

from mislabel.sweeps.commands.submit import login
from tests.sweeps.commands.conftest import Mislabel


def test_a_wrong_spec_is_not_sent(mislabel: Mislabel, write_spec: Callable[..., str]) -> None:
    said = mislabel("submit", write_spec(task="bwl"), "--cluster", "http://127.0.0.1:9")
    assert said.code == 2
    assert "did you mean bowl?" in said.err


def test_a_cluster_must_be_named_where_none_runs(mislabel: Mislabel, write_spec: Callable[..., str]) -> None:
    said = mislabel("submit", write_spec())
    assert said.code == 2
    assert "which cluster? name one with --cluster http://HOST:PORT" in said.err


def test_a_token_must_be_given(mislabel: Mislabel, write_spec: Callable[..., str], folder: Path) -> None:
    said = mislabel("submit", write_spec(), "--cluster", "http://127.0.0.1:9")
    assert said.code == 2
    assert "the cluster at 127.0.0.1:9 asks for its token: give the file with --token-file" in said.err
    said = mislabel("submit", write_spec(), "--cluster", "127.0.0.1", "--token-file", "token")
    assert "'127.0.0.1' is not the address of a job server" in said.err


def test_a_task_that_only_the_cluster_has_is_left_to_the_cluster_to_check(
    mislabel: Mislabel, write_spec: Callable[..., str]
) -> None:
    said = mislabel("submit", write_spec(task="quite.another"), "--cluster", "http://127.0.0.1:9")
    assert "quite.another is not installed on this machine: the cluster will check the spec" in said.err
    assert "asks for its token" in said.err


def test_an_owner_is_a_plain_word() -> None:
    assert login()
    assert all(letter.isalnum() or letter in "_.@-" for letter in login())
