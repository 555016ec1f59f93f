"""Whether data sets have the same contents on the machine of a worker as where its sweep was launched.

The machines of a cluster may each have a data folder of their own. Where one of them has other images under a name,
runs trained there would stand in the store under the checksum of the driver's.
"""

import platform
from typing import Any

from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.tasks.data.folder import data_folder, shown
from mislabel.tasks.data.images import AbsentData, DataError, images
from mislabel.tasks.task import Task

_SHOWN = len("sha256:") + 8


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
