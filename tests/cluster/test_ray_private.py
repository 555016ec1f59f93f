import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mislabel.cluster import ray_private
from mislabel.cluster.ray_private import (
    is_head,
    job_metadata,
    read_note,
    release_idle_actors,
    remove_note,
    write_note,
)
from mislabel.cluster.tune.runner import connected

PRODUCT = Path(__file__).parents[2]


@pytest.mark.long
def test_no_other_module_uses_a_private_interface_of_ray() -> None:
    private = ("internal_kv", "_cleanup_cached_actors", "__internal_head__", "RAY_JOB_CONFIG_JSON_ENV_VAR")
    found = [
        f"{path.name}: {ast.dump(node)}"
        for folder in ("tasks", "sweeps", "cluster", "analysis")
        for path in (PRODUCT / folder).rglob("*.py")
        if path.name != "ray_private.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if any(name in str(value) for value in vars(node).values() if isinstance(value, str) for name in private)
    ]
    assert found == []


def test_the_metadata_of_a_job_leave_the_environment() -> None:
    environment = {"RAY_JOB_CONFIG_JSON_ENV_VAR": '{"metadata": {"sweep": "bowls"}}', "HOME": "/home/ben"}
    assert job_metadata(environment) == ({"sweep": "bowls"}, {"HOME": "/home/ben"})
    assert job_metadata({}) == ({}, {})


def test_the_head_is_known_by_a_resource() -> None:
    assert is_head({"CPU": 2.0, "node:__internal_head__": 1.0})
    assert not is_head({"CPU": 2.0})


def test_a_tune_without_the_interface_keeps_its_actors() -> None:
    class Controller:
        released = False

        def _cleanup_cached_actors(self, force_all: bool) -> None:
            self.released = force_all

    controller = Controller()
    release_idle_actors(controller)
    assert controller.released
    release_idle_actors(object())


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    with connected(None):
        yield


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("has_key_values", [True, False])
def test_notes_are_read_written_and_removed(
    local_ray: None, monkeypatch: pytest.MonkeyPatch, has_key_values: bool
) -> None:
    if not has_key_values:
        nothing: Any = lambda: None  # noqa: E731
        monkeypatch.setattr(ray_private, "_key_values", nothing)
    key = f"note-{has_key_values}"
    assert read_note(key) is None
    write_note(key, "halt")
    assert read_note(key) == "halt"
    remove_note(key)
    assert read_note(key) is None
