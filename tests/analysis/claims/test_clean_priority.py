"""The learning dynamics of a run, read from curves whose dynamics are known."""

import numpy as np
import pandas as pd
import pytest

from mislabel.analysis.claims.clean_priority import MEASURES, _Run
from tests.analysis.claims.synthetic.clean_priority import DYNAMICS, FRAME, dynamics, flat, hill
from tests.analysis.claims.tables import finding


def run(**curves: np.ndarray) -> _Run:
    table = pd.DataFrame({"run_id": "a", "step": FRAME, **DYNAMICS, **curves})
    return _Run(table, noise_rate=0.3, classes=2)


def test_the_turn_has_the_largest_noisy_residual_even_if_single_frames_jump() -> None:
    assert run().turn == 15
    jitter = np.random.default_rng(0).standard_normal((20, len(FRAME))) * 0.02
    turns = [run(noisy_residual=DYNAMICS["noisy_residual"] + each).turn for each in jitter]
    assert abs(np.mean(turns) - 15) < 2
    assert np.std(turns) < 4


def test_the_way_is_1_for_a_network_that_becomes_calibrated() -> None:
    found = run(noisy_residual=np.r_[0.5, np.full(29, 0.7), 0.6], noisy_error=np.r_[0.5, np.full(30, 1.0)])
    assert found.way("noisy_residual") == pytest.approx(1)
    assert found.way("noisy_error") == pytest.approx(1)


def test_the_start_is_not_smoothed() -> None:
    found = run(alpha=np.r_[0.1, np.full(30, 1.0)])
    assert found.growth("alpha") == pytest.approx(10)


@pytest.mark.parametrize(("best", "excess"), [((0.5, 0.1, 0.3), 0.0), ((0.5, 0.3, 0.1), 1.0), ((0.1, 0.2, 0.3), 0.5)])
def test_excess_test_error_is_large_if_the_minimum_is_far_from_the_turn_or_at_the_end(
    best: tuple[float, float, float], excess: float
) -> None:
    assert run(test_error=hill(*best)).excess_test_error() == pytest.approx(excess, abs=0.1)


def test_a_curve_that_falls_as_much_as_it_rises_is_not_monotone() -> None:
    assert run().monotony("noisy_residual") == pytest.approx(1)
    assert run(alpha=np.abs(FRAME - 7.5)).monotony("alpha") == pytest.approx(0, abs=0.1)
    assert run(alpha=flat(1.0)).monotony("alpha") == 0


def test_the_worst_cell_decides_and_a_diverged_run_makes_it_undecided() -> None:
    sweep = dynamics(True)
    assert finding("clean-priority/fig5", "noisy-error-falls-later", sweep).verdict == "confirmed"
    sweep.tables["runs"].loc[0, "status"] = "diverged"
    assert finding("clean-priority/fig5", "noisy-error-falls-later", sweep).verdict == "undecided"
    wrong = dynamics(False, noisy_error=flat(0.9))
    found = finding("clean-priority/fig5", "noisy-error-falls-later", wrong)
    assert (found.verdict, found.judgement.cell) == ("contradicted", "width 64")


def test_alpha_that_never_reaches_1_counts_only_if_the_last_step_is_too_late() -> None:
    sweep = dynamics(False, alpha=flat(0.5))
    never = MEASURES["alpha-1-at-turn"](sweep)["width 64"]
    assert never.isna().all()  # the last step is at twice the turn
    early = dynamics(False, alpha=flat(0.5), noisy_residual=np.interp(FRAME, [0, 6, 30], [0.5, 0.8, 0.3]))
    assert MEASURES["alpha-1-at-turn"](early)["width 64"].iloc[0] == pytest.approx(5, rel=0.2)
    assert not MEASURES["alpha-reaches-1"](sweep)["width 64"].any()
    # α reaches 1 at frame 12.75, the turn is at frame 15.
    assert MEASURES["alpha-1-at-turn"](sweep)["width 32"].iloc[0] == pytest.approx(12.75 / 15, rel=0.02)


def test_below_alpha_1_the_noisy_loss_must_rise() -> None:
    assert run().rising_share() == 1
    assert run(full_alpha=flat(0.5)).rising_share() == pytest.approx(0.5, abs=0.05)
    assert np.isnan(run(full_alpha=flat(1.5)).rising_share())
