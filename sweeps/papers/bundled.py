"""The bundled specs, which commands take by name: one per figure, table or theorem, searches, and the quickstart."""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from mislabel.sweeps.errors import MislabelError, nearest

_FOLDER = Path(__file__).parent / "specs"


def spec_names() -> list[str]:
    """The names of all bundled specs, such as `quickstart` and `misclassification/fig1`."""
    return sorted(path.relative_to(_FOLDER).with_suffix("").as_posix() for path in _FOLDER.rglob("*.yaml"))


def experiments() -> list[str]:
    """The names of the papers' experiments, such as `misclassification/fig1`. They have claims; examples have none."""
    return [name for name in spec_names() if not _is_example(name)]


def examples() -> list[str]:
    """The names of the specs without claims: the quickstart, and for some papers a `search`."""
    return [name for name in spec_names() if _is_example(name)]


def _is_example(name: str) -> bool:
    return name.rpartition("/")[2] in ("quickstart", "search")


def bundled_name(name: str) -> str | None:
    """The full name of the bundled spec of this name, or None. The paper may be left out if one paper alone has it.

    `theorem1` stands for `xor-clusters/theorem1`. A name that stands for several specs is refused.
    """
    known = spec_names()
    found = [name] if name in known else [each for each in known if each.endswith(f"/{name}")]
    if len(found) > 1:
        raise MislabelError(f"{name!r} is the name of several bundled specs: {', '.join(found)}")
    return found[0] if found else None


def spec_path(name: str) -> str:
    """The file of a bundled spec."""
    return str(_FOLDER / f"{_known(name)}.yaml")


def description(name: str) -> str:
    """The comment at the top of a bundled spec."""
    lines = Path(spec_path(name)).read_text().splitlines()
    return " ".join(line.lstrip("# ").strip() for line in takewhile(lambda line: line.startswith("#"), lines))


def near_names(name: str) -> str:
    """A suggestion for a name that no bundled spec has."""
    known = spec_names()
    near = nearest(name, known) or nearest(name, [each.rpartition("/")[2] for each in known])
    return near or "; `mislabel reproduce` lists the bundled specs"


def chosen_experiments(names: Sequence[str]) -> list[str]:
    """All experiments without names or with `all`; else the named experiments and those of the named papers."""
    known = experiments()
    if not names or "all" in names:
        return known
    chosen: list[str] = []
    for name in names:
        of_paper = [experiment for experiment in known if experiment.startswith(f"{name}/")]
        chosen += of_paper or [_known(name)]
    for name in chosen:
        if name not in known:
            raise MislabelError(f"{name} is an example and has no claims; `mislabel run {name}` runs it")
    return list(dict.fromkeys(chosen))


def sweep_name(experiment: str, quick: bool) -> str:
    """The name of the experiment's sweep in a store."""
    return experiment.replace("/", ".") + ("-quick" if quick else "")


def experiment_of(sweep: str) -> str | None:
    """The experiment whose sweep, or whose small version's sweep, has this name; None if there is none."""
    paper, _, part = sweep.removesuffix("-quick").partition(".")
    name = f"{paper}/{part}"
    return name if part and (_FOLDER / f"{name}.yaml").is_file() and not _is_example(name) else None


def _known(name: str) -> str:
    found = bundled_name(name)
    if found is None:
        raise MislabelError(f"{name!r} is not a bundled spec{near_names(name)}")
    return found
