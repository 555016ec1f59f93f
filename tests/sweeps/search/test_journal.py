import json

import pytest

from mislabel.sweeps.search.journal import Batch, KeptTrial, Proposals
from mislabel.sweeps.store.store import SweepFiles

FIRST = Batch([KeptTrial({"x": 0.1}, 0, {"x": 0.1}, {"note": [1, 2]})], space="s")
SECOND = Batch([KeptTrial({"x": 0.25, "tilted": True}, 3, {"x": 0.25})], ((0, 5),), {"parents": [0]}, "s")


def test_batches_come_back_as_they_were_kept(files: SweepFiles) -> None:
    kept = Proposals(files)
    assert kept.count == 0
    kept.keep(0, FIRST)
    kept.keep(1, SECOND)
    assert list(kept.batches()) == [(0, FIRST), (1, SECOND)]
    assert kept.count == 2


def test_branches_keep_their_own(files: SweepFiles) -> None:
    Proposals(files).keep(0, FIRST)
    Proposals(files, "b1").keep(0, SECOND)
    assert list(Proposals(files).batches()) == [(0, FIRST)]
    assert list(Proposals(files, "b1").batches()) == [(0, SECOND)]
    assert list(Proposals(files, "b2").batches()) == []


def test_the_first_layout_was_a_list_of_cells(files: SweepFiles) -> None:
    files.write_json("proposals/00000.json", [{"x": 1.0}, {"x": 2.0}])
    assert list(Proposals(files).batches()) == [(0, Batch([KeptTrial({"x": 1.0}), KeptTrial({"x": 2.0})]))]


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
    ],
)
def test_a_damaged_batch_is_left_out_and_its_number_not_used_again(files: SweepFiles, text: str) -> None:
    kept = Proposals(files)
    kept.keep(0, FIRST)
    kept.keep(1, SECOND)
    files.write_text("proposals/00001.json", text)
    files.write_text("proposals/notes.txt", "by hand")
    assert list(kept.batches()) == [(0, FIRST)]
    assert kept.count == 2
