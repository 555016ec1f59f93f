import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.cluster.queue.fair_share import Share, shares
from mislabel.cluster.queue.queue import Queue, Ticket
from mislabel.sweeps.errors import TICKET
from mislabel.sweeps.process import Process

demands = st.dictionaries(st.text(min_size=1, max_size=3), st.one_of(st.none(), st.integers(0, 20)), max_size=6)


@pytest.mark.long
@given(demands, st.integers(1, 40))
def test_each_sweep_gets_a_slot_and_no_useful_slot_stays_free(wants: dict[str, int | None], slots: int) -> None:
    share = shares(wants, slots)
    assert all(count >= 1 for count in share.values())
    assert sum(share.values()) <= max(slots, len(wants))
    hungry = [who for who, most in wants.items() if most is None or most > share[who]]
    assert not hungry or sum(share.values()) == max(slots, len(wants))


@given(demands, st.integers(1, 40))
def test_shares_of_sweeps_that_want_more_differ_by_at_most_one(wants: dict[str, int | None], slots: int) -> None:
    share = shares(wants, slots)
    for who, most in wants.items():
        if most is None or most > share[who]:
            assert max(share.values()) <= share[who] + 1


def test_a_sweep_outside_the_queue_gets_all_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TICKET, raising=False)
    assert Share.of_environment().room(8, wants=8) == 8


def test_shares_are_computed_from_the_tickets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now)
    queue = Queue(tmp_path)
    tickets = [Ticket(f"t{i}", f"s{i}", "ann", since=float(i), process=Process.own()) for i in range(3)]
    for ticket in tickets:
        queue.enter(ticket)
    monkeypatch.setenv(TICKET, str(tmp_path / "t0.json"))
    first = Share.of_environment()
    second = Share(queue, "t1")
    queue.turn(tickets[0], at_once=2)
    assert first.room(5, wants=5) == 5, "no other sweep runs"
    queue.turn(tickets[1], at_once=2)
    now += 1.0  # shares are updated once a second
    assert (first.room(5, wants=5), second.room(5, wants=5)) == (3, 2)
    assert second.room(5, wants=1) == 1
    now += 1.0
    assert first.room(5, wants=5) == 4, "the other sweep does not need more"
