"""The bundled specs: one per figure, table or theorem of a paper, and the quickstart."""

from collections.abc import Sequence
from pathlib import Path

from mislabel.sweeps.errors import MislabelError, nearest

_FOLDER = Path(__file__).parent / "specs"


def experiments() -> list[str]:
    """The names of all experiments, paper and figure, such as `misclassification/fig1`."""
    return sorted(f"{path.parent.name}/{path.stem}" for path in _FOLDER.glob("*/*.yaml"))


def chosen_experiments(names: Sequence[str]) -> list[str]:
    """All experiments without names or with `all`; else the named experiments and those of the named papers."""
    known = experiments()
    if not names or "all" in names:
        return known
    chosen: list[str] = []
    for name in names:
        of_paper = [experiment for experiment in known if experiment.startswith(f"{name}/")]
        chosen += of_paper or [_known(name)]
    return list(dict.fromkeys(chosen))


def spec_path(experiment: str) -> str:
    """The file of an experiment's spec."""
    return str(_FOLDER / f"{_known(experiment)}.yaml")


def sweep_name(experiment: str, quick: bool) -> str:
    """The name of the experiment's sweep in a store."""
    return experiment.replace("/", ".") + ("-quick" if quick else "")


def _known(experiment: str) -> str:
    known = experiments()
    if experiment not in known:
        hint = nearest(experiment, known) or "; `mislabel reproduce` lists them"
        raise MislabelError(f"{experiment!r} is not a bundled experiment{hint}")
    return experiment
