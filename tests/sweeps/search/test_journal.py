import json

import pytest

from mislabel.sweeps.search.journal import Batch, EarlierCell, Journal, StoredTrial
from mislabel.sweeps.store.store import SweepFiles

FIRST = Batch([StoredTrial({"x": 0.1}, 0, {"x": 0.1}, {"note": [1, 2]})], space="s")
SECOND = Batch([StoredTrial({"x": 0.25, "tilted": True}, 3, {"x": 0.25})], ((0, 5),), {"parents": [0]}, "s")


def test_batches_are_read_as_they_were_written(files: SweepFiles) -> None:
    journal = Journal(files)
    assert journal.next_number == 0
    journal.append(FIRST)
    journal.append(SECOND)
    for each in (journal, Journal(files)):
        assert list(each.batches()) == [(0, FIRST), (1, SECOND)]
        assert each.next_number == 2


def test_each_branch_has_its_own_batches(files: SweepFiles) -> None:
    Journal(files).append(FIRST)
    Journal(files, "b1").append(SECOND)
    assert list(Journal(files).batches()) == [(0, FIRST)]
    assert list(Journal(files, "b1").batches()) == [(0, SECOND)]
    assert list(Journal(files, "b2").batches()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "7",
        '{"layout": 3}',
        '{"layout": 2}',
        json.dumps({"layout": 2, "trials": [{"x": 1}], "told": []}),
        "[3]",
        '[{"x": 1.0}]',
    ],
)
def test_a_damaged_batch_is_reported_and_its_number_not_used_again(
    files: SweepFiles, text: str, messages: list[str]
) -> None:
    journal = Journal(files)
    journal.append(FIRST)
    journal.append(SECOND)
    files.write_text("proposals/00001.json", text)
    files.write_text("proposals/notes.txt", "by hand")
    journal = Journal(files)
    assert list(journal.batches()) == [(0, FIRST)]
    assert journal.next_number == 2
    assert {message.split(" ")[0] for message in messages} == {f"{files.address}/proposals/00001.json"}


def test_a_missing_batch_is_reported(files: SweepFiles, messages: list[str]) -> None:
    for batch in (FIRST, SECOND, FIRST):
        Journal(files).append(batch)
    files.remove("proposals/00001.json")
    assert list(Journal(files).batches()) == [(0, FIRST), (2, FIRST)]
    assert [message.split(" ")[0] for message in messages] == [f"{files.address}/proposals/00001.json"]


def test_a_changed_value_is_noticed(files: SweepFiles, messages: list[str]) -> None:
    Journal(files).append(FIRST)
    text = files.read_text("proposals/00000.json") or ""
    assert "0.1" in text
    files.write_text("proposals/00000.json", text.replace("0.1", "0.3", 1))
    assert list(Journal(files).batches()) == []
    assert len(messages) == 1


def test_a_batch_of_an_earlier_version_has_no_digest(files: SweepFiles, messages: list[str]) -> None:
    Journal(files).append(SECOND)
    stored = files.read_json("proposals/00000.json")
    del stored["digest"]
    files.write_json("proposals/00000.json", stored)
    assert list(Journal(files).batches()) == [(0, SECOND)]
    assert messages == []


def test_cells_of_other_sweeps_are_read_as_they_were_written(files: SweepFiles, messages: list[str]) -> None:
    journal = Journal(files)
    assert journal.earlier() is None
    journal.write_earlier([EarlierCell({"x": 1.5}, (0.25,))])
    assert journal.earlier() == [EarlierCell({"x": 1.5}, (0.25,))]
    assert messages == []
    for text in ("", "{}", "[1]", '[{"values": 3}]'):
        files.write_text("proposals/earlier.json", text)
        assert journal.earlier() is None
    assert {message.split(" ")[0] for message in messages} == {f"{files.address}/proposals/earlier.json"}


def test_batches_of_a_later_lease_replace_those_of_a_replaced_driver(files: SweepFiles) -> None:
    paused = Journal(files.held(4, lambda: None))
    paused.append(FIRST)
    replacing = Journal(files.held(5, lambda: None))
    replacing.append(SECOND)
    paused.append(FIRST)
    paused.append(FIRST)
    journal = Journal(files)
    assert list(journal.batches()) == [(0, FIRST), (1, SECOND)]
    assert journal.next_number == 2
    assert len(files.names("proposals")) == 4
    Journal(files.held(6, lambda: None))
    assert files.names("proposals") == ["00000.000004.json", "00001.000005.json"]


def test_batches_of_an_older_version_are_read(files: SweepFiles) -> None:
    Journal(files).append(FIRST)
    Journal(files.held(1, lambda: None)).append(SECOND)
    assert files.names("proposals") == ["00000.json", "00001.000001.json"]
    assert list(Journal(files).batches()) == [(0, FIRST), (1, SECOND)]
