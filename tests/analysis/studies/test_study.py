import math
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from matplotlib import pyplot as plt
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from optuna.visualization import matplotlib as drawings

import mislabel
from mislabel.analysis.studies.study import is_spaced_by_factors, widened
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import Store
from tests.bowls import bowl_spec, cut_short, run

pytestmark = pytest.mark.long

PARAMETERS: dict[str, Any] = {
    "x": {"values": [0, 1, 2]},
    "rate": {"min": 0.01, "max": 1, "scale": "log", "points": 3},
    "surface": {"values": ["smooth", "rough"]},
    "width": {"values": [1, 2, 4, 8]},
    "level": {"min": 1, "max": 4, "points": 2, "when": "x > 0 and surface == 'rough'"},
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    store = Store(str(tmp_path_factory.mktemp("store")))
    run(store, parameters=PARAMETERS, seeds=3, resources={"pack": 500})
    return mislabel.load(store.address, "bowls")


def test_every_cell_is_a_trial_with_its_mean(sweep: Sweep) -> None:
    study = sweep.study()
    cells = sweep.cells("loss").set_index("cell_id")
    assert study.direction == optuna.study.StudyDirection.MINIMIZE
    assert {trial.user_attrs["cell_id"] for trial in study.trials} == set(cells.index)
    for trial in study.trials:
        row = cells.loc[trial.user_attrs["cell_id"]]
        assert trial.state == TrialState.COMPLETE
        assert trial.value == row["mean"]
        assert trial.user_attrs["seeds"] == 3
        assert trial.user_attrs["loss_std_error"] == pytest.approx(row["std"] / math.sqrt(3))
        assert {name: row[name] for name in trial.params} == trial.params
        assert trial.duration is not None
    assert study.best_value == cells["mean"].min()


def test_lists_of_numbers_become_ranges(sweep: Sweep) -> None:
    found = {name: d for trial in sweep.study().trials for name, d in trial.distributions.items()}
    assert found == {
        "x": FloatDistribution(0, 2),
        "rate": FloatDistribution(0.01, 1, log=True),
        "surface": CategoricalDistribution(["smooth", "rough"]),
        "width": IntDistribution(1, 8, log=True),
        "level": IntDistribution(1, 4),
    }


def test_a_trial_has_a_parameter_if_its_condition_holds(sweep: Sweep) -> None:
    trials = sweep.study().trials
    for trial in trials:
        assert ("level" in trial.params) == (trial.params["x"] > 0 and trial.params["surface"] == "rough")
    assert 0 < sum("level" in trial.params for trial in trials) < len(trials)


def test_intermediate_values_are_the_mean_curve(sweep: Sweep) -> None:
    curve = sweep.curve("loss", by="cell_id")
    trial = sweep.study().trials[5]
    own = curve[curve["cell_id"] == trial.user_attrs["cell_id"]]
    assert trial.intermediate_values == dict(zip(own["step"], own["mean"], strict=True))
    assert trial.intermediate_values[trial.last_step or 0] == trial.value
    assert sweep.study(curves=False).trials[5].intermediate_values == {}


def test_any_metric_can_be_studied_with_a_goal(sweep: Sweep) -> None:
    study = sweep.study("height", goal="maximize")
    assert study.best_value == pytest.approx(sweep.cells("height")["mean"].max())
    several = sweep.study(["loss", "height"], goal=["minimize", "maximize"])
    assert [direction.name for direction in several.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert all(len(trial.values) == 2 for trial in several.trials)
    assert several.metric_names == ["loss", "height"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": "height"}, "height.*minimize.*maximize"),
        ({"metric": "loss", "goal": "up"}, "loss.*'up'.*minimize.*maximize"),
        ({"metric": "los"}, r"'los'.*bowls.*\bloss\?"),
        ({"metric": ["loss", "height"], "goal": ["minimize"]}, "2 metrics.*1"),
    ],
)
def test_wrong_metrics_and_goals_are_refused(sweep: Sweep, arguments: Any, message: str) -> None:
    with pytest.raises(MislabelError, match=message):
        sweep.study(**arguments)


def test_a_sweep_without_objective_needs_a_metric(store: Store) -> None:
    run(store, metric=None)
    sweep = mislabel.load(store.address, "bowls")
    with pytest.raises(MislabelError, match="bowls"):
        sweep.study()
    assert len(sweep.study("loss", goal="minimize").trials) == 3


def test_stopped_cells_are_pruned_and_cells_without_a_value_fail(store: Store) -> None:
    parameters = {"x": {"values": [0, 1, 2, 3]}, "trouble": {"values": [0, 1, 2], "when": "x == 3"}, "frames": 5}
    run(store, parameters=parameters, seeds=2)
    files = store.sweep("bowls")
    runs = mislabel.load(store.address, "bowls").runs
    step = sorted(mislabel.load(store.address, "bowls").curves["step"].unique())[2]
    cut_short(files, runs.loc[(runs["x"] == 1) & (runs["seed"] == 0), "run_id"].tolist(), step)
    study = mislabel.load(store.address, "bowls").study()
    states = {(t.params["x"], t.params.get("trouble", 0)): t.state.name for t in study.trials}
    assert states == {
        (0, 0): "COMPLETE", (1, 0): "PRUNED", (2, 0): "COMPLETE", (3, 0): "COMPLETE", (3, 1): "FAIL", (3, 2): "FAIL"
    }  # fmt: skip
    (pruned,) = study.get_trials(states=(TrialState.PRUNED,))
    assert pruned.values is None
    # The curve ends at the last step at which both runs have a value.
    assert max(pruned.intermediate_values) == step
    assert pruned.user_attrs["stopped"] == 1
    assert study.best_params["x"] == 3


def test_distributions_contain_cells_outside_of_the_spec(store: Store) -> None:
    run(store, parameters={"x": {"values": [0, 5]}, "surface": {"values": ["smooth", "rough"]}})
    narrow = bowl_spec(parameters={"x": {"values": [0, 1]}, "surface": {"values": ["smooth"]}})
    store.sweep("bowls").write_text("spec.yaml", narrow.to_yaml())
    study = mislabel.load(store.address, "bowls").study()
    assert {trial.params["x"] for trial in study.trials} == {0, 5}
    assert study.trials[0].distributions["x"] == FloatDistribution(0, 5)
    assert study.trials[0].distributions["surface"] == CategoricalDistribution(["smooth", "rough"])


def test_distributions_are_widened_to_contain_all_values() -> None:
    assert widened(FloatDistribution(0, 1, step=0.5), [0.5, 1.0]) == FloatDistribution(0, 1, step=0.5)
    assert widened(FloatDistribution(0, 1, step=0.5), [0.3]) == FloatDistribution(0, 1)
    assert widened(IntDistribution(1, 8, log=True), [0, 3]) == IntDistribution(0, 8)
    assert widened(IntDistribution(1, 8, log=True), [16]) == IntDistribution(1, 16, log=True)


@pytest.mark.parametrize(
    ("numbers", "log"),
    [
        ([1, 2, 3, 4], False),
        ([1, 2, 4, 8], True),
        ([0.01, 0.03, 0.1, 0.3, 1], True),
        ([0, 1, 10, 100], False),
        ([-1, 1], False),
        ([1, 2], False),
        ([0.1, 10], True),
        ([5], False),
    ],
)
def test_a_list_of_numbers_has_a_log_scale_if_it_is_spaced_by_factors(numbers: list[float], log: bool) -> None:
    assert is_spaced_by_factors(numbers) is log


PLAIN = (
    "plot_contour", "plot_edf", "plot_intermediate_values", "plot_optimization_history", "plot_parallel_coordinate",
    "plot_param_importances", "plot_rank", "plot_slice", "plot_timeline",
)  # fmt: skip


@pytest.mark.parametrize("plot", PLAIN)
def test_optuna_plots_the_study(sweep: Sweep, plot: str) -> None:
    with plt.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = getattr(drawings, plot)(sweep.study())
        axes = np.atleast_1d(drawn).ravel()
        assert any(axis.has_data() for axis in axes)
        plt.close("all")


def test_optuna_plots_the_front_of_several_objectives(sweep: Sweep) -> None:
    study = sweep.study(["loss", "height"], goal=["minimize", "maximize"])
    with plt.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert drawings.plot_pareto_front(study).has_data()
        plt.close("all")


def test_optuna_draws_interactive_plots_of_the_study(sweep: Sweep) -> None:
    """These need plotly, which Optuna does not install."""
    drawn = optuna.visualization.plot_slice(sweep.study(curves=False))
    assert sweep.varying[0] in drawn.to_html(include_plotlyjs=False)


def test_a_study_is_made_without_torch_and_without_output(sweep: Sweep) -> None:
    script = (
        "import sys, warnings, mislabel\n"
        "warnings.simplefilter('error')\n"
        f"mislabel.load({str(Path(sweep.files.address).parent)!r}, 'bowls').study()\n"
        "print([name for name in ('torch', 'ray', 'mlflow', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
