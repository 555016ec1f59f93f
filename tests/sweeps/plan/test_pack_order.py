import json
from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from mislabel.sweeps.plan.pack_order import PackOrder

ORDER = PackOrder(
    sweep="s", task="bowl", common={"width": 2, "rate": 0.5}, columns={"x": [0.0, 1.0, 2.0]}, cells=["a", "b", "c"],
    seeds=[0, 1, 2], attempt=2, resume=("p",), data={"images": "sha256:1"},
)  # fmt: skip


def test_a_run_has_the_common_values_and_its_own() -> None:
    assert ORDER.values(1) == {"width": 2, "rate": 0.5, "x": 1.0}
    assert ORDER.run_ids == ["a-0", "b-1", "c-2"]


@given(st.lists(st.integers(0, 2), unique=True, min_size=1))
def test_a_selection_keeps_the_values_of_its_runs(lanes: list[int]) -> None:
    chosen = ORDER.select(lanes)
    assert [chosen.values(i) for i in range(len(chosen))] == [ORDER.values(i) for i in lanes]
    assert chosen.run_ids == [ORDER.run_ids[i] for i in lanes]
    assert (chosen.sweep, chosen.task, chosen.attempt, chosen.resume) == ("s", "bowl", 2, ("p",))
    assert chosen.data == ORDER.data


def test_halves_contain_each_run_once_and_start_over() -> None:
    first, second = ORDER.halves()
    assert first.run_ids + second.run_ids == ORDER.run_ids
    assert {len(first), len(second)} == {1, 2}
    assert first.resume == ()
    assert second.resume == ()


def test_the_id_depends_on_the_runs_alone() -> None:
    assert ORDER.select([2, 0, 1]).id == ORDER.id
    assert ORDER.select([0, 1, 2], attempt=7, resume=()).id == ORDER.id
    assert ORDER.select([0, 1]).id != ORDER.id


def test_an_order_can_be_sent_as_json() -> None:
    assert asdict(PackOrder(**json.loads(json.dumps(asdict(ORDER))))) == json.loads(json.dumps(asdict(ORDER)))


def test_stored_orders_without_data_can_be_read() -> None:
    kept = {name: value for name, value in asdict(ORDER).items() if name != "data"}
    assert PackOrder(**kept).data == {}


def test_a_joined_order_has_the_runs_and_checkpoints_of_both() -> None:
    other = PackOrder("s", "bowl", {"width": 2, "x": 3.0}, {"rate": [0.1, 0.2]}, ["d", "e"], [0, 0], 1, ("q", "p"))
    both = ORDER.joined(other)
    assert both.run_ids == ORDER.run_ids + other.run_ids
    parts = [ORDER.values(i) for i in range(3)] + [other.values(i) for i in range(2)]
    assert [both.values(i) for i in range(5)] == parts
    assert both.common == {"width": 2}
    assert (both.attempt, both.resume, both.data) == (2, ("p", "q"), ORDER.data)
    assert other.joined(ORDER).attempt == 2
