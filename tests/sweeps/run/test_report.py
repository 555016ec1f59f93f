import torch

from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.report import Advanced, Failed, Finished, OutOfMemory, failure, reason
from tests.bowls import BOWL, CPU

DEFAULTS = {name: parameter.default for name, parameter in BOWL.parameters.items()}
ORDER = PackOrder("s", "bowl", DEFAULTS, {}, ["a", "b"], [0, 0])


def raised(error: Exception) -> Exception:
    """The error with a traceback."""
    try:
        raise error
    except Exception as caught:
        return caught


def test_only_progress_leaves_the_pack_running() -> None:
    assert not Advanced("p").ends_pack
    assert Finished("p").ends_pack
    assert failure(ORDER, raised(ValueError("wrong")), CPU).ends_pack


def test_an_error_is_reported_with_its_type_and_traceback() -> None:
    report = failure(ORDER, raised(ValueError("wrong")), CPU)
    assert isinstance(report, Failed)
    assert report.pack == ORDER.id
    assert report.error.splitlines()[0] == "ValueError: wrong"
    assert "in raised" in report.error


def test_running_out_of_memory_is_its_own_case() -> None:
    for error in (MemoryError(), torch.OutOfMemoryError("no room")):
        report = failure(ORDER, raised(error), CPU)
        assert isinstance(report, OutOfMemory)
        assert "2 runs" in report.error.splitlines()[0]


def test_the_reason_of_an_error_can_always_be_encoded() -> None:
    assert reason(raised(ValueError("\ud800"))).encode()
