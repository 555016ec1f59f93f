import pytest

from mislabel.sweeps.errors import ExitCode
from mislabel.sweeps.store.outcome import ASKED, INTERRUPTED, WITH_RESULT, Status, StopCause, StopReason, settled
from tests.bowls import bowl_spec


def test_statuses_are_stored_under_these_names() -> None:
    assert [status.value for status in Status] == ["done", "stopped", "diverged", "failed", "lost"]


def test_runs_that_failed_or_were_lost_have_no_result() -> None:
    assert WITH_RESULT == (Status.DONE, Status.STOPPED, Status.DIVERGED)


def test_a_run_that_ended_by_itself_ranks_above_a_stopped_one_and_that_above_one_without_result() -> None:
    assert Status.DONE.rank == Status.DIVERGED.rank > Status.STOPPED.rank > Status.FAILED.rank > Status.LOST.rank


def test_stopped_runs_are_settled_only_under_a_stopping_rule() -> None:
    spec = bowl_spec(parameters={"steps": 8, "frames": 5}, early_terminate={"type": "asha", "min_steps": 2})
    assert settled(bowl_spec()) == (Status.DONE, Status.DIVERGED)
    assert settled(spec) == (Status.DONE, Status.DIVERGED, Status.STOPPED)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (INTERRUPTED, ExitCode.INTERRUPTED),
        (ASKED, ExitCode.INTERRUPTED),
        (StopReason(StopCause.STORE_FAILED, "the disk is full"), ExitCode.FAILED),
        (StopReason(StopCause.RUNS_USED_UP, "budget.runs"), None),
    ],
)
def test_the_reason_to_stop_decides_the_exit_code(reason: StopReason, code: ExitCode | None) -> None:
    assert reason.exit_code == code
