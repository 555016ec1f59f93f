"""The page of the fault suite: the part below the marker is written from the record of its last complete run."""

import json

from docs.tools.pages import DOCS, ROOT
from docs.tools.papers import MARKER
from docs.tools.reference import table
from mislabel.sweeps.formatting import duration

PAGE = DOCS / "concepts" / "faults.md"
RECORD = ROOT / "tests" / "faults" / "results.json"


def updated() -> str:
    """The page with its table as the record has it today."""
    written, marker, _ = PAGE.read_text().partition(MARKER)
    assert marker, f"{PAGE}: no marker"
    rows = json.loads(RECORD.read_text())
    head = ("topic", "what is broken", "cases", "passed", "failed", "not run", "time")
    cells = [
        (
            str(row["topic"]).replace("_", " "),
            str(row["what"]),
            *(f"{row[name]:,}" for name in ("cases", "passed", "failed", "skipped")),
            duration(row["seconds"]),
        )
        for row in rows
    ]
    reasons = sorted({reason for row in rows for reason in row["reasons"]})
    notes = ["Not run on this machine:\n\n" + "\n".join(f"- {reason}" for reason in reasons)] if reasons else []
    shown = table(head, cells) if rows else "No complete run has been recorded yet."
    return written + marker + "\n" + "\n\n".join(["## Results", shown, *notes]) + "\n"
