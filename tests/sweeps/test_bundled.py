from pathlib import Path

import pytest

from sweeps.bundled import chosen_experiments, experiments, spec_path, sweep_name
from sweeps.check import read_spec
from sweeps.errors import MislabelError


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("experiment", experiments())
def test_every_bundled_spec_is_good_and_named_after_its_experiment(experiment: str, quick: bool) -> None:
    spec, _ = read_spec(spec_path(experiment), quick=quick)
    assert spec.name == sweep_name(experiment, quick)


def test_the_quickstart_is_good() -> None:
    path = Path(spec_path(experiments()[0])).parent.parent / "quickstart.yaml"
    assert read_spec(str(path))[0].name == "quickstart"


def test_experiments_are_chosen_by_name_by_paper_or_all() -> None:
    everything = experiments()
    assert chosen_experiments([]) == chosen_experiments(["all"]) == everything
    first = everything[0]
    paper = first.split("/")[0]
    assert chosen_experiments([first]) == [first]
    assert chosen_experiments([paper]) == [name for name in everything if name.startswith(f"{paper}/")]
    assert chosen_experiments([first, paper, first]) == [
        first, *(name for name in everything if name.startswith(f"{paper}/") and name != first)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["xor-cluster/theorem1", "nothing/like/it", "../../etc/passwd", ""])
def test_an_experiment_that_is_not_bundled_is_refused(name: str) -> None:
    with pytest.raises(MislabelError, match=f"{name!r} is not a bundled experiment; "):
        chosen_experiments([name])
    with pytest.raises(MislabelError, match="is not a bundled experiment; "):
        spec_path(name)


def test_a_near_miss_is_offered() -> None:
    with pytest.raises(MislabelError, match=r"did you mean xor-clusters/theorem1\?"):
        spec_path("xor-clusters/theorem")
