"""Packs with slow steps and distant frames are checkpointed on time and lose nothing."""

from typing import Any

import pytest

from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.launch import prepare
from mislabel.sweeps.run.worker import Worker
from mislabel.sweeps.spec.document import Document
from mislabel.sweeps.store.store import Store
from tests.bowls import CPU, MACHINE, curves_of, orders_of

STEPS, PER_EPOCH = 12, 5
IMAGES: dict[str, Any] = {
    "name": "slow",
    "task": "clean_priority.images",
    "parameters": {
        "network": "cnn", "width": 2, "samples": 40, "test_samples": 20, "batch": 8, "noise_rate": 0.3,
        "optimizer": "momentum", "measured_samples": 16, "histogram_samples": 3, "steps": STEPS, "frames": 2,
        "learning_rate": {"values": [0.05, 0.1]},
    },
    "seeds": 1,
    "resources": {"pack": 2},
}  # fmt: skip


def ordered(store: Store) -> PackOrder:
    spec, task = checked_spec(Document("test", IMAGES))
    launch = prepare(spec, task, store).start(MACHINE)
    (order,) = orders_of(launch)
    return order


@pytest.mark.long
def test_a_pack_that_is_killed_within_an_epoch_continues_with_the_same_bits(
    store: Store, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Store(str(tmp_path_factory.mktemp("uninterrupted")))
    order = ordered(other)
    through = Worker(order, other.sweep("slow"), CPU)
    while not through.work(10.0).ends_pack:
        pass

    monkeypatch.setattr("mislabel.tasks.pack._STRETCH_SECONDS", 0.0)  # as if every step took longer than a stretch
    monkeypatch.setattr("mislabel.sweeps.run.worker.CHECKPOINT_SHARE", float("inf"))
    files = store.sweep("slow")
    order = ordered(store)
    first = Worker(order, files, CPU)
    while first.pack_group.step < 2:
        assert not first.work(0.0).ends_pack
    monkeypatch.setattr("mislabel.sweeps.run.worker.CHECKPOINT_SECONDS", 0.0)
    first.work(0.0)
    at = first.pack_group.step
    assert list(files.checkpoints())
    assert at == 3 < PER_EPOCH, "a checkpoint is due after a few steps, whenever the next frame is"
    monkeypatch.setattr("mislabel.sweeps.run.worker.CHECKPOINT_SECONDS", 600.0)
    first.work(0.0)  # what comes after the checkpoint is lost with the worker
    del first

    second = Worker(order, files, CPU)
    assert second.pack_group.step == at
    while not second.work(10.0).ends_pack:
        pass
    whole, resumed = curves_of(other.sweep("slow")), curves_of(files)
    assert resumed.equals(whole)
