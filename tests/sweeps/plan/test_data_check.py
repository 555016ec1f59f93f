import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.plan.data_check import DataMissingError, OtherDataError, refuse_other_data
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.launch import Launch, plan_sweep, prepare, run_inline
from mislabel.sweeps.spec.document import Document
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.store import Store
from mislabel.tasks.data import images
from mislabel.tasks.data.folder import data_folder
from mislabel.tasks.task import Task
from tests.bowls import BOWL, CPU, MACHINE, bowl_spec, run

DOTS = "images/dots"
SMALL = {"classes": "", "width": 8, "batch": 10, "noise_rate": 0.3, "steps": 40, "frames": 5, "measured_samples": 10}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with dots."""
    monkeypatch.setenv("MISLABEL_DATA", str(tmp_path / "data"))
    keep_dots()
    return tmp_path / "data"


def keep_dots(light: int = 0, count: int = 40) -> None:
    """Store pictures of dots; `light` changes the pictures but not their name."""
    x = torch.arange(count * 64).remainder(199).to(torch.uint8).view(count, 1, 8, 8) + light
    y = torch.arange(count) % 2
    images.keep(DOTS, (x, y), (x, y), ["few", "many"], data_folder())


def launched(store: Store, retry: bool = False, name: str = "dots", **parameters: Any) -> Launch:
    values = {
        "name": name,
        "task": "clean_priority.images",
        "parameters": {"data": DOTS, **SMALL, **parameters},
        "seeds": 2,
        "resources": {"pack": 2},
    }
    spec, task = checked_spec(Document("test", values))
    return prepare(spec, task, store, retry).start(MACHINE)


def finished(launch: Launch, show: Callable[[], None] = lambda: None) -> dict[str, int]:
    """Finish the launch; returns how its runs ended."""
    run_inline(launch.driver, launch.files, CPU, show)
    launch.finish()
    return {status.value: count for status, count in launch.driver.progress.statuses.items()}


@pytest.mark.long
def test_runs_fail_if_a_data_set_differs_from_the_drivers(store: Store, folder: Path) -> None:
    launch = launched(store)
    there = images.images(DOTS).checksum
    keep_dots(light=7)
    here = images.images(DOTS).checksum
    assert finished(launch) == {"failed": 2}
    rows = launch.files.read("runs", ["status", "error"]).to_pylist()
    assert [row["status"] for row in rows] == ["failed", "failed"]
    first = rows[0]["error"].splitlines()[0]
    assert first == (
        f"OtherDataError: on {platform.node()}, images/dots has other contents ({here[:15]}) than where the sweep was "
        f"launched ({there[:15]}); remove it from {folder} there, then copy it from where the sweep was launched or "
        f"fetch it with: {images.AbsentData(DOTS, folder).command}"
    )
    assert here[:15] != there[:15]


@pytest.mark.long
def test_runs_can_be_retried_once_the_data_set_is_corrected(store: Store) -> None:
    launch = launched(store)
    keep_dots(light=7)
    finished(launch)
    keep_dots()
    assert finished(launched(store, retry=True)) == {"done": 2}


@pytest.mark.long
def test_packs_that_read_other_data_sets_are_trained(store: Store) -> None:
    launch = launched(store, data={"values": [DOTS, "digits"]})
    keep_dots(light=7)
    assert finished(launch) == {"done": 2, "failed": 2}
    rows = launch.files.read("runs", ["data", "status"]).to_pylist()
    assert {(row["data"], row["status"]) for row in rows} == {(DOTS, "failed"), ("digits", "done")}


@pytest.mark.long
def test_a_data_set_that_lacks_samples_counts_as_different(store: Store) -> None:
    launch = launched(store, samples=30)
    keep_dots(count=20)
    assert finished(launch) == {"failed": 2}
    assert all(error.startswith("OtherDataError") for error in launch.driver.errors.values())


def test_absent_data_is_left_to_the_task(store: Store, folder: Path) -> None:
    launch = launched(store)
    (folder / "converted" / f"{DOTS}.pt").unlink()
    images.forget()
    assert finished(launch) == {"failed": 2}
    assert all(DOTS in error.splitlines()[0] for error in launch.driver.errors.values())


@pytest.mark.parametrize("light", [0, 7])
def test_a_pack_continues_from_a_checkpoint_only_with_the_same_data(
    store: Store, monkeypatch: pytest.MonkeyPatch, light: int
) -> None:
    monkeypatch.setattr("mislabel.sweeps.run.worker.STRETCH_SECONDS", 0.0)
    first = launched(store)
    finished(first, lambda: first.driver.stop(INTERRUPTED))
    assert list(first.files.checkpoints())
    second = launched(store)
    assert len(second.plan.resumed) == 1
    keep_dots(light)
    assert finished(second) == {"failed" if light else "done": 2}


@pytest.mark.long
def test_data_is_also_checked_in_a_sweep_with_reused_runs(store: Store) -> None:
    assert finished(launched(store)) == {"done": 2}
    wider = launched(store, name="wider", noise_rate={"values": [0.3, 0.4]})
    assert wider.plan.missing == 2
    keep_dots(light=7)
    assert finished(wider) == {"failed": 2}


def test_a_task_without_data_has_nothing_to_compare(store: Store) -> None:
    launch = run(store)
    assert launch.plan.data == {}
    assert launch.driver.progress.statuses == {"done": 6}


def test_the_checksums_of_the_task_count() -> None:
    task = replace(BOWL, data=lambda params: {DOTS: "of another kind"})
    values = {name: parameter.default for name, parameter in BOWL.parameters.items()}
    order = PackOrder("s", "bowl", values, {}, ["a"], [0], data={DOTS: "of another kind"})
    refuse_other_data(task, order)
    with pytest.raises(OtherDataError, match="images/dots"):
        refuse_other_data(task, replace(order, data={DOTS: "of a third kind"}))


def test_no_image_is_read_if_the_checksums_agree() -> None:
    def look(params: Any) -> dict[str, str]:
        raise AssertionError("looked at images")

    order = PackOrder("s", "bowl", {}, {}, ["a"], [0], data={DOTS: images.images(DOTS).checksum})
    refuse_other_data(replace(BOWL, data=look), order)


def reading(data: Callable[[Any], Mapping[str, str]]) -> Task[Any]:
    return replace(BOWL, data=data)


def run_task(store: Store, task: Task[Any], **changes: Any) -> None:
    launch = prepare(bowl_spec(**changes), task, store).start(MACHINE)
    run_inline(launch.driver, launch.files, CPU, lambda: None)
    launch.finish()


def test_the_checksums_of_data_are_in_the_provenance(store: Store) -> None:
    run_task(store, reading(lambda params: images.checksums("digits")))
    (launch,) = store.sweep("bowls").launches()
    assert launch["data"] == {"digits": images.images("digits").checksum}


def test_missing_data_is_reported_before_anything_starts(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MISLABEL_DATA", str(tmp_path))
    task = reading(lambda params: images.checksums("digits" if params.width == 2 else "mnist"))
    wide: dict[str, Any] = {"parameters": {"width": {"values": [2, 3, 4]}}}
    text = str(images.AbsentData("mnist", tmp_path))
    with pytest.raises(DataMissingError) as planned:
        plan_sweep(bowl_spec(**wide), task, store, MACHINE)
    with pytest.raises(DataMissingError) as launched:
        prepare(bowl_spec(**wide), task, store)
    assert str(planned.value) == str(launched.value) == text
    assert store.names() == []


def test_a_search_needs_all_data_that_it_may_read(
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
        prepare(spec, task, store)
    lines = sorted(str(absent.value).splitlines())
    assert [line.split(" is not in ")[0] for line in lines] == ["images/birds", "mnist"]


def test_changed_data_is_refused(store: Store) -> None:
    run_task(store, reading(lambda params: {"images": "sha256:1"}))
    run_task(store, reading(lambda params: {"images": "sha256:1"}), seeds=3)
    with pytest.raises(MislabelError, match="images"):
        run_task(store, reading(lambda params: {"images": "sha256:2"}), seeds=4)
    assert len(store.sweep("bowls").launches()) == 2


@pytest.mark.long
def test_runs_on_other_data_are_not_reused_from_another_sweep(store: Store, messages: list[str]) -> None:
    run_task(store, reading(lambda params: {"images": "sha256:1"}))
    for name, checksum, adopted in (("other", "sha256:2", 0), ("same", "sha256:1", 6)):
        task = reading(lambda params, checksum=checksum: {"images": checksum})  # type: ignore[misc]
        assert sum(plan_sweep(bowl_spec(name=name), task, store, MACHINE).elsewhere.values()) == adopted
        launch = prepare(bowl_spec(name=name), task, store)
        assert launch.plan.missing == 6 - adopted
        assert len(messages) == bool(adopted)


def test_tasks_without_data_need_none(store: Store) -> None:
    run_task(store, BOWL)
    assert store.sweep("bowls").launches()[0]["data"] == {}
