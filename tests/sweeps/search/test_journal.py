import json

import pytest

from mislabel.sweeps.search.journal import Batch, Journal, StoredTrial
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
def test_a_damaged_batch_is_skipped_and_its_number_not_used_again(files: SweepFiles, text: str) -> None:
    journal = Journal(files)
    journal.append(FIRST)
    journal.append(SECOND)
    files.write_text("proposals/00001.json", text)
    files.write_text("proposals/notes.txt", "by hand")
    journal = Journal(files)
    assert list(journal.batches()) == [(0, FIRST)]
    assert journal.next_number == 2
