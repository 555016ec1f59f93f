"""The claims of papers as Markdown: verdicts, what ran where, what did not run and why, and the coverage."""

import re
from collections.abc import Sequence

from mislabel.analysis.claims.claim import BEYOND, paper
from mislabel.analysis.claims.judging import VERDICTS, expected_by_chance
from mislabel.analysis.claims.registry import Finding, findings, not_tested
from mislabel.analysis.statistics.checkout import checkout_note, commits
from mislabel.analysis.sweep import Sweep, load
from mislabel.sweeps.formatting import count
from mislabel.sweeps.papers.bundled import description, experiments, sweep_name
from mislabel.sweeps.store.store import Store

_COMMIT = 12


class Checked:
    """The claims of a paper, checked with the runs of a store.

    An experiment that ran only as its small version is shown as that. The claims that the small version can't decide
    are not tested.
    """

    def __init__(self, name: str, store: str) -> None:
        self.name = name
        known = set(Store(store).names())
        self.sweeps: dict[str, Sweep] = {}
        self.quick: set[str] = set()
        self.findings: dict[str, list[Finding]] = {}
        for experiment in sorted((each for each in experiments() if each.startswith(f"{name}/")), key=_in_order):
            small = sweep_name(experiment, False) not in known
            if (stored := sweep_name(experiment, small)) in known:
                self.sweeps[experiment] = load(store, stored)
                self.quick |= {experiment} if small else set()
            self.findings[experiment] = self._checked(experiment, small)

    def _checked(self, experiment: str, small: bool) -> list[Finding]:
        if experiment not in self.sweeps:
            return not_tested(experiment, _why_not_run(experiment))
        found = findings(experiment, self.sweeps[experiment], small)
        if not small:
            return found
        larger = not_tested(experiment, "needs the paper's sizes; only the small version ran")
        return [*found, *(each for each in larger if not each.claim.quick)]

    @property
    def all(self) -> list[Finding]:
        return [finding for found in self.findings.values() for finding in found]

    def counts(self) -> dict[str, int]:
        return counts(self.all)


def counts(found: Sequence[Finding]) -> dict[str, int]:
    """How many claims have each verdict."""
    return {verdict: sum(finding.verdict == verdict for finding in found) for verdict in VERDICTS}


def _counted(found: Sequence[Finding]) -> str:
    """Such as '3 confirmed, 1 undecided'."""
    return ", ".join(f"{n} {verdict}" for verdict, n in counts(found).items() if n)


def page(name: str, store: str) -> str:
    """A paper's claims, experiment by experiment, then its items."""
    checked = Checked(name, store)
    rows = [
        (
            f"[{_title(checked, experiment)}](#{_anchor(checked, experiment)})",
            *(str(n or "") for n in counts(found).values()),
        )
        for experiment, found in checked.findings.items()
    ]
    parts = ["## Verdicts", _summary(checked), table(("experiment", *VERDICTS), rows)]
    for experiment, found in checked.findings.items():
        parts += [f"### {_title(checked, experiment)}", _origin(checked, experiment)]
        if experiment in checked.sweeps:
            parts.append(claims_table(found))
        else:
            parts.append("\n".join(f"- {_text(finding.claim.statement)}" for finding in found))
    return "\n\n".join([*parts, "## Items of the paper", _items(checked)]) + "\n"


def claims_table(found: Sequence[Finding]) -> str:
    rows = [
        (
            f"{_text(finding.claim.statement)}<br>*{_text(finding.claim.quantity)}*",
            f"{_text(ours(finding))}<br>*holds where {finding.claim.rule}, {finding.claim.origin}*",
            "<br>".join(
                filter(None, [_emphasized(finding.verdict), f"*{reason(finding)}*" if reason(finding) else ""])
            ),
        )
        for finding in found
    ]
    return table(("the paper says, *what we measure*", "ours", "verdict"), rows)


def ours(finding: Finding) -> str:
    """Our estimate, with the theory's prediction."""
    judgement = finding.judgement
    if judgement.estimate is None:
        return "–"
    where = f" at {judgement.cell}" if judgement.cell else ""
    predicted = ", next run {:.4g} to {:.4g}".format(*judgement.prediction) if judgement.prediction else ""
    theory = "" if finding.theory is None else f"; theory {finding.theory:.4g}"
    return f"{judgement.estimate}{predicted}{where}{theory}"


