"""Tune's trial: one pack, trained by a worker in an actor that Tune reuses for the next pack."""

from collections.abc import Iterator
from typing import Any

import ray
import torch
from ray import tune

from mislabel.cluster.tune.capacity import has_to_halt
from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.redaction import redacted
from mislabel.sweeps.run.report import OutOfMemory, Report, StoreBroken
from mislabel.sweeps.run.worker import reports
from mislabel.sweeps.store.filesystem import LONG_PATIENCE_SECONDS
from mislabel.sweeps.store.store import Store
from mislabel.tasks.data.folder import choose_folder


class PackTrainable(tune.Trainable):
    """Passes the reports of a worker to Tune, one per step."""

    def setup(self, config: dict[str, Any]) -> None:
        self._config = config
        self._reports: Iterator[Report] | None = None
        self._device = prepared_device(config["cpu"], config["gpu"], config["data"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        if self._reports is None:
            self._reports = self._new_reports()
        report = next(self._reports)
        if report.ends_pack:
            self._reports = None
            if isinstance(report, OutOfMemory) and torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # other packs on this GPU may need the memory
        return {"report": report, "done": report.ends_pack}

    def _new_reports(self) -> Iterator[Report]:
        config = self._config
        order = PackOrder(**config["order"])
        try:
            files = Store(config["store"], LONG_PATIENCE_SECONDS).sweep(order.sweep, config["generation"])
        except StoreError as error:
            return iter([StoreBroken(order.id, error=redacted(str(error)))])
        return reports(
            order, files, self._device, config["objectives"], config["lane_stopper"],
            lambda: has_to_halt(config["halt_key"], order.id), config["gpu"] or 1.0,
        )  # fmt: skip


def device_from_ray() -> torch.device:
    """The GPU that Ray gave this actor, else the CPU."""
    return torch.device("cuda" if ray.get_gpu_ids() and torch.cuda.is_available() else "cpu")


def prepared_device(cpu: float, gpu: float, data: str | None) -> torch.device:
    """Let this actor use no more than its share of the machine, and the driver's data folder; returns its device."""
    choose_folder(data)
    torch.set_num_threads(max(1, int(cpu)))
    device = device_from_ray()
    if device.type == "cuda" and gpu < 1:  # Ray counts shares of a GPU but does not enforce them
        torch.cuda.set_per_process_memory_fraction(gpu)
    return device
