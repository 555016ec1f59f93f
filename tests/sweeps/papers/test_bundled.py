"""Every bundled spec plans, at the paper's size and small."""

import pytest

from mislabel.sweeps.checks.reader import read_spec
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.papers.bundled import (
    bundled_name,
    chosen_experiments,
    examples,
    experiments,
    near_names,
    spec_names,
    spec_path,
    sweep_name,
)
from mislabel.sweeps.plan.plan import make_plan
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store


@pytest.mark.parametrize("quick", [False, True], ids=["paper", "quick"])
@pytest.mark.parametrize("experiment", experiments())
def test_every_bundled_spec_plans(experiment: str, quick: bool, store: Store) -> None:
    spec, task = read_spec(spec_path(experiment), quick=quick)
    assert spec.name == sweep_name(experiment, quick)
    plan = make_plan(spec, task, RunIndex(spec, store.sweep(spec.name)), store.sweep(spec.name))
    assert plan.missing == plan.runs > 0
    assert spec.seeds.count >= (3 if quick else 8), "intervals need seeds"
    (data,) = {str(group.values.get("data", "")) for group in plan.groups.values()}
    large = not quick and (data == "cifar10" or data.startswith("images/"))
    assert bool(spec.resources.gpu) == large, "days of one core want a GPU, and what is small does without"


def test_the_quickstart_plans(store: Store) -> None:
    spec, task = read_spec("quickstart")
    assert make_plan(spec, task, RunIndex(spec, store.sweep(spec.name)), store.sweep(spec.name)).runs == 40


def test_a_bundled_spec_has_a_full_name_and_a_short_one_if_that_is_unique() -> None:
    assert sorted([*experiments(), *examples()]) == spec_names()
    for name in spec_names():
        assert bundled_name(name) == name
    assert bundled_name("theorem1") == "xor-clusters/theorem1"
    assert bundled_name("quick") is None
    with pytest.raises(MislabelError, match=r"clean-priority/fig2, .*, xor-clusters/fig2"):
        bundled_name("fig2")


def test_examples_are_listed_and_refused_where_claims_are_checked() -> None:
    searches = ["clean-priority/search", "misclassification/search", "self-labeling/search"]
    assert sorted(examples()) == sorted([*searches, "quickstart"])
    for name in examples():
        assert bundled_name(name) == name
        with pytest.raises(MislabelError, match=f"mislabel run {name}"):
            chosen_experiments([name])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("quikstart", "quickstart"), ("xor_clusters/fig2", "xor-clusters/fig2"), ("theorm1", "theorem1")],
)
def test_a_near_name_is_suggested(wrong: str, right: str) -> None:
    assert right in near_names(wrong).rstrip("?").split()


def test_experiments_are_chosen_by_name_by_paper_or_all() -> None:
    assert chosen_experiments(()) == chosen_experiments(["all"]) == experiments()
    assert chosen_experiments(["xor-clusters/fig2"]) == ["xor-clusters/fig2"]
    assert chosen_experiments(["xor-clusters", "xor-clusters/fig2"]) == [
        name for name in experiments() if name.startswith("xor-clusters/")
    ]
    with pytest.raises(MislabelError, match="did you mean xor-clusters/fig2"):
        chosen_experiments(["xor-cluster/fig2"])


@pytest.mark.parametrize("name", ["nothing/like/it", "../../etc/passwd", ""])
def test_an_experiment_that_is_not_bundled_is_refused(name: str) -> None:
    with pytest.raises(MislabelError, match="`mislabel reproduce` lists"):
        spec_path(name)
