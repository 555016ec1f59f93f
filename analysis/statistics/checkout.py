"""The commits of the code that trained a sweep's runs, and a note on runs that come from a modified checkout.

Nobody can restore the code of a modified checkout, so its results can't be reproduced from the commit alone.
"""

import pandas as pd

from mislabel.analysis.statistics.tables import SweepTables
from mislabel.sweeps.formatting import count
from mislabel.sweeps.run.provenance import MODIFIED, commit_of

UNKNOWN = "unknown"
_SHOWN = 12


def commits(sweep: SweepTables) -> "pd.Series[str]":
    """By run id, the commit of the code that trained the run.

    It ends with `-dirty` if the checkout was modified, and is empty if the code was not in a checkout. Several launches
    with different code give several commits. Older runs have no commit in the store: theirs is that of the last launch
    before they started, or `unknown` if no such launch is recorded.
    """
    columns = sweep.files.columns("runs")
    if not columns:
        return pd.Series([], dtype="str")
    recorded = "commit" in columns
    runs = sweep.read("runs", ["run_id", "started_at", *(["commit"] if recorded else [])]).set_index("run_id")
    launches = sweep.files.launches()
    starts = pd.DatetimeIndex([launch["started_at"] for launch in launches], tz="UTC").as_unit("us")
    last = starts.searchsorted(runs["started_at"], side="right") - 1
    by_time = pd.Series([commit_of(launches[i]) if i >= 0 else UNKNOWN for i in last], runs.index, dtype="str")
    return runs["commit"].fillna(by_time) if recorded else by_time


def modified(found: "pd.Series[str]") -> "pd.Series[str]":
    """Those of the commits that belong to a modified checkout."""
    return found[found.str.contains(MODIFIED, regex=False)]


def checkout_note(sweep: SweepTables) -> str:
    """A sentence on the runs whose code is in no known commit; empty if there are none."""
    found = commits(sweep)
    changed = modified(found)
    unknown = (found == UNKNOWN).sum()
    names = {word[:_SHOWN] for text in changed for word in text.split() if word.endswith(MODIFIED)}
    of = f"of {count(len(found), 'run')}"
    notes = []
    if len(changed):
        at = ", ".join(sorted(names))
        notes.append(f"{len(changed):,} {of} come from a modified checkout (commit {at} with local changes)")
    if unknown:
        notes.append(f"the commit of {unknown:,} {of} is not recorded")
    return "; ".join(notes)
