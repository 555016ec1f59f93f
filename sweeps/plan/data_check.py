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
# Cells of a search's space that are looked at to know which data it may ask for.
_DRAWN = 256


class DataMissingError(MislabelError):
    """Data must be fetched before the sweep can run."""


def datasets_of(plan: Plan, files: SweepFiles) -> dict[str, str]:
    """The data sets that the plan's runs read, by name, with their checksums. One error for all that is wrong."""
    found: dict[str, str] = {}
    wrong: dict[str, None] = {}
    for values in _cells(plan):
        try:
            found |= plan.task.data(plan.task.settings(values))
        except (AbsentData, DataError) as error:
            wrong[str(error)] = None
    if wrong:
        raise DataMissingError("\n".join(wrong))
    if changed := changed_data(found, files):
        raise MislabelError(
            f"{files.address}: {', '.join(changed)} had other contents when its runs were trained; "
            "give the sweep another name, or bring back the data"
        )
    return found


def _cells(plan: Plan) -> Iterable[Mapping[str, Value]]:
    """A cell of each shape; of a search, whose cells are not known yet, one for all words that shapes may have."""
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
    """Of these data sets, those that an earlier launch of the sweep had with another checksum."""
    known = [launch.get("data") or {} for launch in files.launches()]
    return sorted({name for data in known for name in data if found.get(name, data[name]) != data[name]})


class OtherDataError(MislabelError):
    """A machine has other data than the sweep was launched with: mend it there, then retry the runs that failed."""


def refuse_other_data(task: Task[Any], order: PackOrder) -> None:
    """OtherDataError where the pack would read other contents here than where its sweep was launched.

    What is absent is left to the task, which fetches it as it was published, or says that it is absent.
    """
    other = {name: here for name, there in order.data.items() if (here := _checksum(name, there)) != there}
    # A task that is asked may look at every image: it is not, where all is well.
    if other and (wrong := _read(task, order, list(other))):
        raise OtherDataError("; ".join(_difference(name, other[name], order.data[name]) for name in wrong))


def _checksum(name: str, otherwise: str) -> str:
    """Of the data set as it is here, or the other one where it is absent, or a set that only the task knows."""
    try:
        return images(name).checksum
    except (AbsentData, DataError):
        return otherwise


def _read(task: Task[Any], order: PackOrder, names: list[str]) -> list[str]:
    """Those of the names that the pack reads, with other contents by the task's own account."""
    try:
        found = task.data(task.settings(order.values(0)))
    except AbsentData:
        return []
    except DataError:  # these contents lack something that the run asks for
        return names
    return [name for name in names if found.get(name, order.data[name]) != order.data[name]]


def _difference(name: str, here: str, there: str) -> str:
    folder = data_folder()
    return (
        f"on {platform.node()}, {name} has other contents ({here[:_SHOWN]}) than where the sweep was launched "
        f"({there[:_SHOWN]}); remove it from {shown(folder)} there, then copy it from where the sweep was launched "
        f"or fetch it with: {AbsentData(name, folder).command}"
    )
