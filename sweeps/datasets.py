"""The data that a sweep's runs read: it must be there before anything starts, and be the same at every launch."""

from collections.abc import Mapping

from sweeps.errors import MislabelError
from sweeps.plan import Plan
from sweeps.store import SweepFiles
from tasks.data.images import AbsentData, DataError


class DataMissingError(MislabelError):
    """Data must be fetched before the sweep can run."""


def datasets_of(plan: Plan, files: SweepFiles) -> dict[str, str]:
    """The data sets that the plan's runs read, by name, with their checksums. One error for all that is wrong."""
    found: dict[str, str] = {}
    wrong: dict[str, None] = {}
    for group in plan.groups.values():
        try:
            found |= plan.task.data(plan.task.settings(group.values))
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


def changed_data(found: Mapping[str, str], files: SweepFiles) -> list[str]:
    """Of these data sets, those that an earlier launch of the sweep had with another checksum."""
    known = [launch.get("data") or {} for launch in files.launches()]
    return sorted({name for data in known for name in data if found.get(name, data[name]) != data[name]})