def reason(finding: Finding) -> str:
    """Why the claim is undecided or not tested, and whether its rule is newer than its runs."""
    judgement, said = finding.judgement, []
    if judgement.reason:
        said.append(judgement.reason)
    if finding.verdict == "undecided":
        needed = judgement.seeds_needed
        said.append(f"{needed:,} seeds would decide it" if needed else "more seeds would not decide it")
    if finding.rule_is_newer:
        said.append("the rule is newer than the runs")
    return "; ".join(said)


def summary(found: Sequence[Finding]) -> str:
    """How many claims have each verdict, and how many verdicts chance alone would give."""
    shown = _counted(found)
    tested = [finding.claim for finding in found if finding.verdict != "not tested"]
    if not tested:
        return f"{shown}."
    confirmed, contradicted = expected_by_chance(tested)
    return f"{shown}. Chance alone would confirm at most {confirmed:.2g} and contradict at most {contradicted:.2g}."


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(word.replace("|", "\\|") for word in line) + " |" for line in lines)


def _summary(checked: Checked) -> str:
    tested, items = paper(checked.name).coverage
    return f"{summary(checked.all)} {tested} of {items} items of the paper have a claim."


def _items(checked: Checked) -> str:
    by_item: dict[str, list[Finding]] = {}
    for finding in checked.all:
        by_item.setdefault(finding.claim.item, []).append(finding)
    rows = []
    for item in paper(checked.name).items:
        verdicts = _counted(by_item.get(item.item, []))
        rows.append(
            (item.item, _text(item.says), f"not tested: {_text(item.not_tested)}" if item.not_tested else verdicts)
        )
    if beyond := by_item.get(BEYOND):
        rows.append((BEYOND, "statements that the paper does not make", _counted(beyond)))
    return table(("item", "what it says", "claims"), rows)


def _origin(checked: Checked, experiment: str) -> str:
    """What the experiment is, and what ran where with how many seeds."""
    sweep = checked.sweeps.get(experiment)
    again = f"`mislabel reproduce {experiment}{' --quick' if experiment in checked.quick else ''}`"
    if sweep is None:
        return f"{_text(description(experiment))} Not run: {_why_not_run(experiment)}. Run it with {again}."
    runs = sweep.read("runs", ["cell_id", "seed", "finished_at"])
    seeds = sorted(set(runs["seed"]))
    shown = f"{count(len(seeds), 'seed')} ({seeds[0]} to {seeds[-1]})"
    launches = sweep.files.launches()
    places = ", ".join(dict.fromkeys(launch.get("platform", "") for launch in launches)) or "an unknown machine"
    code = ", ".join(sorted({commit.partition("-")[0][:_COMMIT] or "unknown" for commit in commits(sweep)}))
    ran = (
        f"{count(runs['cell_id'].nunique(), 'cell')} with {shown}, {runs['finished_at'].max():%Y-%m-%d}, "
        f"commit {code}, on {places}."
    )
    note = checkout_note(sweep)
    return " ".join(
        filter(
            None, [_text(description(experiment)), ran, f"Note: {note}." if note else "", f"Run it again with {again}."]
        )
    )


def _why_not_run(experiment: str) -> str:
    from mislabel.sweeps.checks.reader import read_spec
    from mislabel.sweeps.papers.bundled import spec_path

    spec, _ = read_spec(spec_path(experiment), (), False)
    return "it needs a GPU" if spec.resources.gpu else "the store has no runs of it"


def _in_order(name: str) -> list[tuple[str, int]]:
    """Sorts fig2 before fig10."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D+)(\d*)", name)]


def _title(checked: Checked, experiment: str) -> str:
    return experiment.partition("/")[2] + (", small version" if experiment in checked.quick else "")


def _anchor(checked: Checked, experiment: str) -> str:
    return _title(checked, experiment).replace(",", "").replace(" ", "-")


def _emphasized(verdict: str) -> str:
    return f"**{verdict}**" if verdict == "contradicted" else verdict


def _text(words: str) -> str:
    """Words in which Markdown sees no emphasis."""
    return re.sub(r"([*_])", r"\\\1", words)
