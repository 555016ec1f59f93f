"""Sections of a report on how the sweep ran: early stopping, failures, the spec, and the code."""

import pandas as pd

from mislabel.analysis.report import html
from mislabel.analysis.statistics.checkout import checkout_note
from mislabel.analysis.statistics.tables import SweepTables
from mislabel.sweeps.formatting import axis_text, count, value_text
from mislabel.sweeps.redaction import redacted
from mislabel.sweeps.store.outcome import WITH_RESULT, Status

_LISTED = 12
_REASONS = 10
_LONGEST_REASON = 300


def stopping(sweep: SweepTables) -> str:
    """How many runs a rule stopped, at which steps, and how much training that saved; empty if it stopped none."""
    runs = sweep.runs
    if not len(runs) or not (runs["status"] == Status.STOPPED).any():
        return ""
    runs = runs[runs["status"].isin(WITH_RESULT)]
    stopped = runs["status"] == Status.STOPPED
    whole = runs["steps"] if "steps" in runs else pd.Series(int(runs["step"].max()), runs.index)
    trained, full = int(runs["step"].sum()), int(runs["step"].where(~stopped, whole).sum())
    rule = f" by {sweep.spec.early_terminate.type}" if sweep.spec.early_terminate else ""
    text = (
        f"{stopped.sum():,} of {count(len(runs), 'run')} were stopped{rule}. Training took {trained:,} run-steps. "
        f"Without early stopping it would have taken {full:,}: {1 - trained / full:.0%} were saved."
    )
    steps = runs.loc[stopped, "step"].value_counts().sort_index()
    rows = [[f"{step:,}", f"{number:,}"] for step, number in steps.head(_LISTED).items()]
    return html.section("Early stopping", html.paragraph(text), html.table(["stopped at step", "runs"], rows))


def failures(sweep: SweepTables) -> str:
    """The errors of failed runs, the most frequent first, and the number of diverged runs."""
    runs = sweep.runs
    if not len(runs):
        return ""
    failed = runs[~runs["status"].isin(WITH_RESULT)]
    parts = []
    if len(failed):
        reason = failed["error"].fillna("no error message").str.split("\n").str[0].str.slice(0, _LONGEST_REASON)
        rows = []
        for text, own in sorted(failed.groupby(reason), key=lambda group: -len(group[1]))[:_REASONS]:
            first = own.iloc[0]
            values = {name: first[name] for name in [*sweep.varying, *sweep.activity.reads]}
            active = [name for name in sweep.varying if sweep.activity.is_active(name, values)]
            at = [f"{name} = {value_text(first[name])}" for name in active] + [f"seed {first['seed']}"]
            rows.append([f"{len(own):,}", redacted(str(text)), f"{', '.join(at)} (run {first['run_id']})"])
        parts.append(html.table(["runs", "error", "example"], rows))
    diverged = runs[runs["status"] == Status.DIVERGED]
    if len(diverged):
        cells = diverged["cell_id"].nunique()
        parts.append(
            html.paragraph(
                f"{count(len(diverged), 'run')} in {count(cells, 'cell')} diverged: a metric was no longer finite. "
                "Diverged runs are counted, but have no value and are in no mean."
            )
        )
    return html.section("Failures", *parts)


def swept(sweep: SweepTables) -> str:
    """The varying parameters, the fixed ones, and the whole spec, folded."""
    spec = sweep.spec
    axes = spec.axes()
    conditional = any(axis.when for axis in axes.values())
    rows = [[name, axis_text(axis), *([axis.when or "always"] if conditional else [])] for name, axis in axes.items()]
    header = ["parameter", "values", *(["varies when"] if conditional else [])]
    fixed = ", ".join(f"{name} = {value_text(value)}" for name, value in spec.fixed().items())
    racing = f", up to {spec.seeds.up_to} for cells that may be the best" if spec.seeds.up_to else ""
    return html.section(
        "Parameters",
        html.table(header, rows) if rows else html.paragraph("No parameter varies."),
        html.paragraph(f"Fixed: {fixed}." if fixed else ""),
        html.paragraph(f"Excluded: {'; '.join(spec.exclude)}." if spec.exclude else ""),
        html.paragraph(f"{count(spec.seeds.count, 'seed')} per cell{racing}."),
        html.folded("The whole spec", spec.to_yaml()),
    )


def provenance(sweep: SweepTables) -> str:
    """When the sweep was launched, and with which code; runs that come from a modified checkout are marked."""
    launches = sweep.files.launches()
    if not launches:
        return html.section("Provenance", html.paragraph("No launch is recorded."))
    rows = []
    for launch in launches[-_LISTED:]:
        git = launch.get("git") or {}
        commit = f"{git['commit'][:12]}{' with local changes' * bool(git.get('dirty'))}" if git.get("commit") else "–"
        rows.append(
            [launch.get("started_at", "–"), commit, launch.get("host", "–"), redacted(launch.get("command", "–"))]
        )
    last = launches[-1]
    versions = ", ".join(f"{name} {number}" for name, number in (last.get("versions") or {}).items())
    text = f"Last launch: Python {last.get('python', '–')}, {versions}, on {last.get('platform', '–')}."
    header = ["launched at", "commit", "host", "command"]
    note = checkout_note(sweep)
    warning = html.paragraph(f"{note[:1].upper()}{note[1:]}." if note else "")
    return html.section("Provenance", warning, html.table(header, rows), html.paragraph(text))
