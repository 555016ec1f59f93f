import pytest

from mislabel.cluster.tune.capacity import worker_memory_bytes, worker_slots
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.spec.model import Resources

HEAD = {"memory": 64e9}
SMALL = {"CPU": 1.0, "memory": 4e9}
LARGE = {"CPU": 8.0, "GPU": 2.0, "memory": 32e9}


@pytest.mark.parametrize(
    ("cpu", "gpu", "slots"),
    [(1, 0, 9), (0.5, 0, 18), (0.2, 0, 45), (2, 0, 4), (3, 0, 2), (1, 1, 2), (1, 0.25, 8), (0.5, 0.1, 16), (1, 0.6, 2)],
)
def test_a_pack_runs_on_one_machine_and_a_share_is_part_of_a_single_gpu(cpu: float, gpu: float, slots: int) -> None:
    assert worker_slots(Resources(cpu=cpu, gpu=gpu), [HEAD, SMALL, LARGE]) == slots


def test_resources_that_no_machine_has_are_refused_with_what_the_machines_have() -> None:
    with pytest.raises(MislabelError, match=r"^resources: .* 2 CPU and 0 GPU.* 1 CPU, 0 GPU"):
        worker_slots(Resources(cpu=2.0), [SMALL, SMALL])
    with pytest.raises(MislabelError, match=r"^resources: "):
        worker_slots(Resources(), [])


def test_a_worker_has_the_memory_that_every_machine_offers() -> None:
    assert worker_memory_bytes(Resources(), [HEAD, SMALL, LARGE]) == 4_000_000_000
    assert worker_memory_bytes(Resources(cpu=0.5), [HEAD, SMALL, LARGE]) == 2_000_000_000
    assert worker_memory_bytes(Resources(gpu=0.5), [HEAD, SMALL, LARGE]) == 8_000_000_000
