"""Check the data sets that runs read: present before a launch, and the same at every launch and on every machine.

The machines of a cluster may each have their own data folder. If a data set differs between machines, runs trained on
it would be stored under the checksum of the driver's data set. Workers therefore refuse a data set that differs.
"""

import platform
from collections.abc import Iterable, Mapping
from typing import Any

from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.plan.plan import Plan
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.data.folder import data_folder, shown
from mislabel.tasks.data.images import AbsentData, DataError, images
from mislabel.tasks.parameters import Value
from mislabel.tasks.task import Task

_SHOWN = len("sha256:") + 8
# How many cells are drawn from a search's space to find the data sets that it may read.
_DRAWN = 256


class DataMissingError(MislabelError):
    """The sweep needs data sets that must be fetched first."""


def datasets_of(plan: Plan, files: SweepFiles) -> dict[str, str]:
    """The data sets that the plan's runs read, with their checksums. Raises one error for everything that is wrong."""
    found: dict[str, str] = {}
    wrong: dict[str, None] = {}
    for values in _cells(plan):
        try:
            found |= plan.task.data(plan.task.settings(values))
        except (AbsentData, DataError) as error:
            wrong[str(error)] = None
    if wrong:
        raise DataMissingError("\n".join(wrong))
    if changed := ", ".join(changed_data(found, files)):
        advice = "give the sweep another name, or restore the data"
        raise MislabelError(f"{files.address}: {changed} had other contents when its runs were trained; {advice}")
    return found


def _cells(plan: Plan) -> Iterable[Mapping[str, Value]]:
    """A cell of each shape. For a search, a cell for each combination of the text values of shape parameters."""
    if not plan.spec.method.learns:
        return [group.values for group in plan.groups.values()]
    words = [name for name, each in plan.task.parameters.items() if each.kind == "shape" and each.type is str]
    found: dict[tuple[Value, ...], Mapping[str, Value]] = {}
    for branch in plan.space.branches():
        for cells in branch.drawn(_DRAWN):
            for i in range(len(cells)):
                values = cells.values(i)
                found.setdefault(tuple(values[name] for name in words), values)
    return found.values()


def changed_data(found: Mapping[str, str], files: SweepFiles) -> list[str]:
    """Those of the data sets that had another checksum in an earlier launch of the sweep."""
    known = [launch.get("data") or {} for launch in files.launches()]
    return sorted({name for data in known for name in data if found.get(name, data[name]) != data[name]})


class OtherDataError(MislabelError):
    """A data set differs between machines: correct it there, then retry the failed runs."""


def refuse_other_data(task: Task[Any], order: PackOrder) -> None:
    """Raise OtherDataError if a data set that the pack reads differs from the driver's.

    Missing data sets are left to the task: it fetches the published version, or raises an error.
    """
    other = {name: here for name, there in order.data.items() if (here := _checksum(name, there)) != there}
    # The task may read every image to answer, so we ask only if a checksum differs.
    if other and (wrong := _read(task, order, list(other))):
        folder = data_folder()
        raise OtherDataError(
            "; ".join(
                f"on {platform.node()}, {name} has other contents ({other[name][:_SHOWN]}) than where the sweep was "
                f"launched ({order.data[name][:_SHOWN]}); remove it from {shown(folder)} there, then copy it from "
                f"where the sweep was launched or fetch it with: {AbsentData(name, folder).command}"
                for name in wrong
            )
        )


def _checksum(name: str, otherwise: str) -> str:
    """The checksum of the data set on this machine; `otherwise` if it is missing or only the task knows it."""
    try:
        return images(name).checksum
    except (AbsentData, DataError):
        return otherwise


def _read(task: Task[Any], order: PackOrder, names: list[str]) -> list[str]:
    """Those of the data sets that the pack reads and that the task finds to be different."""
    try:
        found = task.data(task.settings(order.values(0)))
    except AbsentData:
        return []
    except DataError:  # the data set lacks something that the run needs
        return names
    return [name for name in names if found.get(name, order.data[name]) != order.data[name]]
