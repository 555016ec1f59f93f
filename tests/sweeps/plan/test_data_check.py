from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.plan.data_check import DataMissingError
from mislabel.sweeps.run.inline import run_inline
from mislabel.sweeps.run.launch import plan_sweep, prepare
from mislabel.sweeps.spec.document import Document
from mislabel.sweeps.store.store import Store
from mislabel.tasks.data import images
from mislabel.tasks.task import Task
from tests.bowls import BOWL, CPU, MACHINE, bowl_spec


def reading(data: Callable[[Any], Mapping[str, str]]) -> Task[Any]:
    return replace(BOWL, data=data)


def run(store: Store, task: Task[Any], **changes: Any) -> None:
    launch = prepare(bowl_spec(**changes), task, store, lambda text: None)
    launch.equip(MACHINE)
    run_inline(launch.driver, launch.files, CPU, lambda: None)
    launch.finish()


def test_the_checksums_of_data_are_in_the_provenance(store: Store) -> None:
    run(store, reading(lambda params: images.checksums("digits")))
    (launch,) = store.sweep("bowls").launches()
    assert launch["data"] == {"digits": images.images("digits").checksum}


def test_absent_data_is_told_before_anything_starts(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MISLABEL_DATA", str(tmp_path))
    task = reading(lambda params: images.checksums("digits" if params.width == 2 else "mnist"))
    wide: dict[str, Any] = {"parameters": {"width": {"values": [2, 3, 4]}}}
    text = str(images.AbsentData("mnist", tmp_path))
    with pytest.raises(DataMissingError) as planned:
        plan_sweep(bowl_spec(**wide), task, store, MACHINE)
    with pytest.raises(DataMissingError) as launched:
        prepare(bowl_spec(**wide), task, store, lambda text: None)
    assert str(planned.value) == str(launched.value) == text
    assert store.names() == []


def test_a_search_needs_all_data_that_it_may_ask_for(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MISLABEL_DATA", str(tmp_path))
    values: dict[str, Any] = {
        "name": "search",
        "task": "clean_priority.images",
        "method": "tpe",
        "metric": {"name": "test_error", "goal": "minimize"},
        "parameters": {
            "data": {"values": ["digits", "mnist", "images/birds", "cifar10"]},
            "learning_rate": {"min": 0.01, "max": 0.1},
        },
        "exclude": ["data == 'cifar10'"],
        "budget": {"cells": 4},
        "seeds": 1,
    }
    spec, task = checked_spec(Document("test", values))
    with pytest.raises(DataMissingError) as absent:
        prepare(spec, task, store, lambda text: None)
    lines = sorted(str(absent.value).splitlines())
    assert [line.split(" is not in ")[0] for line in lines] == ["images/birds", "mnist"]


def test_data_that_changed_is_not_mixed_with_what_it_was(store: Store) -> None:
    run(store, reading(lambda params: {"images": "sha256:1"}))
    run(store, reading(lambda params: {"images": "sha256:1"}), seeds=3)
    with pytest.raises(MislabelError, match="images had other contents when its runs were trained"):
        run(store, reading(lambda params: {"images": "sha256:2"}), seeds=4)
    assert len(store.sweep("bowls").launches()) == 2


def test_runs_on_other_data_are_not_taken_over_from_another_sweep(store: Store) -> None:
    run(store, reading(lambda params: {"images": "sha256:1"}))
    for name, checksum, adopted in (("other", "sha256:2", 0), ("same", "sha256:1", 6)):
        task = reading(lambda params, checksum=checksum: {"images": checksum})  # type: ignore[misc]
        said: list[str] = []
        assert sum(plan_sweep(bowl_spec(name=name), task, store, MACHINE).elsewhere.values()) == adopted
        launch = prepare(bowl_spec(name=name), task, store, said.append)
        assert launch.plan.missing == 6 - adopted
        assert len(said) == bool(adopted)


def test_tasks_without_data_need_none(store: Store) -> None:
    run(store, BOWL)
    assert store.sweep("bowls").launches()[0]["data"] == {}
