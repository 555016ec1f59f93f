import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.cluster.queue.queue import Queue, Ticket, admitted
from mislabel.sweeps.errors import MislabelError, SweepBusyError
from mislabel.sweeps.process import Process

NOW = 1_000_000.0
OWNERS = st.sampled_from(["ann", "ben", "eve"])


@st.composite
def queues(draw: st.DrawFn) -> list[Ticket]:
    made = draw(
        st.lists(
            st.tuples(OWNERS, st.integers(-3, 3), st.floats(0, NOW), st.one_of(st.none(), st.floats(0, NOW))),
            max_size=12,
        )
    )
    return [Ticket(f"t{i}", f"s{i}", *values) for i, values in enumerate(made)]


used_times = st.dictionaries(OWNERS, st.floats(0, 1e6))


@given(queues(), st.integers(1, 6), used_times)
def test_running_sweeps_continue_and_every_free_slot_is_given_once(
    tickets: list[Ticket], at_once: int, used: dict[str, float]
) -> None:
    chosen = admitted(tickets, at_once, used)
    running = {ticket.id for ticket in tickets if ticket.runs}
    assert running <= chosen
    assert len(chosen) == max(len(running), min(at_once, len(tickets)))


@given(queues(), st.integers(1, 6), used_times, st.randoms())
def test_the_order_of_the_tickets_does_not_matter(
    tickets: list[Ticket], at_once: int, used: dict[str, float], random: object
) -> None:
    shuffled = list(tickets)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert admitted(shuffled, at_once, used) == admitted(tickets, at_once, used)


@given(queues(), st.integers(1, 6), used_times)
def test_no_sweep_of_lower_priority_goes_first(tickets: list[Ticket], at_once: int, used: dict[str, float]) -> None:
    chosen = admitted(tickets, at_once, used)
    waiting = [ticket for ticket in tickets if not ticket.runs]
    lowest = min((ticket.priority for ticket in waiting if ticket.id in chosen), default=None)
    left = [ticket.priority for ticket in waiting if ticket.id not in chosen]
    assert lowest is None or all(priority <= lowest for priority in left)


@given(queues(), st.integers(1, 6), used_times)
def test_a_larger_cluster_admits_the_same_sweeps_and_more(
    tickets: list[Ticket], at_once: int, used: dict[str, float]
) -> None:
    assert admitted(tickets, at_once, used) <= admitted(tickets, at_once + 1, used)


def test_owners_take_turns() -> None:
    many = [Ticket(f"ann{i}", f"a{i}", "ann", since=i) for i in range(4)]
    late = Ticket("ben", "b", "ben", since=9)
    assert admitted([*many, late], 2) == {"ann0", "ben"}
    assert admitted([replace(many[0], began=1.0), *many[1:], late], 2) == {"ann0", "ben"}


def test_the_owner_with_less_use_goes_first_then_the_oldest_ticket() -> None:
    tickets = [Ticket("a", "a", "ann", since=1), Ticket("b", "b", "ben", since=2)]
    assert admitted(tickets, 1) == {"a"}
    assert admitted(tickets, 1, {"ann": 10.0}) == {"b"}
    assert admitted([replace(tickets[0], priority=1), tickets[1]], 1, {"ann": 10.0}) == {"a"}


@pytest.mark.parametrize(
    ("first", "second", "used"),
    [
        # Each pair differs in two criteria that disagree. The earlier criterion decides.
        (Ticket("1", "a", "busy", priority=1, since=2), Ticket("2", "b", "idle", priority=0, since=1), {"busy": 9.0}),
        (Ticket("1", "a", "idle", since=2), Ticket("2", "b", "busy", since=1), {"idle": 9.0}),
        (Ticket("1", "a", "eve", since=2), Ticket("2", "b", "ben", since=1), {"ben": 9.0, "eve": 8.0}),
        (Ticket("2", "a", "eve", since=1), Ticket("1", "b", "ben", since=2), {}),
    ],
    ids=["priority, then running sweeps", "running sweeps, then use", "use, then age", "age, then id"],
)
def test_the_criteria_count_in_their_order(first: Ticket, second: Ticket, used: dict[str, float]) -> None:
    running = Ticket("0", "r", "busy", began=0.0)
    assert admitted([running, second, first], 2, used) == {"0", first.id}


def ticket(name: str, **changes: object) -> Ticket:
    base = Ticket(f"{name}-1", name, "ann", since=time.time(), process=Process.own())
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_ticket_waits_until_others_leave(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    first, second, third = ticket("first", since=1.0), ticket("second", since=2.0), ticket("third", since=3.0)
    for each in (first, second, third):
        queue.enter(each)
    running = queue.turn(first, at_once=1)
    assert running is not None
    assert running.runs
    assert queue.turn(second, at_once=1) is None
    assert queue.places(1) == {"second-1": 0, "third-1": 1}
    queue.leave(running)
    assert queue.turn(third, at_once=1) is None
    assert queue.turn(second, at_once=1) is not None
    assert [each.sweep for each in queue.tickets()] == ["second", "third"]


def test_a_sweep_has_at_most_one_ticket(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.enter(ticket("sweep"))
    with pytest.raises(SweepBusyError, match="sweep-1"):
        queue.enter(replace(ticket("sweep"), id="sweep-2"))


def test_the_ticket_of_a_dead_process_is_ignored_and_removed(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    dead = ticket("sweep", process=Process(Process.own().pid, "long ago"), began=time.time() - 50)
    queue._write(dead)
    queue.ask_to_stop(dead)
    assert queue.tickets() == []
    queue.enter(ticket("sweep"))
    assert not queue.is_asked_to_stop(ticket("sweep"))
    # The time that it ran still counts for its owner.
    queue.enter(ticket("ben", owner="ben"))
    assert queue.turn(ticket("sweep"), at_once=1) is None
    assert queue.turn(ticket("ben", owner="ben"), at_once=1) is not None


def test_a_queue_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MislabelError, match="gone"):
        Queue(tmp_path / "gone").enter(ticket("sweep"))
    assert Queue(tmp_path / "gone").tickets() == []
