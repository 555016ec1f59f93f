"""The data that a sweep's runs read: it must be there before anything starts, and be the same at every launch."""

from collections.abc import Iterable, Mapping

from mislabel.sweeps.cells.space import Space, branches
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.plan.plan import Plan
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.data.images import AbsentData, DataError
from mislabel.tasks.parameters import Value

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
    for branch in branches(plan.spec, plan.task):
        for cells in Space(branch, plan.task).drawn(_DRAWN):
            for i in range(len(cells)):
                values = cells.values(i)
                found.setdefault(tuple(values[name] for name in words), values)
    return found.values()


def changed_data(found: Mapping[str, str], files: SweepFiles) -> list[str]:
    """Of these data sets, those that an earlier launch of the sweep had with another checksum."""
    known = [launch.get("data") or {} for launch in files.launches()]
    return sorted({name for data in known for name in data if found.get(name, data[name]) != data[name]})
