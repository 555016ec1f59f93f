"""Sections of a report on what was run: axes and code, what early stopping saved, and what failed."""

import pandas as pd

from mislabel.analysis.report import html
from mislabel.analysis.report.html import value_text
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.spec.model import Axis

WITHOUT_RESULT = ("failed", "lost")
_LISTED = 12
_REASONS = 10
_LONGEST_REASON = 300


def stopping(sweep: Sweep) -> str:
    """How many runs a rule stopped, where, and how much training that saved; nothing where it stopped none."""
    runs = sweep.runs
    if not len(runs) or not (runs["status"] == "stopped").any():
        return ""
    runs = runs[~runs["status"].isin(WITHOUT_RESULT)]
    stopped = runs["status"] == "stopped"
    whole = runs["steps"] if "steps" in runs else pd.Series(int(runs["step"].max()), runs.index)
    trained, full = int(runs["step"].sum()), int(runs["step"].where(~stopped, whole).sum())
    rule = f" by {sweep.spec.early_terminate.type}" if sweep.spec.early_terminate else ""
    text = (
        f"{stopped.sum():,} of {len(runs):,} runs were stopped{rule}. {trained:,} run-steps were trained; training "
        f"every run to its end would have taken {full:,}, so {1 - trained / full:.0%} were saved."
    )
    steps = runs.loc[stopped, "step"].value_counts().sort_index()
    rows = [[f"{step:,}", f"{count:,}"] for step, count in steps.head(_LISTED).items()]
    return html.section("Early stopping", html.words(text), html.table(["stopped at step", "runs"], rows))


def failures(sweep: Sweep) -> str:
    """Reasons of runs that failed, the most frequent first, and how many diverged."""
    runs = sweep.runs
    if not len(runs):
        return ""
    failed = runs[runs["status"].isin(WITHOUT_RESULT)]
    parts = []
    if len(failed):
        reason = failed["error"].fillna("no reason given").str.split("\n").str[0].str.slice(0, _LONGEST_REASON)
        rows = []
        for text, own in sorted(failed.groupby(reason), key=lambda group: -len(group[1]))[:_REASONS]:
            first = own.iloc[0]
            at = [f"{name} = {value_text(first[name])}" for name in sweep.varying] + [f"seed {first['seed']}"]
            rows.append([f"{len(own):,}", text, f"{', '.join(at)} (run {first['run_id']})"])
        parts.append(html.table(["runs", "reason", "for example"], rows))
    diverged = runs[runs["status"] == "diverged"]
    if len(diverged):
        cells = diverged["cell_id"].nunique()
        parts.append(
            html.words(
                f"{len(diverged):,} run{'s' * (len(diverged) != 1)} in {cells:,} cell{'s' * (cells != 1)} diverged: a "
                "metric was no longer finite. They have no value at the end, and are in no mean."
            )
        )
    return html.section("What failed", *parts)


def swept(sweep: Sweep) -> str:
    """The axes, what was fixed, and the whole spec, folded."""
    spec = sweep.spec
    axes = spec.axes()
    conditional = any(axis.when for axis in axes.values())
    rows = [[name, _range(axis), *([axis.when or "always"] if conditional else [])] for name, axis in axes.items()]
    header = ["parameter", "values", *(["varies when"] if conditional else [])]
    fixed = ", ".join(f"{name} = {value_text(value)}" for name, value in spec.fixed().items())
    racing = f", and up to {spec.seeds.up_to} for those that may be the best" if spec.seeds.up_to else ""
    return html.section(
        "What was swept",
        html.table(header, rows) if rows else html.words("No parameter varies."),
        html.words(f"Fixed: {fixed}." if fixed else ""),
        html.words(f"Left out: {'; '.join(spec.exclude)}." if spec.exclude else ""),
        html.words(f"{spec.seeds.count} seed{'s' * (spec.seeds.count != 1)} per cell{racing}."),
        html.folded("The whole spec", spec.to_yaml()),
    )


def provenance(sweep: Sweep) -> str:
    """When and from which code it was launched."""
    launches = sweep.files.launches()
    if not launches:
        return html.section("Where it comes from", html.words("No launch is on record."))
    rows = []
    for launch in launches[-_LISTED:]:
        git = launch.get("git") or {}
        commit = f"{git['commit'][:12]}{' with changes' * bool(git.get('dirty'))}" if git.get("commit") else "–"
        rows.append([launch.get("started_at", "–"), commit, launch.get("host", "–"), launch.get("command", "–")])
    last = launches[-1]
    versions = ", ".join(f"{name} {number}" for name, number in (last.get("versions") or {}).items())
    told = f"Last launch: Python {last.get('python', '–')}, {versions}, on {last.get('platform', '–')}."
    header = ["launched at", "commit", "host", "command"]
    return html.section("Where it comes from", html.table(header, rows), html.words(told))


def _range(axis: Axis) -> str:
    if axis.values is not None:
        shown = ", ".join(map(value_text, axis.values[:_LISTED]))
        return shown + (f", … ({len(axis.values)} values)" if len(axis.values) > _LISTED else "")
    notes = [
        "log scale" if axis.scale == "log" else "",
        f"{axis.points} points" if axis.points else "",
        f"in steps of {axis.step:g}" if axis.step else "",
    ]
    told = ", ".join(filter(None, notes))
    return f"{axis.min:g} … {axis.max:g}" + (f" ({told})" if told else "")
